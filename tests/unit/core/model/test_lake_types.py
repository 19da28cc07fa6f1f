"""The names of lake types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.model.lake_types import type_name

POINT = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("data_type", "name"),
    [
        (pa.int32(), "INT"),
        (pa.timestamp("us"), "TIMESTAMP_NTZ"),
        (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
        (pa.decimal128(12, 2), "DECIMAL(12, 2)"),
        (pa.map_(pa.string(), POINT), "MAP<STRING, STRUCT<x: DOUBLE, tags: ARRAY<STRING>>>"),
    ],
)
def test_a_type_has_the_name_of_the_documentation(data_type: pa.DataType, name: str) -> None:
    """It is that of Spark SQL, also within other types."""
    assert type_name(data_type) == name


def test_names_of_members_may_be_quoted() -> None:
    """A statement needs that."""
    assert type_name(POINT, lambda name: f"`{name}`") == "STRUCT<`x`: DOUBLE, `tags`: ARRAY<STRING>>"


def test_a_type_that_no_lake_column_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        type_name(pa.int8())
