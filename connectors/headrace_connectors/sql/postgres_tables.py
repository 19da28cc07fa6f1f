"""Read complete tables of PostgreSQL, for verifications: in one snapshot, or a few pages at a time.

A verification that takes its time would keep a snapshot open for hours, and vacuum would keep all rows of that time.
Parts have a snapshot each (``PartwiseSource``).

Tests: ``tests/contracts/row_source_suite.py``, ``tests/integration/test_postgres_row_source.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, LiteralString, cast

from psycopg import RawCursor
from psycopg.pq.abc import PGresult

from headrace.core.model.catalog import CatalogTable
from headrace.ports import LogPosition
from headrace_connectors.sql.postgres_connection import Connection
from headrace_connectors.sql.query import quoted

Texts = list[list[str | None]]

FETCH_ROWS = 2000
_CURSOR = "headrace_verify"

_LOG: LiteralString = """
SELECT (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::pg_catalog.int8,
       (SELECT (pg_catalog.min(confirmed_flush_lsn) - '0/0')::pg_catalog.int8 FROM pg_catalog.pg_replication_slots
        WHERE slot_type = 'logical' AND database = pg_catalog.current_database() AND active)
"""
"""Several active slots may belong to several connectors: the lowest position counts, which is always safe."""


def table_texts(connection: Connection, catalog: CatalogTable, columns: Sequence[str]) -> Iterator[Texts]:
    """Yield the server's text of ``columns`` for every row, column by column, a few thousand rows at a time."""
    only = "ONLY " if catalog.relkind == "r" else ""
    names = ", ".join(quoted(name) for name in columns) or "NULL"
    table = quoted(catalog.table.schema, catalog.table.table)
    with connection.transaction(), RawCursor(connection) as cursor:
        cursor.execute(cast(Any, f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR SELECT {names} FROM {only}{table}"))
        while True:
            cursor.execute(cast(Any, f"FETCH {FETCH_ROWS} FROM {_CURSOR}"))
            result = cursor.pgresult
            if result is None or result.ntuples == 0:
                return
            yield texts_of(result, max(len(columns), 1))


_PAGES: LiteralString = """
SELECT pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::pg_catalog.int8,
       c.relpages, c.reltuples
FROM pg_catalog.pg_class AS c
WHERE c.oid = $1::pg_catalog.regclass AND c.relkind = 'r'
  AND pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 140000
"""
"""Older servers have no scan of a range of pages, and would read the complete table for each part."""
_PAGES_WITHOUT_STATISTICS = 32
_MOST_PAGES = 256
"""Statistics may be those of a table that was nearly empty: its rows of today must fit into memory."""


def next_page(connection: Connection, catalog: CatalogTable, begin: int) -> int | None:
    """Return where a part of about ``FETCH_ROWS`` rows from page ``begin`` on ends.

    None behind the last page, and for a table that is not read page by page.
    """
    table = quoted(catalog.table.schema, catalog.table.table)
    row = RawCursor(connection).execute(_PAGES, (table,)).fetchone()
    if row is None:
        return None
    pages, analyzed_pages, rows = row
    if begin >= pages:
        return None
    width = int(FETCH_ROWS * analyzed_pages / rows) if analyzed_pages > 0 and rows > 0 else _PAGES_WITHOUT_STATISTICS
    return begin + min(max(width, 1), _MOST_PAGES)


def read_pages(
    connection: Connection, catalog: CatalogTable, columns: Sequence[str], begin: int, end: int
) -> PGresult | None:
    """Return the server's text of ``columns`` for the rows of the pages before ``end``."""
    names = ", ".join(quoted(name) for name in columns) or "NULL"
    table = quoted(catalog.table.schema, catalog.table.table)
    pages = f"ctid >= '({begin},0)'::pg_catalog.tid AND ctid < '({end},0)'::pg_catalog.tid"
    cursor = RawCursor(connection)
    cursor.execute(cast(Any, f"SELECT {names} FROM ONLY {table} WHERE {pages}"))
    return cursor.pgresult


def cells_of(result: PGresult, columns: int) -> list[list[bytes | None]]:
    """Return the server's bytes of a result, column by column."""
    get, rows = result.get_value, range(result.ntuples)
    return [[get(row, column) for row in rows] for column in range(columns)]


def texts_of(result: PGresult, columns: int) -> Texts:
    """Return the texts of a result, column by column."""
    cells = cells_of(result, columns)
    return [[None if cell is None else bytes(cell).decode() for cell in column] for column in cells]


def log_position(connection: Connection) -> LogPosition:
    """Return the end of the write-ahead log, and the position that active logical slots have confirmed."""
    row = connection.execute(_LOG).fetchone()
    end, published = (0, None) if row is None else row
    return LogPosition("postgresql", (end,), None if published is None else (published,))
