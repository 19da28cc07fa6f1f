"""Keys of other sinks and their equivalents here, for a connector that is migrated.

Keys as the classes of Debezium's JDBC sink 3.6 and Apache Iceberg's sink 1.10 name them. The text for a key with the
same name here describes the differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

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
    "iceberg.control.commit.interval-ms": "`batch.linger.ms`, which is optional: commits follow the load",
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
