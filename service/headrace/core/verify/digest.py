"""Digests of cells and rows, and their checksums per range of keys, which `headrace verify` compares instead of values.

Equal cells of one Arrow type have equal digests on both sides. Numbers are hashed column by column. Texts and bytes use
Python's keyed hash, so that digests are valid within one process only.

Each side is read once, in any order, and its rows are not kept. The ranges are ranges of the keys' digests rather than
of the keys: a database and a lake sort differently (collations, enums, numbers as text), but equal keys have equal
digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Digests = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9AE16A3B2F90404F)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_digests(columns: Sequence[pa.Array]) -> Digests:
    """Return a digest per row of at least one column; the order of the columns counts."""
    total = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = _mix(total + _STEP + cell_digests(column))
    return total


def cell_digests(column: pa.Array) -> Digests:
    """Return a digest per cell. Null differs from every value, NaN equals NaN, and maps have no order."""
    digests = _value_digests(column)
    if column.null_count:
        digests = np.where(np.asarray(column.is_null()), _NULL, digests)
    return digests


def _value_digests(column: pa.Array) -> Digests:
    kind = column.type
    if pa.types.is_floating(kind):
        numbers = np.array(column.cast(pa.float64()).fill_null(0.0), np.float64)
        numbers[np.isnan(numbers)] = np.nan  # one of the many bit patterns of NaN
        return _mix(numbers.view(np.uint64))
    if pa.types.is_decimal128(kind):
        words = np.frombuffer(column.buffers()[1], np.uint64, 2 * len(column), 16 * column.offset).reshape(-1, 2)
        return _mix(_mix(words[:, 0]) + words[:, 1])
    if pa.types.is_nested(kind):
        counted = type_with_counts(kind)  # as counts: Python's date and time types end at the year 9999
        cells = (column if counted == kind else column.cast(counted)).to_pylist()
        return _hash([None if cell is None else repr(_plain(kind, cell)) for cell in cells])
    if isinstance(column, pa.StringArray | pa.LargeStringArray | pa.BinaryArray | pa.LargeBinaryArray):
        return _hash(column.to_pylist())
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    counts = column.view(_count_type(column.type)) if pa.types.is_temporal(column.type) else column
    filled = counts.cast(pa.int64()).fill_null(0)
    return _mix(np.asarray(filled).view(np.uint64))


def _hash(cells: Sequence[object]) -> Digests:
    hashes = np.fromiter(map(hash, cells), np.int64, len(cells))
    return _mix(hashes.view(np.uint64))


def _count_type(arrow_type: pa.DataType) -> pa.DataType:
    return pa.int32() if arrow_type.bit_width == 32 else pa.int64()


def type_with_counts(arrow_type: pa.DataType) -> pa.DataType:
    """Return a type with integers instead of dates and times, also within it."""
    if pa.types.is_temporal(arrow_type):
        return _count_type(arrow_type)
    if pa.types.is_list(arrow_type):
        return pa.list_(type_with_counts(arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        return pa.map_(type_with_counts(arrow_type.key_type), type_with_counts(arrow_type.item_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([(member.name, type_with_counts(member.type)) for member in arrow_type])
    return arrow_type


def _plain(arrow_type: pa.DataType, cell: Any) -> Any:
    """Convert a nested cell to a form in which equal cells have equal texts."""
    if cell is None:
        return None
    if pa.types.is_map(arrow_type):
        return sorted((repr(key), repr(_plain(arrow_type.item_type, item))) for key, item in cell)
    if pa.types.is_list(arrow_type):
        return [_plain(arrow_type.value_type, item) for item in cell]
    if pa.types.is_struct(arrow_type):
        return [_plain(member.type, cell[member.name]) for member in arrow_type]
    return cell


def _mix(words: Digests) -> Digests:
    """Apply the finalizer of SplitMix64: every bit of a word affects every bit of its digest."""
    mixed: Digests = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


RANGES = 1024
_SHIFT = np.uint64(64 - 10)  # 2**10 ranges

Ints = npt.NDArray[np.int64]


class RangeChecksums:
    """The number of rows of each range, and the sum of their digests; rows arrive in any order, in any chunks."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(RANGES, np.int64)
        self.sums: Digests = np.zeros(RANGES, np.uint64)

    def add(self, keys: Digests, rows: Digests) -> None:
        """Add rows: the digests of their keys, and of all their cells."""
        ranges = range_of(keys)
        self.counts += np.bincount(ranges, minlength=RANGES)
        np.add.at(self.sums, ranges, rows)


def range_of(keys: Digests) -> Ints:
    return (keys >> _SHIFT).astype(np.int64)


def differing_ranges(source: RangeChecksums, lake: RangeChecksums) -> Ints:
    return np.flatnonzero((source.counts != lake.counts) | (source.sums != lake.sums))


def portions(ranges: Ints, source: RangeChecksums, lake: RangeChecksums, rows: int) -> Iterator[Ints]:
    """Split ``ranges`` into portions to compare at a time: at most ``rows`` rows of either side, or a single range."""
    sizes = np.maximum(source.counts, lake.counts)[ranges]
    begin = total = 0
    for index, size in enumerate(sizes.tolist()):
        if index > begin and total + size > rows:
            yield ranges[begin:index]
            begin, total = index, 0
        total += size
    if begin < len(ranges):
        yield ranges[begin:]


def find_unmatched(keys: Digests, rows: Digests, other_keys: Digests, other_rows: Digests) -> Ints:
    """Return the indexes of rows that the other side does not have with equal cells, or whose key is not unique."""
    pairs, others = _pairs(keys, rows), _pairs(other_keys, other_rows)
    distinct, counts = np.unique(keys, return_counts=True)
    twice = np.isin(keys, distinct[counts > 1])
    return np.flatnonzero(~np.isin(pairs, others) | twice)


def _pairs(keys: Digests, rows: Digests) -> npt.NDArray[np.void]:
    both = np.ascontiguousarray(np.stack([keys, rows], axis=1))
    return both.view([("key", np.uint64), ("row", np.uint64)]).ravel()
