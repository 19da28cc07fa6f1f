"""Reads a lake table for `headrace verify`: all rows, the rows under some keys, and the topics of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace_connectors.lakehouse.merge import TOPIC
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.table_session import TableSession

ROWS_AT_ONCE = 500_000
"""Rows per result if Spark cannot write results to a shared file."""


def scan(session: TableSession, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield these columns of every row of ``table`` (quoted).

    Without a folder that Spark shares with this process, each slice of the rows is a scan of the table.
    """
    query = f"SELECT {', '.join(map(quoted, columns))} FROM {table}"
    if session.hands_over:
        yield from session.batches(query)
        return
    [rows] = session.rows(f"SELECT count(*) FROM {table}")
    slices = -(-int(rows[0]) // ROWS_AT_ONCE)
    for number in range(slices):
        keys = ", ".join(map(quoted, columns[:1]))
        yield session.arrow(f"{query} WHERE pmod(xxhash64({keys}), {slices}) = {number}")


def topics(session: TableSession, table: str) -> list[str]:
    rows = session.rows(f"SELECT DISTINCT {TOPIC} AS topic FROM {table} WHERE {TOPIC} IS NOT NULL")
    return [row.topic for row in rows]


def read(session: TableSession, table: str, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """Return ``columns`` of the rows of ``table`` (quoted) under ``keys``, also of rows whose key contains a null."""
    matches = [f"t.{quoted(name)} <=> s.{quoted(name)}" for name in keys.column_names]
    names = ", ".join(f"t.{quoted(name)}" for name in columns)
    with session.staged_view(keys) as view:
        return session.arrow(
            f"SELECT /*+ BROADCAST(s) */ {names} FROM {view} AS s JOIN {table} AS t ON {' AND '.join(matches)}"
        )
