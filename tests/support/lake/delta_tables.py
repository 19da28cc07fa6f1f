"""Read Delta tables without a JVM, with delta-rs, as another engine does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def delta_table(folder: Path) -> Any:
    """Return the newest version of the table in ``folder``, or None if there is no table."""
    from deltalake import DeltaTable  # late: most tests need no Delta reader

    return DeltaTable(str(folder)) if (folder / "_delta_log").exists() else None


def delta_rows(table: Any) -> pa.Table:
    """Return all rows and columns, in any order. Raises DeltaError if delta-rs does not support a table feature."""
    from deltalake import QueryBuilder  # late, as above

    rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))
    return rows.cast(pa.schema([(column.name, _plain(column.type)) for column in rows.schema]))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type as PySpark and PyIceberg name it."""
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(member.name, _plain(member.type)) for member in kind])
    return _VIEWS.get(kind, kind)
