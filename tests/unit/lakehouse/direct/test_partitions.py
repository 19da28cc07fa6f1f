"""Partitions of direct commits, beside PyIceberg's transforms."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType, TimestampType

from headrace_connectors.lakehouse.direct.partitions import divide, transform

INTEGERS = st.integers(-(2**31), 2**31 - 1)
# PyIceberg computes with Python's dates: the years 1 to 9999.
DAYS = st.integers(-719_162, 2_932_896)
MICROSECONDS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
TYPES: dict[str, tuple[pa.DataType, IcebergType, st.SearchStrategy[Any], list[str]]] = {
    "int": (pa.int32(), IntegerType(), INTEGERS, ["identity", "bucket[16]", "truncate[10]"]),
    "long": (pa.int64(), LongType(), st.integers(-(2**63), 2**63 - 1), ["identity", "bucket[7]"]),
    "string": (pa.string(), StringType(), st.text(), ["identity", "bucket[16]", "truncate[2]"]),
    "date": (pa.date32(), DateType(), DAYS, ["identity", "bucket[16]", "year", "month", "day"]),
    "timestamp": (pa.timestamp("us"), TimestampType(), MICROSECONDS, ["bucket[16]", "year", "month", "day", "hour"]),
    "zoned": (pa.timestamp("us", tz="UTC"), TimestampType(), MICROSECONDS, ["bucket[16]", "year", "month", "day"]),
}
CASES = [(kind, name) for kind, (*_, names) in TYPES.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{name}-{kind}" for kind, name in CASES])
@given(data=st.data())
def test_transforms_are_icebergs(kind: str, name: str, data: st.DataObject) -> None:
    """Each value and null has the partition that PyIceberg computes."""
    data_type, iceberg_type, strategy, _ = TYPES[kind]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=5))
    array = pa.array(values, pa.string() if kind == "string" else pa.int64())
    if kind == "date":
        array = array.cast(pa.int32())
    expected = [parse_transform(name).transform(iceberg_type)(value) for value in values]
    assert transform(array.cast(data_type), name).to_pylist() == expected


def test_booleans_and_dropped_fields() -> None:
    """A dropped field of a spec remains as ``void``."""
    booleans = pa.array([True, None, False])
    assert transform(booleans, "identity").to_pylist() == [True, None, False]
    assert transform(booleans, "void").to_pylist() == [None, None, None]


def test_each_row_is_in_one_part() -> None:
    """Of all rows with the same values in all fields, null included."""
    rows = pa.table({"id": [1, 2, 3, 4, 5], "name": ["a", None, "a", "b", None], "day": pa.array([1, 1, 1, 1, 2])})
    fields = [{"source-id": 2, "transform": "identity"}, {"source-id": 3, "transform": "identity"}]
    parts = {partition: index.tolist() for partition, index in divide(rows, fields, {1: "id", 2: "name", 3: "day"})}
    assert parts == {("a", 1): [0, 2], (None, 1): [1], ("b", 1): [3], (None, 2): [4]}
    assert [(partition, len(index)) for partition, index in divide(rows, [], {})] == [((), 5)]
