"""Reads a complete PostgreSQL table, and the positions of log and source connector, for `headrace verify`.

The rows come through a cursor in one transaction, so that they belong to one snapshot, without a sort. While it is
open, vacuum keeps the rows of the snapshot, as it does for Debezium's own snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, LiteralString, cast

import psycopg
from psycopg import RawCursor

from headrace.core.model.catalog import CatalogTable
from headrace.ports import LogPosition
from headrace_connectors.sql.query import quoted

Connection = psycopg.Connection[Any]
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
        cursor.execute(_sql(f"DECLARE {_CURSOR} NO SCROLL CURSOR FOR SELECT {names} FROM {only}{table}"))
        while True:
            cursor.execute(_sql(f"FETCH {FETCH_ROWS} FROM {_CURSOR}"))
            result = cursor.pgresult
            if result is None or result.ntuples == 0:
                return
            rows = range(result.ntuples)
            values = ([result.get_value(row, column) for row in rows] for column in range(len(columns)))
            yield [[None if value is None else bytes(value).decode() for value in column] for column in values]


def log_position(connection: Connection) -> LogPosition:
    """Return the end of the write-ahead log, and the position that active logical slots have confirmed."""
    row = connection.execute(_LOG).fetchone()
    end, published = (0, None) if row is None else row
    return LogPosition("postgresql", (end,), None if published is None else (published,))


def _sql(text: str) -> Any:
    return cast(Any, text)
