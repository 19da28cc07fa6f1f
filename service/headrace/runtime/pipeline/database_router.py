"""Several source databases as one row source: a table is read from the database that its events come from.

A connector may read the topics of several source connectors, whose databases can contain tables of the same names. The
fields ``source.name`` and ``source.db`` of the events identify the database (``reselect.databases``).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, RowSource


class DatabaseRouter:
    """A ``ports.RowSource`` over several. The first database that may contain a table's events answers for it."""

    def __init__(self, sources: Sequence[tuple[DatabaseOptions, RowSource]]) -> None:
        self._sources = tuple(sources)

    def source_of(self, table: TableId) -> RowSource | None:
        """Return the row source of a table, or None if it belongs to none of the databases."""
        return next((source for database, source in self._sources if database.holds(table)), None)

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if one of the databases cannot be used."""
        for _, source in self._sources:
            source.check()

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's entry in the catalog of its database; None if no database has the table."""
        source = self.source_of(table)
        return None if source is None else source.catalog(table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the ``after`` schema of the table's events."""
        return self._known(catalog).schema(catalog)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Read the cells in the table's database."""
        return self._known(catalog).fetch(catalog, request)

    def connections(self) -> Connections:
        """Return the connections to all databases."""
        return sum((source.connections() for _, source in self._sources), Connections())

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for _, source in self._sources:
            source.close()

    def _known(self, catalog: CatalogTable) -> RowSource:
        source = self.source_of(catalog.table)
        if source is None:
            name = f"{catalog.table.schema}.{catalog.table.table}"
            raise Fatal(f"{name}: none of reselect.databases contains the table; add its database")
        return source
