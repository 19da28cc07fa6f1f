"""The partitions of rows, as Iceberg's transforms compute them. Pure.

The source of the rules is https://iceberg.apache.org/spec/#partition-transforms. Values are those of Iceberg's Java
classes: a date is its days since 1970, a timestamp its microseconds. Tables with partition columns of other types are
refused before (``DirectTable.java``).

Tests: ``tests/unit/lakehouse/direct/test_partitions.py``, ``tests/contracts/test_direct_commits.py``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Partition: TypeAlias = tuple[int | str | bool | None, ...]
"""A value per field of the partition spec; () in a table without partitions."""

_SIZED = re.compile(r"(bucket|truncate)\[(\d+)\]")
_UNITS = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
"""Of numpy's dates, which count from 1970 as well."""
_POSITIVE = 0x7FFFFFFF


def divide(
    rows: pa.Table, fields: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> Iterator[tuple[Partition, Ints]]:
    """Yield the partitions of ``rows``, each with the indexes of its rows.

    ``fields`` are those of the partition spec as Iceberg's JSON, ``names`` the table's columns by their ids.
    """
    if not fields:
        yield (), np.arange(len(rows))
        return
    columns = []
    codes = np.zeros(len(rows), np.int64)
    for field in fields:
        values = rows[names[field["source-id"]]].combine_chunks()
        column = transform(values, field["transform"]).dictionary_encode("encode")
        # Numbered anew after each field, so that many fields with many values do not exceed 64 bits.
        codes = np.unique(codes * len(column.dictionary) + column.indices.to_numpy(), return_inverse=True)[1]
        columns.append(column)
    _, first = np.unique(codes, return_index=True)
    for code, row in enumerate(first.tolist()):
        yield tuple(column[row].as_py() for column in columns), np.flatnonzero(codes == code)


def transform(values: pa.Array, name: str) -> pa.Array:
    """Return the value of a transform, in Iceberg's JSON ("day", "bucket[16]"), of each value. Null is null."""
    if name in _UNITS:
        is_date = pa.types.is_date(values.type)
        numbers = _integers(values).fill_null(0).to_numpy()
        dates = numbers.astype("M8[D]" if is_date else "M8[us]").astype(f"M8[{_UNITS[name]}]")
        return pa.array(dates.astype(np.int64), mask=values.is_null().to_numpy(zero_copy_only=False))
    if not pa.types.is_string(values.type) and not pa.types.is_boolean(values.type):
        values = _integers(values)
    if name == "identity":
        return values
    if name == "void":
        return pa.nulls(len(values), values.type)
    sized = _SIZED.fullmatch(name)
    if sized is None:
        raise ValueError(f"unknown transform {name!r}")
    return _bucket(values, int(sized[2])) if sized[1] == "bucket" else _truncate(values, int(sized[2]))


def _integers(values: pa.Array) -> pa.Array:
    """Return dates as days and timestamps as microseconds; integers as they are."""
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return values.cast(pa.int64())


def _bucket(values: pa.Array, count: int) -> pa.Array:
    """Hash the UTF-8 of a text, or the eight bytes of a number, the lowest first."""
    if pa.types.is_integer(values.type):
        hashes = (None if value is None else mmh3.hash(struct.pack("<q", value)) for value in values.to_pylist())
    else:
        hashes = (None if value is None else mmh3.hash(value) for value in values.to_pylist())
    return pa.array([None if value is None else (value & _POSITIVE) % count for value in hashes], pa.int64())


def _truncate(values: pa.Array, width: int) -> pa.Array:
    if pa.types.is_string(values.type):
        return pc.utf8_slice_codeunits(values, 0, width)
    numbers = values.fill_null(0).to_numpy()
    return pa.array(numbers - numbers % width, mask=values.is_null().to_numpy(zero_copy_only=False))
