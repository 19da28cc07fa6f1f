"""Reads a lake table for `headrace verify`: all rows, the rows under some keys, last states, and the rows' topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from headrace.core.model.errors import Fatal
from headrace_connectors.lakehouse.last_states import last_states_sql, omitted_columns_sql
from headrace_connectors.lakehouse.merge import TOPIC
from headrace_connectors.lakehouse.schema import HISTORY_COLUMNS, VERSION_COLUMNS, quoted
from headrace_connectors.lakehouse.table_session import TableSession

ROWS_AT_ONCE = 500_000
"""Rows per result if Spark cannot write results to a shared file."""
_STATE_COLUMNS = (*VERSION_COLUMNS.names, HISTORY_COLUMNS.names[-1])


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
    with session.staged_view(keys) as view:
        return session.arrow(_rows_under(table, view, columns, keys))


def last_states(
    session: TableSession, table: str, columns: Sequence[str], key_fields: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the last state of each key of a history: ``columns``, and Headrace's own. Raises Fatal."""
    omitted = {row.name for row in session.rows(omitted_columns_sql(table))}
    states = last_states_sql(table, table, key_fields, columns, omitted)
    for piece in scan(session, f"({states})", [*dict.fromkeys([*key_fields, *columns]), *_STATE_COLUMNS]):
        yield _with_complete_keys(table, piece, key_fields)


def last_states_of(session: TableSession, table: str, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """Return the last states of the ``keys`` of a history."""
    stored = list(dict.fromkeys([*keys.column_names, *columns, *HISTORY_COLUMNS.names]))
    with session.staged_view(keys) as view:
        events = f"({_rows_under(table, view, stored, keys)})"
        return session.arrow(last_states_sql(table, events, keys.column_names, columns, columns))


def _rows_under(table: str, view: str, columns: Sequence[str], keys: pa.Table) -> str:
    matches = [f"t.{quoted(name)} <=> s.{quoted(name)}" for name in keys.column_names]
    names = ", ".join(f"t.{quoted(name)}" for name in columns)
    return f"SELECT /*+ BROADCAST(s) */ {names} FROM {view} AS s JOIN {table} AS t ON {' AND '.join(matches)}"


def _with_complete_keys(table: str, states: pa.Table, key_fields: Sequence[str]) -> pa.Table:
    """Return ``states``. Raises Fatal if events of the history have no value in a column of the key."""
    incomplete = [name for name in key_fields if states[name].null_count]
    if incomplete:
        raise Fatal(
            f"{table}: its last state is not known: rows of the history have no value in {', '.join(incomplete)}, as "
            "deletes have if their records' keys lack the column; set primary.key.fields to the columns of these keys"
        )
    return states
