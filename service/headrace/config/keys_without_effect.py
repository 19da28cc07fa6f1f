"""Keys that are no options here: of Kafka's clients and workers, of converters, and of other sinks.

A key of a Kafka Connect worker is passed to a client, accepted without effect, or rejected with the reason. A key of a
converter without effect is an option that is listed (``options_without_effect``), because consoles show it. Keys of
other sinks have an equivalent here, which the message names. They are those of the classes of Debezium's JDBC sink 3.6
and Apache Iceberg's sink 1.10; the text for a key with the same name here describes the differences.

Tests: ``tests/unit/config/test_other_sinks.py``, ``tests/unit/config/test_worker.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from headrace.core.connect.config_def import ConfigKey, Importance, Type

PASS_THROUGH = ("consumer.", "producer.", "admin.", "spark.", "key.converter.", "value.converter.", "header.converter.")
"""Keys that are passed unchanged to Kafka's clients, to Spark and to converters."""

CLIENT_SECURITY = ("security.", "sasl.", "ssl.")
"""Top-level client keys: they apply to the worker's own clients, and to consumers that do not override them."""

CREATED_TOPICS = ("config.storage.", "status.storage.")
"""Behind these, settings of the topics that the worker creates."""

_OFFSETS = "a sink's offsets are stored in its consumer group and in the table commits"
_CLIENTS = "the worker's own clients use fixed values; consumer.* and producer.* configure those of tasks"
_SYSTEM = "the operating system's value applies"
_METRICS = "metrics are served on /metrics"
_FLUSH = "offsets are committed after every table commit"
_MEMBERS = "workers use their own protocol, and read the config topic continuously"

TLS = {
    "provider": "OpenSSL is the only provider",
    "keymanager.algorithm": "it names a Java class",
    "trustmanager.algorithm": "it names a Java class",
    "secure.random.implementation": "the operating system's random numbers are used",
    "allow.dn.changes": "a new certificate may have any name",
    "allow.san.changes": "a new certificate may have any name",
}
"""Kafka's options of TLS that are not in ``TlsSettings``, without the prefix ``ssl.``."""

WITHOUT_EFFECT = {
    "plugin.path": "connectors are Python entry points",
    "plugin.discovery": "connectors are Python entry points",
    "offset.storage.*": _OFFSETS,
    "config.storage.partitions": "the config topic always has one partition",
    "offset.flush.interval.ms": _FLUSH,
    "offset.flush.timeout.ms": _FLUSH,
    "internal.topics.automatic.creation.enable": "missing storage topics are created",
    "internal.key.converter*": "Kafka Connect has removed it; the worker stores JSON",
    "internal.value.converter*": "Kafka Connect has removed it; the worker stores JSON",
    "scheduled.rebalance.max.delay.ms": "the tasks of a worker that has left the group move at once",
    "connect.protocol": _MEMBERS,
    "worker.sync.timeout.ms": _MEMBERS,
    "worker.unsync.backoff.ms": _MEMBERS,
    "inter.worker.*": "workers forward requests with the credentials of their callers, and sign none",
    "exactly.once.source.support": "there are no source connectors",
    "topic.creation.enable": "there are no source connectors",
    **{f"listeners.https.ssl.{name}": reason for name, reason in TLS.items()},
    "metric.reporters": _METRICS,
    "auto.include.jmx.reporter": _METRICS,
    "enable.metrics.push": _METRICS,
    "metrics.*": _METRICS,
    "client.dns.lookup": "the clients try every address of a host",
    "send.buffer.bytes": _SYSTEM,
    "receive.buffer.bytes": _SYSTEM,
    "security.providers": "it names Java classes",
    "request.timeout.ms": _CLIENTS,
    "retry.backoff.ms": _CLIENTS,
    "retry.backoff.max.ms": _CLIENTS,
    "reconnect.backoff.ms": _CLIENTS,
    "reconnect.backoff.max.ms": _CLIENTS,
    "metadata.max.age.ms": _CLIENTS,
    "metadata.recovery.*": _CLIENTS,
    "connections.max.idle.ms": _CLIENTS,
    "socket.connection.setup.timeout.*": _CLIENTS,
}
"""Keys that mean nothing here, * for any that begin so: accepted with a warning, so that a file can be moved over."""

TOPIC_SETTINGS = frozenset(
    {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
)
"""Kafka's settings of topics."""


def without_effect(name: str) -> str | None:
    """Return why a key has no effect; None for a key with an effect, and for an unknown one."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    begins = (reason for key, reason in WITHOUT_EFFECT.items() if key.endswith("*") and name.startswith(key[:-1]))
    return next(begins, None)


def options_without_effect(doc: str, names: Iterable[str]) -> tuple[ConfigKey, ...]:
    """Return options that a converter accepts and never reads; ``doc`` says why."""
    return tuple(ConfigKey(name, Type.STRING, None, Importance.LOW, doc, display_name=name) for name in names)


def of_a_created_topic(name: str) -> bool:
    return any(name.startswith(prefix) and name[len(prefix) :] in TOPIC_SETTINGS for prefix in CREATED_TOPICS)


_CATALOG = "in the worker file: `warehouse`, and `spark.sql.catalog.lake.*` for a catalog other than a folder"
_NO_CONTROL = "not needed: a batch is one commit of its table, without a control topic"
_NO_DATABASE = "none: Headrace writes to no database"
_UTC = "not needed: times become timestamps without a zone or in UTC (docs/types.md)"

JDBC: Mapping[str, str] = {
    "batch.size": "`batch.max.records`, which is optional: a batch has what arrived during the last merge",
    "cloud.events.schema.name.pattern": "none: Headrace does not read CloudEvents",
    "collection.name.format": "the same; also with `${source.*}`",
    "collection.naming.strategy": "`collection.name.format`",
    "collection.table.format": "`collection.name.format`",
    "column.naming.strategy": "none: columns keep the source's names, in the same case",
    "connection.password": _CATALOG,
    "connection.pool.*": _NO_DATABASE,
    "connection.provider": _NO_DATABASE,
    "connection.restart.on.errors": "not needed: a task restarts by itself after a retriable error",
    "connection.url": _CATALOG,
    "connection.username": _CATALOG,
    "database.time_zone": _UTC,
    "delete.enabled": "not needed: deletes always apply; `delete.mode=soft` marks rows instead of removing them",
    "dialect.*": _NO_DATABASE,
    "field.exclude.list": "the same",
    "field.include.list": "the same",
    "flush.max.retries": "not needed: a write is retried after a retriable error",
    "flush.retry.delay.ms": "not needed: attempts have an exponential back-off",
    "hibernate.*": _NO_DATABASE,
    "insert.mode": "the same; `upsert` by default, `insert` keeps every event as a row, `update` is not available",
    "primary.key.fields": "the same",
    "primary.key.mode": "not needed: the record's key, or `primary.key.fields`; without a key `insert.mode=insert`",
    "quote.identifiers": "not needed: names are always quoted",
    "schema.evolution": "the same; `basic` by default",
    "table.name.format": "`collection.name.format`",
    "table.naming.strategy": "`collection.name.format`",
    "truncate.enabled": "not needed: truncates always apply",
    "use.reduction.buffer": "not needed: the changes of a row in a batch are always folded into one",
    "use.time.zone": _UTC,
}
"""Debezium's JDBC sink."""

ICEBERG: Mapping[str, str] = {
    "iceberg.catalog": "not needed: the name of the catalog is `lake`",
    "iceberg.catalog.*": _CATALOG,
    "iceberg.connect.group-id": "`consumer.override.group.id`",
    "iceberg.control.*": _NO_CONTROL,
    "iceberg.control.commit.interval-ms": "`freshness.target.ms`, which is optional; `commits.per.hour` is a bound",
    "iceberg.coordinator.*": _NO_CONTROL,
    "iceberg.coordinator-executor-keep-alive-timeout-ms": _NO_CONTROL,
    "iceberg.hadoop-conf-dir": "in the worker file: `spark.hadoop.*`",
    "iceberg.hadoop.*": "in the worker file: `spark.hadoop.*`",
    "iceberg.kafka.*": "`consumer.override.*`",
    "iceberg.table.*": "one connector for each group of tables with the same settings",
    "iceberg.tables": "`table.namespace` and `collection.name.format`",
    "iceberg.tables.auto-create-enabled": "not needed: Headrace creates missing tables",
    "iceberg.tables.auto-create-props.*": "`table.properties.*`",
    "iceberg.tables.cdc-field": "not needed: Debezium's envelopes contain the operation; for flattened records "
    "`add.fields.prefix`",
    "iceberg.tables.default-commit-branch": "none: commits go to `main`",
    "iceberg.tables.default-id-columns": "`primary.key.fields`, which is optional: the default is the record's key",
    "iceberg.tables.default-partition-by": "`table.partition.by`",
    "iceberg.tables.dynamic-enabled": "`collection.name.format` with `${source.*}`",
    "iceberg.tables.evolve-schema-enabled": "`schema.evolution`, which is `basic` by default",
    "iceberg.tables.route-field": "`collection.name.format` with `${source.*}`",
    "iceberg.tables.schema-case-insensitive": "none: names keep their case; two that differ only in case are refused",
    "iceberg.tables.schema-force-optional": "not needed: columns are always optional",
    "iceberg.tables.upsert-mode-enabled": "`insert.mode`, which is `upsert` by default",
    "iceberg.tables.write-props.*": "`table.properties.*`",
}
"""Apache Iceberg's sink, and two keys of the one that it came from."""

OTHER_SINKS: Mapping[str, Mapping[str, str]] = {"Debezium's JDBC sink": JDBC, "Apache Iceberg's sink": ICEBERG}
_BY_CLASS = {"JdbcSink": "Debezium's JDBC sink", "IcebergSink": "Apache Iceberg's sink"}
"""The sinks by the beginning of their class's simple name."""
_SAME = "the same"


def migration(class_name: str, names: Iterable[str]) -> str | None:
    """Return how to migrate a connector of another sink, which has the keys ``names``; None for any other class."""
    simple_name = class_name.rpartition(".")[2]
    sink = next((sink for begin, sink in _BY_CLASS.items() if simple_name.startswith(begin)), None)
    if sink is None:
        return None
    keys_by_text: dict[str, list[str]] = {}
    for name in names:
        here = _here(name, OTHER_SINKS[sink])
        if here is not None and not here.startswith(_SAME):
            keys_by_text.setdefault(here.replace("`", ""), []).append(name)
    keys = "; ".join(f"{', '.join(keys)} ({here})" for here, keys in keys_by_text.items())
    replaced = f", and replace these keys: {keys}" if keys else ""
    return (
        f"It is the class of {sink}. To move its connector (docs/migration.md), set connector.class to LakehouseSink, "
        f"set another name{replaced}."
    )


def called_here(name: str) -> str | None:
    """A sentence that names the equivalent of another sink's key, or None for a key of none of them."""
    for sink, keys in OTHER_SINKS.items():
        if here := _here(name, keys):
            return f"It is a key of {sink}; here: {here.replace('`', '')}. See docs/migration.md."
    return None


def _here(name: str, keys: Mapping[str, str]) -> str | None:
    """The text of ``name``, or of its longest prefix."""
    if name in keys:
        return keys[name]
    fitting = [prefix for prefix in keys if prefix.endswith("*") and fnmatchcase(name, prefix)]
    return keys[max(fitting, key=len)] if fitting else None
