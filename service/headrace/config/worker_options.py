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
        "Time after which the coordinator removes a worker without heartbeats from the group of workers, and its "
        "tasks move to other workers. Consumers of tasks have consumer.session.timeout.ms.",
        _LOW,
        at_least(1),
    ),
    key(
        "heartbeat.interval.ms",
        Type.INT,
        "1000",
        "Interval of a worker's heartbeats. A worker detects a rebalance with a heartbeat. Kafka Connect's "
        "default is 3000.",
        _LOW,
        at_least(1),
    ),
    key(
        "rebalance.timeout.ms",
        Type.INT,
        "60000",
        "Time that a worker has to join a rebalance. A worker that does not join in time is removed from the group.",
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
        "Replication factor of the config topic; -1 uses the broker's default.",
        _LOW,
        at_least(-1),
    ),
    key("status.storage.topic", Type.STRING, None, "Compacted topic for the states of connectors and tasks.", _HIGH),
    key(
        "status.storage.replication.factor",
        Type.SHORT,
        "3",
        "Replication factor of the status topic; -1 uses the broker's default.",
        _LOW,
        at_least(-1),
    ),
    key("status.storage.partitions", Type.INT, "5", "Number of partitions of the status topic.", _LOW, at_least(1)),
)


def _only_empty(name: str, value: Any) -> None:
    """Connect can serve the loggers on separate addresses. Serving them on the main one instead is not what was set."""
    if value is not None and str(value).strip():
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: /admin/loggers is served on listeners; remove the "
            "option, or leave it empty to disable the loggers"
        )


def _only_http(name: str, value: Any) -> None:
    """The listener that Connect's workers name to each other: here there is one."""
    if value not in (None, "", "http"):
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: the only listener is http; set "
            "rest.advertised.host.name and rest.advertised.port to the address at which other workers reach this one"
        )


_REST = group(
    "REST",
    key(
        "listeners",
        Type.LIST,
        f"http://:{DEFAULT_PORT}",
        "Address of the REST API: http://host:port. With an empty host the worker listens on all interfaces; port "
        "0 uses a free port.",
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
        "Port that belongs to rest.advertised.host.name.",
        validator=between(1, 65535),
    ),
    key(
        "rest.advertised.listener",
        Type.STRING,
        None,
        "Accepted for compatibility with Kafka Connect. The only listener is http.",
        _LOW,
        _only_http,
    ),
    key(
        "admin.listeners",
        Type.STRING,
        None,
        "If not set, /admin/loggers is served on listeners. If empty, it is disabled. Other values are refused.",
        _LOW,
        _only_empty,
    ),
    key(
        "access.control.allow.origin",
        Type.LIST,
        "",
        "Origins whose pages may call the API from a browser; * matches any part of an origin. Empty allows none.",
        _LOW,
    ),
    key(
        "access.control.allow.methods",
        Type.LIST,
        "",
        "Methods that such pages may use. Empty allows GET, POST and HEAD.",
        _LOW,
    ),
    key(
        "response.http.headers.config",
        Type.STRING,
        "",
        "Headers of every answer, as 'action name:value', separated by commas. The actions are set, add, setDate "
        "and addDate. The value of the last two is milliseconds from now.",
        _LOW,
        response_headers,
    ),
    key(
        "rest.request.timeout.ms",
        Type.LONG,
        "90000",
        "Time after which a request is answered with 500 Request timed out.",
        _LOW,
        at_least(1),
    ),
)
_CONVERTERS = group(
    "Converters",
    key("key.converter", Type.CLASS, JSON_CONVERTER, "Converter of record keys for connectors that name none.", _HIGH),
    key(
        "value.converter",
        Type.CLASS,
        JSON_CONVERTER,
        "Converter of record values for connectors that name none.",
        _HIGH,
    ),
    key("header.converter", Type.CLASS, SIMPLE_HEADER_CONVERTER, "Converter of record headers.", _LOW),
)
_LAKE = group(
    "Lakehouse",
    key(
        "warehouse",
        Type.STRING,
        "warehouse",
        "Location of the tables: a local path for the embedded catalog 'lake', or an object-store URL together "
        "with spark.sql.catalog.lake.* for another catalog.",
        _HIGH,
    ),
    key(
        "worker.threads",
        Type.INT,
        "8",
        "Number of threads that write tables. Each write occupies one thread until it ends. Decoding and table "
        "maintenance have threads of their own.",
        validator=at_least(2),
    ),
    key(
        "worker.memory.bytes",
        Type.LONG,
        None,
        "Bytes that changes of all tables may take in the worker from their decoding to their commit. Above half of "
        "it, tables that hold more than an equal share are not read until they are written. By default half of what "
        "spark.driver.memory, its overhead and Python leave of the container's or the machine's memory; the worker "
        "logs the sum when it starts.",
        validator=at_least(1024 * 1024),
    ),
)
_TIMING = group(
    "Timing",
    key(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        "60000",
        "Time that a stopped task has to finish its current write. Kafka Connect's default is 5000; a table "
        "commit may need longer.",
        validator=at_least(0),
    ),
    key(
        "task.start.timeout.ms",
        Type.LONG,
        "60000",
        "Time after which a task that has not joined its consumer group is restarted with back-off.",
        _LOW,
        at_least(1),
    ),
    key(
        "task.retry.backoff.max.ms",
        Type.LONG,
        "60000",
        "Longest pause before a task is restarted after a retriable error.",
        _LOW,
        at_least(1),
    ),
)
_TRACKING = group(
    "Topic tracking",
    key(
        "topic.tracking.enable",
        Type.BOOLEAN,
        "true",
        "Whether to track the topics of connectors for GET /connectors/{name}/topics.",
        _LOW,
    ),
    key("topic.tracking.allow.reset", Type.BOOLEAN, "true", "Whether the list of topics may be reset.", _LOW),
)
_LOG = group(
    "Log",
    key(
        "log.format",
        Type.STRING,
        "text",
        "text writes lines of text; json writes one JSON object per line (timestamp, level, logger, message, "
        "connector, task, exception).",
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
        "Client properties that connectors may override (consumer.override.*, producer.override.*, "
        "admin.override.*): All, None, Principal (security.protocol, sasl.mechanism and sasl.jaas.config) or "
        "Allowlist.",
        validator=override_policy,
    ),
    key(
        "connector.client.config.override.allowlist",
        Type.LIST,
        "",
        "Client properties that connectors may override with the Allowlist policy, without their prefix.",
    ),
)

_SECRETS = group(
    "Secrets",
    key(
        "config.providers",
        Type.LIST,
        "",
        "Names of config providers. config.providers.<name>.class is FileConfigProvider, DirectoryConfigProvider "
        "or EnvVarConfigProvider. config.providers.<name>.param.allowed.paths (or .allowlist.pattern) limits what "
        "the provider reads. Values of worker and connectors may then contain references: ${<name>:path:key}.",
    ),
)

WORKER_OPTIONS = _IDENTITY + _STORAGE + _REST + _CONVERTERS + _LAKE + _TIMING + _TRACKING + _POLICY + _LOG + _SECRETS
