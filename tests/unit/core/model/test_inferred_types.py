"""Types for JSON without schemas are inferred from values, and converted to the types of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.arrow_columns import arrow_type, build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import CellState, Changes, Column, TableId, Versions
from headrace.core.model.inferred_types import (
    common_inferred_schema,
    infer_schema,
    resolve_untyped_nulls,
    to_table_type,
)


@pytest.mark.parametrize(
    ("values", "arrow_name"),
    [
        ([1, None], "int64"),
        ([1, 1.5], "double"),
        ([1.5, "NaN", "Infinity"], "double"),
        (["NaN", "text"], "string"),
        (["NaN"], "string"),
        ([True, None], "bool"),
        ([None, None], "null"),
        ([[1], [], None], "list<item: int64>"),
        ([["NaN"], [1.5]], "list<item: double>"),
        ([{"x": 1}, {"y": "a"}], "struct<x: int64, y: string>"),
    ],
)
def test_the_narrowest_type_that_holds_all(values: list[Any], arrow_name: str) -> None:
    """``infer_schema`` returns the narrowest type that holds all values."""
    assert str(arrow_type(infer_schema(values))) == arrow_name


JSON_VALUES = st.recursive(
    st.sampled_from([None, True, 1, 1.5, "a", "NaN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
    max_leaves=4,
)


@given(st.lists(JSON_VALUES, max_size=3), st.lists(JSON_VALUES, max_size=3))
def test_a_common_schema_is_that_of_all_values(left: list[Any], right: list[Any]) -> None:
    """``common_inferred_schema`` returns the schema of all values, or None."""
    try:
        common = common_inferred_schema(infer_schema(left), infer_schema(right))
    except BadRecord:
        return
    assert common is None or common == infer_schema([*left, *right])


def test_nulls_and_numbers_have_a_common_schema_without_their_values() -> None:
    """Nulls and numbers have a common schema, whatever their values are; text and numbers have none."""
    null, integer, real, text = (infer_schema([value]) for value in (None, 1, 1.5, "NaN"))
    assert common_inferred_schema(null, integer) == common_inferred_schema(integer, null) == integer
    assert common_inferred_schema(integer, real) == common_inferred_schema(real, integer) == real
    assert common_inferred_schema(text, real) is None


def test_a_value_of_another_kind_is_a_bad_record() -> None:
    """A value of another type is a bad record with its index; the message does not contain the value."""
    with pytest.raises(BadRecord) as caught:
        infer_schema([1, 2, "secret"])
    assert caught.value.index == 2
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", [["a", 1], {"x": ["a", 1]}, [["a"], [1]], ["a"] * 9 + [1]])
def test_a_contradiction_within_a_value_is_a_bad_record(value: Any) -> None:
    """A contradiction within one value, at any depth, is a bad record at that value's index."""
    like: Any = {"x": ["a"]} if isinstance(value, dict) else value[:1]
    with pytest.raises(BadRecord) as caught:
        infer_schema([like, like, value])
    assert caught.value.index == 2


def test_a_value_that_is_nested_too_deeply_is_a_bad_record() -> None:
    """A value that is nested as deeply as the JSON parser allows is a bad record, not a RecursionError."""
    value: Any = []
    for _ in range(900):
        value = [value]
    with pytest.raises(BadRecord) as caught:
        infer_schema([[], value])
    assert caught.value.index == 1


POINT = pa.struct([("x", pa.float64()), ("srid", pa.int64())])


def inferred(values: list[Any]) -> pa.Array:
    return build_array(infer_schema(values), values)


@pytest.mark.parametrize(
    ("values", "known"),
    [
        ([None, None], pa.list_(pa.string())),
        ([[], [None], None], pa.list_(pa.int64())),
        ([{"x": 1.5, "srid": None}, None], POINT),
        ([{"x": 1.5}], POINT),
        ([[{"x": 2.0, "srid": None}], []], pa.list_(POINT)),
        ([1, None], pa.float64()),
    ],
)
def test_a_column_takes_the_tables_type(values: list[Any], known: pa.DataType) -> None:
    """A column takes the table's type where inference lacks information, and no value changes."""
    column = to_table_type(inferred(values), known)
    assert column is not None
    assert column.type == known
    assert column.to_pylist() == pa.array(values, known).to_pylist()


def test_names_of_numbers_that_json_lacks() -> None:
    """The texts NaN, Infinity and -Infinity become numbers if the table's column is a float column."""
    column = to_table_type(inferred(["Infinity", None, "-Infinity"]), pa.float64())
    assert column is not None
    assert column.to_pylist() == [float("inf"), None, float("-inf")]


@pytest.mark.parametrize(
    ("values", "known"),
    [(["text", "NaN"], pa.float64()), ([2**53 + 1], pa.float64()), ([{"x": "1"}], POINT), (["1"], pa.int64())],
)
def test_values_that_do_not_fit_keep_their_type(values: list[Any], known: pa.DataType) -> None:
    """Values that the table's type cannot hold keep their inferred type, so that the table refuses the column."""
    column = to_table_type(inferred(values), known)
    assert column is not None
    assert column.type != known
    assert column.to_pylist() == values


def test_a_struct_with_more_than_the_table_has() -> None:
    """A struct has the table's members first and then its new typed members; untyped new members are dropped."""
    column = to_table_type(inferred([{"y": 1, "z": None, "srid": 7}]), POINT)
    assert column is not None
    assert column.type == pa.struct([*POINT, ("y", pa.int64())])
    assert column.to_pylist() == [{"x": None, "srid": 7, "y": 1}]


def test_new_columns_have_no_untyped_parts() -> None:
    """In a new table, struct members with only nulls are dropped, and so are columns with only nulls."""
    assert to_table_type(inferred([None]), None) is None
    assert to_table_type(inferred([[], [None]]), None) is None
    point = to_table_type(inferred([{"x": 1.5, "srid": None}]), None)
    assert point is not None
    assert point.to_pylist() == [{"x": 1.5}]


@pytest.mark.parametrize(
    ("known", "state"),
    [(pa.string(), CellState.NULL), (pa.list_(pa.string()), CellState.UNKNOWN), (None, CellState.UNKNOWN)],
)
def test_null_of_an_untyped_column(known: pa.DataType | None, state: CellState) -> None:
    """An untyped null is a null if the table's column type cannot have an unavailable value, and else stays unknown."""
    stored = None if known is None else pa.schema([("a", known)])
    column = Column("a", infer_schema([None]), pa.nulls(1), np.array([CellState.UNKNOWN], np.uint8))
    [judged] = resolve_untyped_nulls(_changes(column), stored).columns
    assert judged.states is not None
    assert judged.states.tolist() == [state]


def _changes(column: Column) -> Changes:
    zero = np.zeros(1, np.int64)
    version = Versions("topic", np.array([b""]), zero.astype(np.int32), zero, zero)
    key = pa.array(["=1"])
    return Changes(TableId("", "", "", "t"), ("id",), zero.astype(np.uint8), key, version, zero, (column,))
