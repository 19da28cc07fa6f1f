"""Reads a complete Oracle table, and the position of the log, for `headrace verify`.

One statement reads one state, regardless of how long its rows are fetched; if undo does not last, ORA-01555 ends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headrace.core.model.catalog import CatalogTable
from headrace.ports import LogPosition
from headrace_connectors.sql.cells import ReadableColumns
from headrace_connectors.sql.oracle_query import cell_expression
from headrace_connectors.sql.query import quoted

FETCH_ROWS = 500
CURRENT_SCN = "SELECT current_scn FROM v$database"
"""The connector's own user may read it; other sources of the exact SCN need a grant."""


def table_values(connection: Any, catalog: CatalogTable, readable: ReadableColumns) -> Iterator[list[Sequence[Any]]]:
    """Yield the driver's values of every row, column by column, some hundred rows at a time."""
    cells = ", ".join(cell_expression(each.known.name, each.known.type.name) for each in readable.columns) or "NULL"
    with connection.cursor() as cursor:
        cursor.arraysize = FETCH_ROWS
        cursor.execute(
            f"SELECT {cells} FROM {quoted(catalog.table.schema, catalog.table.table)} t",
            fetch_lobs=False,
            fetch_decimals=True,
        )
        while rows := cursor.fetchmany():
            yield list(zip(*rows, strict=True))


def log_position(connection: Any) -> LogPosition:
    """Return the next SCN: every commit that a reader saw has a lower one. The connector's progress is unknown."""
    with connection.cursor() as cursor:
        cursor.execute(CURRENT_SCN)
        (scn,) = cursor.fetchone()
    return LogPosition("oracle", (int(scn) + 1, 0))
