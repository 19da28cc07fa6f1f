"""What ``headrace resnapshot`` and the worker check before they request a snapshot, and the parts that they need.

Tests: ``tests/integration/test_resnapshot.py``, ``tests/rest/test_resnapshots.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.core.doctor.findings import Severity
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.resnapshot.source_connector import SignalSettings, check_captured, signal_settings
from headrace.ports import ExaminedSource, OpenRowSource, SignalChannel, SignalledSource, TableSource
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.resnapshot.table_snapshot import SnapshotTable
from headrace.runtime.verify.connector_tables import comparable_task, primaries
from headrace.runtime.verify.source_tables import topic_form
from headrace.runtime.verify.transformed_tables import TransformedTables

OpenSignalTopic = Callable[
    [SinkConnectorConfig, str, str, Callable[[Coroutine[Any, Any, Any]], Any]],
    SignalChannel,
]
"""Returns the signal topic on the brokers that a connector reads. Takes the topic, the key of its records, and a
function that runs a coroutine and returns its result. Raises ConfigError."""


@dataclass(frozen=True, slots=True)
class SnapshotTarget:
    """A source table that can be read again, its lake table, and how its source connector receives signals."""

    settings: SignalSettings
    table: SnapshotTable
    id: TableId


def source_database(connector: SinkConnectorConfig, open_source: OpenRowSource) -> TableSource:
    """Return the source database, connected to its primary. Raises ConfigError and Retriable."""
    databases = primaries(connector.reselect, open_source)
    if len(databases) > 1:
        for _, source in databases:
            source.close()
        raise ConfigError("reselect.databases: a resnapshot supports one database", "reselect.databases")
    [(_, source)] = databases
    try:
        source.check()
    except BaseException:
        source.close()
        raise
    return source


def snapshot_target(
    connector: SinkConnectorConfig,
    source: SourceConnector,
    database: TableSource,
    name: str,
    topic: str | None = None,
) -> SnapshotTarget:
    """Return the target for the source table ``name`` (``schema.table``).

    Raises ConfigError if the source connector does not receive signals or does not send the table, as ``headrace
    doctor`` finds it, if the table has no key, or if the connector does not read its topic. ``topic`` is that of the
    table if a transform of the source connector renames it.
    """
    schema, dot, table = name.partition(".")
    if not dot:
        raise ConfigError(f"{name}: is not SCHEMA.TABLE")
    source_config = source.config()
    settings = signal_settings(source.name, source_config)
    check_captured(source.name, source_config, schema, table)
    topic = topic or f"{settings.prefix}.{topic_form(schema)}.{topic_form(table)}"
    if re.fullmatch(connector.framework.topics.whole_names, topic) is None:
        raise ConfigError(
            f"connector {connector.name}: does not read topic {topic} of {name}; add it to topics, or name the topic"
        )
    id = TableId(settings.prefix, source_config.get("database.dbname", ""), schema, table)
    _check_table(database, id)
    lake_table = TransformedTables(comparable_task(connector)).name(topic, id)
    return SnapshotTarget(settings, SnapshotTable(name, topic, lake_table, connector.name), id)


def _check_table(database: TableSource, table: TableId) -> None:
    """Raise ConfigError for a table whose changes do not arrive, as ``headrace doctor`` finds it, or without a key."""
    catalog = database.catalog(table)
    name = f"{table.schema}.{table.table}"
    if catalog is None:
        raise ConfigError(f"{name}: the source database has no such table")
    if not catalog.key:
        raise ConfigError(f"{name}: has no primary key, so Debezium takes no incremental snapshot of it")
    for finding in database.findings([table]) if isinstance(database, ExaminedSource) else ():
        if finding.severity is Severity.ERROR and finding.subject.endswith(f"table {name}"):
            raise ConfigError(f"{finding.subject}: {finding.consequence} ({finding.evidence}); {finding.remedy}")


def signal_channel(
    connector: SinkConnectorConfig,
    settings: SignalSettings,
    database: TableSource,
    open_topic: OpenSignalTopic,
    run: Callable[[Coroutine[Any, Any, Any]], Any],
) -> SignalChannel:
    """Return the channel of the source connector. Raises ConfigError."""
    if settings.topic:
        return open_topic(connector, settings.topic, settings.prefix, run)
    if not isinstance(database, SignalledSource):
        raise ConfigError("reselect.database.type: a resnapshot supports postgresql only")
    return database.signal_table(settings.table)
