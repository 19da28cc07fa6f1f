"""Reads stored rows by their location: cells that a change keeps, and versions that decide whether it applies.

Parquet has no access to single rows: the chunks of the columns are read, of the row groups that contain the rows. A
batch that needs too much of that is declined, because Spark reads in parallel and not all at once.

Tests: ``tests/contracts/test_direct_commits.py``, ``tests/unit/lakehouse/direct/test_stored_rows.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace_connectors.lakehouse.direct.data_file import column_names, is_type
from headrace_connectors.lakehouse.table_format import Declined

MOST_BYTES = 64 * 2**20
"""Of the chunks that are read from one file, uncompressed."""

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, tuple[Mapping[str, Any], pa.DataType]]
"""Columns by name: Iceberg's JSON of the column, and the type that its values shall have."""


def read_rows(parquet: pq.ParquetFile, rows: Ints, columns: Columns) -> pa.Table:
    """Return these columns of the rows at ``rows`` (positions in the file), in that order.

    The column of a file is found by its id: it may have been renamed. Cells of columns that were added later are null.
    Raises Declined if only Spark can read a column, or if there is too much to read.
    """
    names = column_names(parquet)
    in_file = {name: names.get(column["id"]) for name, (column, _) in columns.items()}
    for name, (column, _) in columns.items():
        if in_file[name] is None and column.get("initial-default") is not None:
            raise Declined("a file lacks a column that has a default")
    wanted = [name for name in in_file.values() if name is not None]
    if any("." in name for name in wanted):
        raise Declined("stored cells are in a column whose name contains a dot")

    sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    ends = np.cumsum(sizes)
    groups, group_of = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
    if _chunk_bytes(parquet, groups.tolist(), wanted) > MOST_BYTES:
        raise Declined("stored cells are in large files")
    stored = parquet.read_row_groups(groups.tolist(), wanted)
    group_begins = (ends - sizes)[groups]
    read_begins = np.cumsum([0, *(sizes[group] for group in groups[:-1])])
    index = pa.array(rows - group_begins[group_of] + read_begins[group_of])
    arrays = {}
    for name, (column, data_type) in columns.items():
        if (source := in_file[name]) is None:
            arrays[name] = pa.nulls(len(rows), data_type)
            continue
        values = stored[source].combine_chunks().take(index)
        if not (is_type(column["type"], values.type) or _is_promoted(values.type, data_type)):
            raise Declined("stored cells have a type that only Spark converts")
        arrays[name] = values if values.type == data_type else values.cast(data_type)
    return pa.table(arrays)


def _chunk_bytes(parquet: pq.ParquetFile, groups: Sequence[int], names: Sequence[str]) -> int:
    columns = [
        number
        for number in range(parquet.metadata.num_columns)
        if parquet.schema.column(number).path.split(".")[0] in names
    ]
    chunks = (parquet.metadata.row_group(group).column(column) for group in groups for column in columns)
    return int(sum(chunk.total_uncompressed_size for chunk in chunks))


def _is_promoted(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a file is from before its column was widened (https://iceberg.apache.org/spec/#schema-evolution)."""
    if pa.types.is_decimal128(old) and pa.types.is_decimal128(new):
        return bool(old.scale == new.scale and old.precision < new.precision)
    return (old, new) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
