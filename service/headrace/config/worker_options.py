"""The worker's options (``connect.md`` section 7). Its other keys are in ``keys_without_effect.py``.

Tests: ``tests/unit/config/test_worker.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from headrace.config.converter import JSON_CONVERTER, SIMPLE_HEADER_CONVERTER
from headrace.config.directory_options import DirectorySettings
from headrace.config.engine import EngineSettings
from headrace.config.kafka import OverridePolicy, override_policy
from headrace.config.rest_options import (
    DEFAULT_PORT,
    BasicAuthSettings,
    HeaderRule,
    OAuthSettings,
    RestAccessSettings,
    header_rules,
)
from headrace.config.rest_options import response_headers as check_response_headers
from headrace.config.tls import TlsSettings
from headrace.core.connect.config_def import Importance, InvalidValue, Type, any_case, at_least, between
from headrace.core.connect.typed_options import definition, option, seconds, section

_HIGH, _LOW = Importance.HIGH, Importance.LOW
LISTENER_TLS, ADMIN_TLS, OAUTH_TLS = "listeners.https.ssl.", "admin.listeners.https.ssl.", "rest.oauth.ssl."
"""The prefixes of options of TLS for the REST API (``config/tls.py``)."""


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """Kafka's brokers, and the group of workers that the worker belongs to."""

    bootstrap_servers: tuple[str, ...] | None = option(
        "bootstrap.servers", Type.LIST, None, "Kafka brokers to connect to first, as host:port.", _HIGH
    )
    group_id: str | None = option(
        "group.id",
        Type.STRING,
        None,
        "Name of the Connect cluster. Workers of one cluster share configurations, states and connectors.",
        _HIGH,
    )
    client_id: str = option(
        "client.id", Type.STRING, "", "Prefix of the client ids that brokers see in logs and quotas.", _LOW
    )
    session_timeout_ms: int = option(
        "session.timeout.ms",
        Type.INT,
        10_000,
        "Time after which the coordinator removes a worker without heartbeats from the group of workers, and its "
        "tasks move to other workers. Consumers of tasks have consumer.session.timeout.ms.",
        _LOW,
        at_least(1),
    )
    heartbeat_interval_ms: int = option(
        "heartbeat.interval.ms",
        Type.INT,
        1000,
        "Interval of a worker's heartbeats. A worker detects a rebalance with a heartbeat. Kafka Connect's "
        "default is 3000.",
        _LOW,
        at_least(1),
    )
    rebalance_timeout_ms: int = option(
        "rebalance.timeout.ms",
        Type.INT,
        60_000,
        "Time that a worker has to join a rebalance. A worker that does not join in time is removed from the group.",
        _LOW,
        at_least(1),
    )


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The topics that keep configurations and states."""

    config_topic: str | None = option(
        "config.storage.topic",
        Type.STRING,
        None,
        "Compacted topic with one partition for connector configurations and target states.",
        _HIGH,
    )
    config_replication: int = option(
        "config.storage.replication.factor",
        Type.SHORT,
        3,
        "Replication factor of the config topic; -1 uses the broker's default.",
        _LOW,
        at_least(-1),
    )
    status_topic: str | None = option(
        "status.storage.topic", Type.STRING, None, "Compacted topic for the states of connectors and tasks.", _HIGH
    )
    status_replication: int = option(
        "status.storage.replication.factor",
        Type.SHORT,
        3,
        "Replication factor of the status topic; -1 uses the broker's default.",
        _LOW,
        at_least(-1),
    )
    status_partitions: int = option(
        "status.storage.partitions", Type.INT, 5, "Number of partitions of the status topic.", _LOW, at_least(1)
    )


def _scheme(value: str) -> str | None:
    return value.strip().lower() or None


@dataclass(frozen=True, slots=True)
class RestSettings:
    """The REST API."""

    listeners: tuple[str, ...] = option(
        "listeners",
        Type.LIST,
        (f"http://:{DEFAULT_PORT}",),
        "Addresses of the REST API: http://host:port or https://host:port, separated by commas. With an empty host the "
        "worker listens on all interfaces; port 0 uses a free port.",
        _HIGH,
    )
    advertised_host: str | None = option(
        "rest.advertised.host.name",
        Type.STRING,
        None,
        "Host that clients and Location headers use, and the first part of worker_id.",
    )
    advertised_port: int | None = option(
        "rest.advertised.port",
        Type.INT,
        None,
        "Port that belongs to rest.advertised.host.name.",
        validator=between(1, 65535),
    )
    advertised_listener: str | None = option(
        "rest.advertised.listener",
        Type.STRING,
        None,
        "Scheme of the address in listeners that other workers use: http or https. By default http, if listeners has "
        "such an address.",
        _LOW,
        any_case("http", "https", ""),
        read=_scheme,
    )
    admin_listeners: tuple[str, ...] | None = option(
        "admin.listeners",
        Type.LIST,
        None,
        "Addresses of /admin/loggers, as listeners. They also serve /health and /metrics. If not set, /admin/loggers "
        "is served on listeners. If empty, it is disabled. https addresses use admin.listeners.https.ssl.*, or ssl.*.",
        _LOW,
    )
    allow_origins: tuple[str, ...] = option(
        "access.control.allow.origin",
        Type.LIST,
        (),
        "Origins whose pages may call the API from a browser; * matches any part of an origin. Empty allows none.",
        _LOW,
    )
    allow_methods: tuple[str, ...] = option(
        "access.control.allow.methods",
        Type.LIST,
        (),
        "Methods that such pages may use. Empty allows GET, POST and HEAD.",
        _LOW,
    )
    response_headers: tuple[HeaderRule, ...] = option(
        "response.http.headers.config",
        Type.STRING,
        "",
        "Headers of every answer, as 'action name:value', separated by commas. The actions are set, add, setDate "
        "and addDate. The value of the last two is milliseconds from now.",
        _LOW,
        check_response_headers,
        read=header_rules,
    )
    request_timeout: float = option(
        "rest.request.timeout.ms",
        Type.LONG,
        90_000,
        "Time after which a request is answered with 500 Request timed out.",
        _LOW,
        at_least(1),
        read=seconds,
    )


@dataclass(frozen=True, slots=True)
class DefaultConverters:
    """The converters of connectors that name none."""

    key: str = option(
        "key.converter", Type.CLASS, JSON_CONVERTER, "Converter of record keys for connectors that name none.", _HIGH
    )
    value: str = option(
        "value.converter",
        Type.CLASS,
        JSON_CONVERTER,
        "Converter of record values for connectors that name none.",
        _HIGH,
    )
    header: str = option("header.converter", Type.CLASS, SIMPLE_HEADER_CONVERTER, "Converter of record headers.", _LOW)


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """Where tables are, and how many threads write them."""

    warehouse: str = option(
        "warehouse",
        Type.STRING,
        "warehouse",
        "Location of the tables: a local path for the embedded catalog 'lake', or an object-store URL together "
        "with spark.sql.catalog.lake.* for another catalog.",
        _HIGH,
    )
    threads: int = option(
        "worker.threads",
        Type.INT,
        8,
        "Number of threads that write tables. Each write occupies one thread until it ends. Fewer writes run at the "
        "same time while they take the cores from decoding. Decoding and table maintenance have threads of their own.",
        validator=at_least(2),
    )
    memory: int | None = option(
        "worker.memory.bytes",
        Type.LONG,
        None,
        "Bytes that changes of all tables may take in the worker from their decoding to their commit. Above half of "
        "it, tables that hold more than an equal share are not read until they are written. By default half of what "
        "spark.driver.memory, its overhead and Python leave of the container's or the machine's memory; the worker "
        "logs the sum when it starts.",
        validator=at_least(1024 * 1024),
    )


@dataclass(frozen=True, slots=True)
class TimingSettings:
    """Deadlines of tasks, in seconds."""

    shutdown_timeout: float = option(
        "task.shutdown.graceful.timeout.ms",
        Type.LONG,
        60_000,
        "Time that a stopped task has to finish its current write. Kafka Connect's default is 5000; a table "
        "commit may need longer.",
        validator=at_least(0),
        read=seconds,
    )
    start_timeout: float = option(
        "task.start.timeout.ms",
        Type.LONG,
        60_000,
        "Time after which a task that has not joined its consumer group is restarted with back-off.",
        _LOW,
        at_least(1),
        read=seconds,
    )
    retry_backoff_max: float = option(
        "task.retry.backoff.max.ms",
        Type.LONG,
        60_000,
        "Longest pause before a task is restarted after a retriable error.",
        _LOW,
        at_least(1),
        read=seconds,
    )


@dataclass(frozen=True, slots=True)
class TrackingSettings:
    """Whether the worker tracks the topics of connectors."""

    enabled: bool = option(
        "topic.tracking.enable",
        Type.BOOLEAN,
        True,
        "Whether to track the topics of connectors for GET /connectors/{name}/topics.",
        _LOW,
    )
    allow_reset: bool = option(
        "topic.tracking.allow.reset", Type.BOOLEAN, True, "Whether the list of topics may be reset.", _LOW
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The form of the log."""

    format: str = option(
        "log.format",
        Type.STRING,
        "text",
        "text writes lines of text; json writes one JSON object per line (timestamp, level, logger, message, "
        "connector, task, exception).",
        _LOW,
        any_case("text", "json"),
    )


def _table_count(name: str, value: Any) -> None:
    if value is not None and value.lower() not in ("all", "none") and not (value.isascii() and value.isdigit()):
        raise InvalidValue(f"Invalid value {value} for configuration {name}: must be all, none or a number of tables")


def _tables(value: str) -> int | None:
    return None if value.lower() == "all" else 0 if value.lower() == "none" else int(value)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What ``/metrics`` contains."""

    tables: int | None = option(
        "metrics.tables",
        Type.STRING,
        "20",
        "Number of tables of the worker with metrics of their own: all, none or a number. Further tables of a task "
        'share metrics with the label table="*", with sums of counters and the worst value of a gauge, so that '
        "/metrics stays below 200 kB with hundreds of tables. Topics are limited in the same way. A table takes about "
        "9 kB of the page.",
        _LOW,
        _table_count,
        read=_tables,
    )


def _http_address(name: str, value: Any) -> None:
    if value and urlsplit(value).scheme not in ("http", "https"):  # the value may contain a secret
        raise InvalidValue(f"Invalid value for configuration {name}: must be an address that begins with http(s)://")


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Where alerts go without Prometheus."""

    webhook_url: str = option(
        "alerts.webhook.url",
        Type.STRING,
        "",
        "Address to which the worker posts JSON when a connector, task or table fails, is retried, or differs from its "
        "source, and when that has ended (docs/operations.md). Without it nothing is posted; Prometheus has alerts of "
        "its own.",
        _LOW,
        _http_address,
    )
    webhook_authorization: str | None = option(
        "alerts.webhook.authorization",
        Type.PASSWORD,
        None,
        "Value of the header Authorization of these requests, such as Bearer and a token.",
        _LOW,
    )


@dataclass(frozen=True, slots=True)
class OverrideSettings:
    """Which client properties connectors may override."""

    policy_name: str = option(
        "connector.client.config.override.policy",
        Type.STRING,
        "All",
        "Client properties that connectors may override (consumer.override.*, producer.override.*, "
        "admin.override.*): All, None, Principal (security.protocol, sasl.mechanism and sasl.jaas.config) or "
        "Allowlist.",
        validator=override_policy,
    )
    allowlist: tuple[str, ...] = option(
        "connector.client.config.override.allowlist",
        Type.LIST,
        (),
        "Client properties that connectors may override with the Allowlist policy, without their prefix.",
    )

    @property
    def policy(self) -> OverridePolicy:
        return OverridePolicy.of(self.policy_name, self.allowlist)


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """Config providers."""

    providers: tuple[str, ...] = option(
        "config.providers",
        Type.LIST,
        (),
        "Names of config providers. config.providers.<name>.class is FileConfigProvider, DirectoryConfigProvider "
        "or EnvVarConfigProvider. Values of worker and connectors may then contain references: "
        "${<name>:path:key}. Connectors read only what config.providers.<name>.param.allowed.paths (folders), for "
        "EnvVarConfigProvider .param.allowlist.pattern (names), allows: nothing, if it is not set.",
    )


WORKER_OPTIONS = (
    section("Identity", definition(IdentitySettings).keys)
    + section("Storage", definition(StorageSettings).keys)
    + section("REST", definition(RestSettings).keys)
    + section("Connectors as code", definition(DirectorySettings).keys)
    + section("REST TLS", definition(TlsSettings).with_prefix(LISTENER_TLS).keys)
    + section(
        "REST access",
        (
            *definition(BasicAuthSettings).keys,
            *definition(OAuthSettings).keys,
            *definition(RestAccessSettings).keys,
        ),
    )
    + section("Converters", definition(DefaultConverters).keys)
    + section("Lakehouse", definition(LakeSettings).keys)
    + section("Spark", definition(EngineSettings).keys)
    + section("Timing", definition(TimingSettings).keys)
    + section("Topic tracking", definition(TrackingSettings).keys)
    + section("Overrides", definition(OverrideSettings).keys)
    + section("Log", definition(LogSettings).keys)
    + section("Metrics", definition(MetricsSettings).keys)
    + section("Alerts", definition(AlertSettings).keys)
    + section("Secrets", definition(SecretSettings).keys)
)
