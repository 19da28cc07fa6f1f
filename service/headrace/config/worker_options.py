"""The worker's options (``connect.md`` section 7). Its other keys are in ``worker_keys.py``."""

from __future__ import annotations

from typing import Any

from headrace.config.converter import JSON_CONVERTER, SIMPLE_HEADER_CONVERTER
from headrace.config.layout import group, key
from headrace.config.overrides import override_policy
from headrace.config.response_headers import response_headers
from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.config_validators import InvalidValue, any_case, at_least, between

_HIGH, _LOW = Importance.HIGH, Importance.LOW
DEFAULT_PORT = 8083

_IDENTITY = group(
    "Identity",
    key("bootstrap.servers", Type.LIST, None, "Kafka brokers to connect to first, as host:port.", _HIGH),
    key(
        "group.id",
        Type.STRING,
        None,
        "Name of the Connect cluster. Workers of one cluster share configurations, states and connectors.",
        _HIGH,
    ),
    key("client.id", Type.STRING, "", "Prefix of the client ids that brokers see in logs and quotas.", _LOW),
    key(
        "session.timeout.ms",
        Type.INT,
        "10000",
        "A worker that has not been heard of for so long is taken for dead, and its tasks move. Of the group of "
        "workers; tasks have consumer.session.timeout.ms.",
        _LOW,
        at_least(1),
    ),
    key(
        "heartbeat.interval.ms",
        Type.INT,
        "1000",
        "How often a worker is heard of, and how soon it hears of a rebalance. Kafka Connect's default is 3000.",
        _LOW,
        at_least(1),
    ),
    key(
        "rebalance.timeout.ms",
        Type.INT,
        "60000",
        "A worker that has not joined a rebalance after so long is left out of it.",
        _LOW,
        at_least(1),
    ),
)
_STORAGE = group(
    "Storage",
    key(
        "config.storage.topic",
        Type.STRING,
        None,
        "Compacted topic with one partition for connector configurations and target states.",
        _HIGH,
    ),
    key(
        "config.storage.replication.factor",
        Type.SHORT,
        "3",
        "Copies of the config topic; -1 takes the broker's default.",
        _LOW,
        at_least(-1),
    ),
    key("status.storage.topic", Type.STRING, None, "Compacted topic for the states of connectors and tasks.", _HIGH),
    key(
        "status.storage.replication.factor",
        Type.SHORT,
        "3",
        "Copies of the status topic; -1 takes the broker's default.",
        _LOW,
        at_least(-1),
    ),
    key("status.storage.partitions", Type.INT, "5", "Partitions of the status topic.", _LOW, at_least(1)),
)


def _only_empty(name: str, value: Any) -> None:
    """Connect can serve the loggers on addresses of their own; to serve them on the main one instead would surprise."""
    if value is not None and str(value).strip():
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: /admin/loggers is served on listeners; leave the option "
            "out, or leave it empty to switch the loggers off"
        )


def _only_http(name: str, value: Any) -> None:
    """The listener that Connect's workers name to each other: here there is one."""
    if value not in (None, "", "http"):
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: the only listener is http; say with "
            "rest.advertised.host.name and rest.advertised.port where other workers reach this one"
        )


_REST = group(
    "REST",
    key(
        "listeners",
        Type.LIST,
        f"http://:{DEFAULT_PORT}",
        "Address of the REST API: http://host:port. An empty host listens everywhere; port 0 takes a free one.",
        _HIGH,
    ),
    key(
        "rest.advertised.host.name",
        Type.STRING,
        None,
        "Host that clients and Location headers use, and the first part of worker_id.",
    ),
    key(
        "rest.advertised.port",
        Type.INT,
        None,
        "Port that goes with rest.advertised.host.name.",
        validator=between(1, 65535),
    ),
    key(
        "rest.advertised.listener",
        Type.STRING,
        None,
        "Accepted for Kafka Connect's sake: http, the only listener.",
        _LOW,
        _only_http,
    ),
    key(
        "admin.listeners",
        Type.STRING,
        None,
        "Leave it out, and /admin/loggers is served with the rest; set it to nothing, and it is switched off.",
        _LOW,
        _only_empty,
    ),
    key(
        "access.control.allow.origin",
        Type.LIST,
        "",
        "Origins whose pages may use the API from a browser, * for any part of them. Empty: none.",
        _LOW,
    ),
    key(
        "access.control.allow.methods",
        Type.LIST,
        "",
        "What such pages may send. Empty: GET, POST and HEAD.",
        _LOW,
    ),
    key(
        "response.http.headers.config",
        Type.STRING,
        "",
        "Headers of every answer, as 'action name:value', separated by commas: set or add, or setDate or addDate with "
        "milliseconds from now.",
        _LOW,
        response_headers,
    ),
    key(
        "rest.request.timeout.ms",
        Type.LONG,
        "90000",
        "After this time a request is answered with 500 Request timed out.",
        _LOW,
        at_least(1),
    ),
)
_CONVERTERS = group(
    "Converters",
    key("key.converter", Type.CLASS, JSON_CONVERTER, "Converter of record keys where a connector names none.", _HIGH),
    key(
        "value.converter", Type.CLASS, JSON_CONVERTER, "Converter of record values where a connector names none.", _HIGH
    ),
    key("header.converter", Type.CLASS, SIMPLE_HEADER_CONVERTER, "Converter of record headers.", _LOW),
)
_LAKE = group(
    "Lakehouse",
    key(
        "warehouse",
        Type.STRING,
        "warehouse",
        "Where the tables live: a local path for the embedded catalog 'lake', or an object-store URL together with "
        "spark.sql.catalog.lake.* for another catalog.",
        _HIGH,
    ),
    key(
        "worker.threads",
        Type.INT,
        "8",
        "Threads that decode records and write tables; a table that is written takes one all the while.",
        validator=at_least(2),
    ),
)
_TIMING = group(
    "Timing",
    key(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        "60000",
        "How long a task may take to finish the write in flight when it is stopped. Kafka Connect's default is 5000; "
        "a table commit may need longer.",
        validator=at_least(0),
    ),
    key(
        "task.start.timeout.ms",
        Type.LONG,
        "60000",
        "A task that has not joined its consumer group after this time is started again with back-off.",
        _LOW,
        at_least(1),
    ),
    key(
        "task.retry.backoff.max.ms",
        Type.LONG,
        "60000",
        "Longest pause before a task that failed for a passing reason is started again.",
        _LOW,
        at_least(1),
    ),
)
_TRACKING = group(
    "Topic tracking",
    key("topic.tracking.enable", Type.BOOLEAN, "true", "Whether GET /connectors/{name}/topics is kept up.", _LOW),
    key("topic.tracking.allow.reset", Type.BOOLEAN, "true", "Whether the list of topics may be reset.", _LOW),
)
_LOG = group(
    "Log",
    key(
        "log.format",
        Type.STRING,
        "text",
        "Lines of text, or one JSON object per line (timestamp, level, logger, message, connector, task, exception).",
        _LOW,
        any_case("text", "json"),
    ),
)
_POLICY = group(
    "Overrides",
    key(
        "connector.client.config.override.policy",
        Type.STRING,
        "All",
        "What connectors may set as consumer.override.* and the like: All, None, Principal (security.protocol, "
        "sasl.mechanism and sasl.jaas.config) or Allowlist.",
        validator=override_policy,
    ),
    key(
        "connector.client.config.override.allowlist",
        Type.LIST,
        "",
        "With the Allowlist policy: the client properties that connectors may set, without their prefix.",
    ),
)

_SECRETS = group(
    "Secrets",
    key(
        "config.providers",
        Type.LIST,
        "",
        "Names of config providers. config.providers.<name>.class is FileConfigProvider, DirectoryConfigProvider or "
        "EnvVarConfigProvider; config.providers.<name>.param.allowed.paths (or .allowlist.pattern) bounds what it "
        "reads. Values of worker and connectors may then refer to it: ${<name>:path:key}.",
    ),
)

WORKER_OPTIONS = _IDENTITY + _STORAGE + _REST + _CONVERTERS + _LAKE + _TIMING + _TRACKING + _POLICY + _LOG + _SECRETS
