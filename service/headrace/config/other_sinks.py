"""What the keys of other sinks are called here, for whoever moves a connector over.

Keys as the classes of Debezium's JDBC sink 3.6 and Apache Iceberg's sink 1.10 name them. A key that both know under
the same name says what may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

_CATALOG = "the worker's: `warehouse`, and `spark.sql.catalog.lake.*` for another catalog than a folder"
_NO_CONTROL = "nothing to set: a batch is one commit of its table, without a control topic"
_NO_DATABASE = "nothing: there is no database to write to"
_UTC = "nothing to set: times become timestamps without a zone or in UTC, as docs/types.md says"

JDBC: Mapping[str, str] = {
    "batch.size": "`batch.max.records`, which need not be set: a batch takes what came while the last one merged",
    "cloud.events.schema.name.pattern": "nothing: CloudEvents are not read",
    "collection.name.format": "the same; `${source.*}` too",
    "collection.naming.strategy": "`collection.name.format`",
    "collection.table.format": "`collection.name.format`",
    "column.naming.strategy": "nothing: columns keep the source's names, in its case",
    "connection.password": _CATALOG,
    "connection.pool.*": _NO_DATABASE,
    "connection.provider": _NO_DATABASE,
    "connection.restart.on.errors": "nothing to set: a task that failed for a passing reason starts again by itself",
    "connection.url": _CATALOG,
    "connection.username": _CATALOG,
    "database.time_zone": _UTC,
    "delete.enabled": "nothing to set: deletes always count; `delete.mode=soft` marks rows instead of removing them",
    "dialect.*": _NO_DATABASE,
    "field.exclude.list": "the same",
    "field.include.list": "the same",
    "flush.max.retries": "nothing to set: a write that fails for a passing reason is repeated",
    "flush.retry.delay.ms": "nothing to set: the pauses between attempts grow by themselves",
    "hibernate.*": _NO_DATABASE,
    "insert.mode": "the same; `upsert` by default, `insert` keeps every event as a row, `update` is not known",
    "primary.key.fields": "the same",
    "primary.key.mode": "nothing to set: the record's key, or `primary.key.fields`; without a key `insert.mode=insert`",
    "quote.identifiers": "nothing to set: names are always quoted",
    "schema.evolution": "the same; `basic` by default",
    "table.name.format": "`collection.name.format`",
    "table.naming.strategy": "`collection.name.format`",
    "truncate.enabled": "nothing to set: truncates always count",
    "use.reduction.buffer": "nothing to set: the changes of a row in a batch are always folded into one",
    "use.time.zone": _UTC,
}
"""Debezium's JDBC sink."""

ICEBERG: Mapping[str, str] = {
    "iceberg.catalog": "nothing to set: the catalog is called `lake`",
    "iceberg.catalog.*": _CATALOG,
    "iceberg.connect.group-id": "`consumer.override.group.id`",
    "iceberg.control.*": _NO_CONTROL,
    "iceberg.control.commit.interval-ms": "`batch.linger.ms`, which need not be set: commits follow the load",
    "iceberg.coordinator.*": _NO_CONTROL,
    "iceberg.coordinator-executor-keep-alive-timeout-ms": _NO_CONTROL,
    "iceberg.hadoop-conf-dir": "the worker's `spark.hadoop.*`",
    "iceberg.hadoop.*": "the worker's `spark.hadoop.*`",
    "iceberg.kafka.*": "`consumer.override.*`",
    "iceberg.table.*": "one connector for each group of tables that are set up alike",
    "iceberg.tables": "`table.namespace` and `collection.name.format`",
    "iceberg.tables.auto-create-enabled": "nothing to set: a table that is not there is made",
    "iceberg.tables.auto-create-props.*": "`table.properties.*`",
    "iceberg.tables.cdc-field": "nothing to set: Debezium's envelopes say what an event does; `add.fields.prefix` of "
    "flattened ones",
    "iceberg.tables.default-commit-branch": "nothing: commits go to `main`",
    "iceberg.tables.default-id-columns": "`primary.key.fields`, which need not be set: the record's key",
    "iceberg.tables.default-partition-by": "`table.partition.by`",
    "iceberg.tables.dynamic-enabled": "`collection.name.format` with `${source.*}`",
    "iceberg.tables.evolve-schema-enabled": "`schema.evolution`, which is `basic` by default",
    "iceberg.tables.route-field": "`collection.name.format` with `${source.*}`",
    "iceberg.tables.schema-case-insensitive": "nothing: names keep their case; two that differ only in it are refused",
    "iceberg.tables.schema-force-optional": "nothing to set: columns are always optional",
    "iceberg.tables.upsert-mode-enabled": "`insert.mode`, which is `upsert` by default",
    "iceberg.tables.write-props.*": "`table.properties.*`",
}
"""Apache Iceberg's sink, and two keys of the one that it came from."""

OTHER_SINKS: Mapping[str, Mapping[str, str]] = {"Debezium's JDBC sink": JDBC, "Apache Iceberg's sink": ICEBERG}


def called_here(name: str) -> str | None:
    """A sentence that says what another sink's key is here, or None for a key of none of them."""
    for sink, keys in OTHER_SINKS.items():
        if here := keys.get(name) or _by_prefix(name, keys):
            return f"It is a key of {sink}; here: {here.replace('`', '')}. See docs/migration.md."
    return None


def _by_prefix(name: str, keys: Mapping[str, str]) -> str | None:
    """What the longest prefix says that ``name`` has."""
    fitting = [prefix for prefix in keys if prefix.endswith("*") and fnmatchcase(name, prefix)]
    return keys[max(fitting, key=len)] if fitting else None
