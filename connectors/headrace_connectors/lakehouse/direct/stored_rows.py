"""Reads stored rows without Spark: some by their location, or all rows of a file.

By location are read cells that a change keeps, and versions that decide whether it applies. Parquet has no access to
single rows: the chunks of the columns are read, of the row groups that contain the rows. A batch that needs too much of
that is declined, because Spark reads in parallel and not all at once.

Tests: ``tests/contracts/test_direct_commits.py``, ``tests/unit/lakehouse/direct/test_stored_rows.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headrace_connectors.lakehouse.direct.data_file import column_names, is_type
from headrace_connectors.lakehouse.failures import Declined

MOST_BYTES = 64 * 2**20
"""Of the chunks that are read from one file, uncompressed."""

ROWS_AT_ONCE = 1 << 17
"""Of a part of a file, whose row groups may be large."""

Ints = npt.NDArray[np.int64]
Columns = Mapping[str, tuple[Mapping[str, Any], pa.DataType]]
"""Columns by name: Iceberg's JSON of the column, and the type that its values shall have."""


def read_rows(parquet: pq.ParquetFile, rows: Ints, columns: Columns) -> pa.Table:
    """Return these columns of the rows at ``rows`` (positions in the file), in that order.

    The column of a file is found by its id: it may have been renamed. Cells of columns that were added later are null.
    Raises Declined if only Spark can read a column, or if there is too much to read.
    """
    in_file = _names_in(parquet, columns)
    sizes = [parquet.metadata.row_group(number).num_rows for number in range(parquet.num_row_groups)]
    ends = np.cumsum(sizes)
    groups, group_of = np.unique(np.searchsorted(ends, rows, side="right"), return_inverse=True)
    if _chunk_bytes(parquet, groups.tolist(), in_file.values()) > MOST_BYTES:
        raise Declined("stored cells are in large files")
    stored = parquet.read_row_groups(groups.tolist(), list(in_file.values()))
    group_begins = (ends - sizes)[groups]
    read_begins = np.cumsum([0, *(sizes[group] for group in groups[:-1])])
    index = pa.array(rows - group_begins[group_of] + read_begins[group_of])
    return _in_types_of(columns, stored.take(index), in_file, len(rows))


def live_rows(parquet: pq.ParquetFile, deleted: BitMap64, columns: Columns) -> Iterator[pa.Table]:
    """Yield these columns of the rows of a file that are not ``deleted``, in parts. Raises Declined."""
    in_file = _names_in(parquet, columns)
    gone, first = np.frombuffer(deleted.to_array(), np.uint64).astype(np.int64), 0
    for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=list(in_file.values())):
        rows, count = pa.Table.from_batches([batch]), len(batch)
        in_batch = gone[(gone >= first) & (gone < first + count)] - first
        if len(in_batch):
            live = np.ones(count, np.bool_)
            live[in_batch] = False
            rows = rows.filter(pa.array(live))
        yield _in_types_of(columns, rows, in_file, count - len(in_batch))
        first += count


def _names_in(parquet: pq.ParquetFile, columns: Columns) -> Mapping[str, str]:
    """Return the names that the columns have in a file, without those that were added later. Raises Declined."""
    names = column_names(parquet)
    in_file = {name: names[column["id"]] for name, (column, _) in columns.items() if column["id"] in names}
    for name, (column, _) in columns.items():
        if name not in in_file and column.get("initial-default") is not None:
            raise Declined("a file lacks a column that has a default")
    if any("." in name for name in in_file.values()):
        raise Declined("stored cells are in a column whose name contains a dot")
    return in_file


def _in_types_of(columns: Columns, stored: pa.Table, in_file: Mapping[str, str], count: int) -> pa.Table:
    """Return ``count`` rows of a file in these columns and their types. Raises Declined."""
    arrays = {}
    for name, (column, data_type) in columns.items():
        if name not in in_file:
            arrays[name] = pa.nulls(count, data_type)
            continue
        values = stored[in_file[name]]
        if not (is_type(column["type"], values.type) or _is_promoted(values.type, data_type)):
            raise Declined("stored cells have a type that only Spark converts")
        arrays[name] = values if values.type == data_type else values.cast(data_type)
    return pa.table(arrays)


def _chunk_bytes(parquet: pq.ParquetFile, groups: Sequence[int], names: Collection[str]) -> int:
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
