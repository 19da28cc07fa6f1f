"""The row source of the simulated database: rows and catalog of a version that may be later than the events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from properties.source_database.tables import Column

from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace_dev.memory import MemoryRowSource

if TYPE_CHECKING:
    from properties.source_database.world import World

_TEXT = SqlType(25, "pg_catalog", "text")
_INT = {"int32": SqlType(23, "pg_catalog", "int4"), "int64": SqlType(20, "pg_catalog", "int8")}
_DOUBLES = SqlType(1022, "pg_catalog", "_float8", element=SqlType(701, "pg_catalog", "float8"))
_TEXTS = SqlType(1009, "pg_catalog", "_text", element=_TEXT)
_SCHEMAS = {
    "int4": Schema("int32", optional=True),
    "int8": Schema("int64", optional=True),
    "text": Schema("string", optional=True),
    "_text": Schema("array", optional=True, items=Schema("string", optional=True)),
    "_float8": Schema("array", optional=True, items=Schema("double", optional=True)),
}
_KEYS = {"int": {"id": "int32"}, "text": {"id": "text"}, "composite": {"part": "text", "id": "int32"}}


class LaterSource(MemoryRowSource):
    """Every call is answered from the database's version at that time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def catalog(self, table: TableId) -> CatalogTable | None:
        """The table in its current version."""
        self._advance(table)
        return super().catalog(table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """The schema of the catalog entry, which may be older than the table."""
        return Schema("struct", fields=tuple(Field(each.name, _SCHEMAS[each.type.name]) for each in catalog.columns))

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """The rows in their current version."""
        self._advance(catalog.table)
        answer = super().fetch(catalog, request)
        version, number = self._world.version, int(catalog.table.table[1:])
        rows = self._world.truth.database.versions[version][number]
        for column in request.columns:
            answers = self._world.judge.answers[number, column.name]
            answers += [(key, row.get(column.name)) for key, row in rows.items()]
        return answer

    def _advance(self, table: TableId) -> None:
        version, number = self._world.answer_version(), int(table.table[1:])
        database, setup = self._world.truth.database, self._world.scenario.setup
        keys = {name: Column(name, kind) for name, kind in _KEYS[setup.key_kind].items()}
        columns = [*keys.values(), *database.layouts[version][number]]
        known = tuple(_column(n, column, setup.identity, column.name in keys) for n, column in enumerate(columns, 1))
        identity = tuple(KeyColumn(name, _sql_type(column)) for name, column in keys.items())
        entry = CatalogTable(table, "r", "f" if setup.identity == "full" else "d", known, identity)
        self.add(entry, self.schema(entry), list(database.versions[version][number].values()))


def _sql_type(column: Column) -> SqlType:
    if column.type in _INT:
        return _INT[column.type]
    return {"texts": _TEXTS, "doubles": _DOUBLES}.get(column.type, _TEXT)


def _column(number: int, column: Column, identity: str, is_key: bool) -> CatalogColumn:
    if column.type in _INT:
        return CatalogColumn(column.name, number, _INT[column.type], attlen=4, not_null=is_key)
    return CatalogColumn(
        column.name, number, _sql_type(column), attstorage="x", not_null=is_key, recoverable=identity == "full"
    )
