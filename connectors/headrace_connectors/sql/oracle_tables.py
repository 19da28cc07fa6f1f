"""Read complete tables of Oracle, for verifications: by one statement, or in parts of the primary key.

One statement reads one state, regardless of how long its rows are fetched; if undo does not last, ORA-01555 ends it.
A verification that takes its time would need the undo of hours. Parts have a state each (``PartwiseSource``): every
part continues behind the last key of the one before it, which the index of the primary key finds.

Tests: ``tests/contracts/row_source_suite.py``, ``tests/unit/sql/test_oracle_tables.py``,
``tests/integration/test_oracle_row_source.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.core.model.catalog import CatalogTable
from headrace.ports import LogPosition
from headrace_connectors.sql.cells import ReadableColumns
from headrace_connectors.sql.oracle_query import KeyBind, cell_expression, key_bind, part_key, select_part
from headrace_connectors.sql.oracle_server import bind_type
from headrace_connectors.sql.query import quoted

FETCH_ROWS = 500
PART_ROWS = 2000
CURRENT_SCN = "SELECT current_scn FROM v$database"
"""The connector's own user may read it; other sources of the exact SCN need a grant."""

Rows = list[tuple[object, ...]]


def table_values(connection: Any, catalog: CatalogTable, readable: ReadableColumns) -> Iterator[list[Sequence[object]]]:
    """Yield the driver's values of every row, column by column, some hundred rows at a time."""
    cells = ", ".join(_cells(readable)) or "NULL"
    with connection.cursor() as cursor:
        cursor.arraysize = FETCH_ROWS
        cursor.execute(
            f"SELECT {cells} FROM {quoted(catalog.table.schema, catalog.table.table)} t",
            fetch_lobs=False,
            fetch_decimals=True,
        )
        while rows := cursor.fetchmany():
            yield list(zip(*rows, strict=True))


class TableParts:
    """The parts of a table in the order of its primary key."""

    def __init__(self, catalog: CatalogTable, readable: ReadableColumns, key: Sequence[KeyBind]) -> None:
        self._table = (catalog.table.schema, catalog.table.table)
        self._cells, self._key = _cells(readable), key
        types = {column.name: column.type.name for column in catalog.columns}
        self._types = {key_bind(n, 1): bind_type(types[column.name]) for n, column in enumerate(key, 1)}
        self._last: Sequence[object] | None = None

    @staticmethod
    def of(catalog: CatalogTable, readable: ReadableColumns) -> TableParts | None:
        """Return the parts of a table; None for one whose key has no order that a bind expresses exactly."""
        key = part_key(catalog)
        return None if key is None else TableParts(catalog, readable, key)

    def next(self, connection: Any) -> Rows:
        """Return the driver's values of the next rows, the readable columns first; nothing behind the last row."""
        is_first = self._last is None
        text = select_part(self._table, self._key, self._cells, PART_ROWS, after=not is_first)
        binds = {} if self._last is None else {key_bind(n, 1): value for n, value in enumerate(self._last, 1)}
        with connection.cursor() as cursor:
            cursor.arraysize = cursor.prefetchrows = FETCH_ROWS
            if binds:
                cursor.setinputsizes(**self._types)
            cursor.execute(text, binds, fetch_lobs=False, fetch_decimals=True)
            rows: Rows = cursor.fetchall()
        if rows:
            self._last = rows[-1][len(self._cells) :]
        return rows


def log_position(connection: Any) -> LogPosition:
    """Return the next SCN: every commit that a reader saw has a lower one. The connector's progress is unknown."""
    with connection.cursor() as cursor:
        cursor.execute(CURRENT_SCN)
        (scn,) = cursor.fetchone()
    return LogPosition("oracle", (int(scn) + 1, 0))


def _cells(readable: ReadableColumns) -> list[str]:
    return [cell_expression(column.catalog.name, column.catalog.type.name) for column in readable.columns]
