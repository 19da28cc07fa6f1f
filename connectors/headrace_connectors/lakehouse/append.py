"""The rows of a history: how they are staged and appended. Pure.

The coordinate identifies an event. Offsets already exclude the events that the table contains; the coordinate also
excludes those that another worker has appended since without knowing that its assignment has ended.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.core.merge.history import History
from headrace_connectors.lakehouse.merge import OFFSET, PARTITION, TOPIC, text_literal
from headrace_connectors.lakehouse.schema import HISTORY_COLUMNS, quoted
from headrace_connectors.lakehouse.staging import in_lake_type


def history_rows(rows: History, stored: pa.Schema) -> pa.Table:
    """Return the rows with all own columns; ``stored`` contains the table's data columns in lake types."""
    columns = {column.name: in_lake_type(column.values, column.name, stored) for column in rows.columns}
    version = rows.version
    own_columns = [
        pa.array(version.position, pa.binary(), mask=version.position == b"").cast(pa.string()),
        pa.array([version.topic] * len(rows), pa.string()),
        pa.array(version.partition, pa.int32()),
        pa.array(version.offset, pa.int64()),
        pa.array(version.source_time, pa.int64()).view(pa.timestamp("us", tz="UTC")),
        rows.operation,
        rows.unavailable,
    ]
    return pa.table([*columns.values(), *own_columns], [*columns, *HISTORY_COLUMNS.names])


def append_history_sql(table: str, view: str, rows: History, names: list[str]) -> str:
    """Return the INSERT of the rows of ``view`` whose coordinate is not in ``table`` (both names quoted)."""
    low, high = int(rows.version.offset.min()), int(rows.version.offset.max())
    columns, values = ", ".join(map(quoted, names)), ", ".join(f"s.{quoted(name)}" for name in names)
    return (
        f"MERGE INTO {table} AS t USING {view} AS s ON t.{TOPIC} = {text_literal(rows.version.topic)} "
        f"AND t.{PARTITION} = s.{PARTITION} AND t.{OFFSET} = s.{OFFSET} AND t.{OFFSET} BETWEEN {low}L AND {high}L "
        f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
    )


def row_offsets_sql(table: str) -> str:
    """Return the next offset by topic and partition, from the coordinates of the rows."""
    return (
        f"SELECT {TOPIC} AS topic, {PARTITION} AS number, max({OFFSET}) + 1 AS next FROM {table} "
        f"WHERE {OFFSET} IS NOT NULL GROUP BY {TOPIC}, {PARTITION}"
    )
