"""The source tables of a connector with their lake tables, for ``headrace verify`` and for the worker's verification.

Tests: ``tests/integration/test_verify.py``, ``test_continuous_verification.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from headrace.config import SinkConnectorConfig
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.tables.table_sources import TableSource as StoredSource
from headrace.core.verify.verification import comparison
from headrace.ports import Lakehouse, LakeTable, OpenRowSource, TableSource
from headrace.runtime.task.task_options import SinkTaskOptions, sink_task_options
from headrace.runtime.verify.source_tables import SourceTables, refuse_shared_table
from headrace.runtime.verify.transformed_tables import TransformedTables, check_transforms
from headrace.runtime.verify.verified_table import VerifiedTable


def comparable_task(connector: SinkConnectorConfig) -> SinkTaskOptions:
    """Return the options of the connector's tasks. Raises ConfigError if its tables cannot be compared."""
    task = sink_task_options(connector)
    check_transforms(task)
    return task


class ConnectorTables:
    """Finds the source tables of topics, and opens their lake tables. One thread at a time calls it.

    ``named`` are source tables (``schema.table``) that the operator names.
    """

    def __init__(
        self,
        connector: SinkConnectorConfig,
        open_source: OpenRowSource,
        lakehouse: Lakehouse,
        named: Collection[str] = (),
    ) -> None:
        """Create the sources without a connection. Raises ConfigError if nothing can be compared."""
        self.task = comparable_task(connector)
        self._databases = primaries(connector.reselect, open_source)
        self._lakehouse = lakehouse
        self.transformed = TransformedTables(self.task)
        self._sources = SourceTables(self._databases, self.transformed.name, self._stored, named)

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if a source database cannot be used."""
        for _, source in self._databases:
            source.check()

    def close(self) -> None:
        """Close the connections to the databases."""
        for _, source in self._databases:
            source.close()

    def of(self, topic: str) -> Sequence[tuple[TableId, TableSource]]:
        """Return the source tables of a topic, with their database; nothing if it has no table."""
        return () if self.transformed.drop(topic) else self._sources.of(topic)

    def open(self, topic: str, id: TableId, source: TableSource) -> tuple[VerifiedTable, str]:
        """Return a source table with its lake table, and the lake table's name.

        Raises ConfigError if the source does not have the table, or if the lake table has rows of other tables.
        """
        catalog = source.catalog(id)
        if catalog is None:
            raise ConfigError(
                f"{id.schema}.{id.table}: the source database has no such table. If topic {topic} has the rows of a "
                "table whose name a topic cannot have, name the table with --table SCHEMA.TABLE, or let the connector "
                "write a batch of it first: the lake table then stores its source table"
            )
        name = self.transformed.name(topic, id)
        lake = self._lake_table(name)
        refuse_shared_table(name, topic, id, lake.sources())
        schema = source.schema(catalog)
        stored = lake.schema()
        stored_names = stored.names if stored else []
        made = self.transformed.columns(topic, catalog, schema, stored_names, lake.key_fields())
        key_fields = self.task.envelope.key_fields or lake.key_fields() or made.key
        # The lake has a generated column only if snapshot reads contained it, which streamed events do not. In a
        # history the cells of these are null.
        history = self.task.tables.history
        generated = {column.name for column in catalog.columns if column.generated}
        fields = tuple(
            Field(column, types)
            for column, source_name in made.sources.items()
            if (types := schema.field(source_name)) is not None
            and (source_name not in generated or (column in stored_names and not history))
            and self.task.fields.wants(topic, column, key_fields)
        )
        changed = [column for column in made.changed if self.task.fields.wants(topic, column, key_fields)]
        wanted = comparison(replace(schema, fields=fields), stored, key_fields, made.sources, changed)
        return VerifiedTable(id, catalog, wanted, source, lake, history), name

    def _stored(self, name: str) -> Sequence[StoredSource]:
        """Return the sources that a lake table stores. An error is reported when the table is compared."""
        try:
            return self._lake_table(name).sources()
        except HeadraceError:
            return ()

    def _lake_table(self, name: str) -> LakeTable:
        return self._lakehouse.table(self.task.namespace, name, replace(self.task.tables, adopt=False))


def primaries(reselect: ReselectOptions, open_source: OpenRowSource) -> list[tuple[DatabaseOptions, TableSource]]:
    """Return the primaries of the source databases: a standby may be behind the position at which it is read.

    Raises ConfigError if there is none, or one that cannot be compared.
    """
    databases = reselect.databases or ((reselect.database,) if reselect.database else ())
    if not databases:
        raise ConfigError(
            "connector: it has no database to compare with; set reselect.database.*", "reselect.database.hostname"
        )
    opened = []
    for database in databases:
        alone = replace(reselect, database=database, databases=(), read_from="primary")
        source = open_source(database, alone)
        if not isinstance(source, TableSource):
            raise ConfigError(
                f"reselect.database.type: tables of {database.type} cannot be compared with the lake",
                "reselect.database.type",
            )
        opened.append((database, source))
    return opened
