"""Columns of inferred type become what their table has, and nulls of unknown columns are judged by the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.conform import conformed, resolve_untyped_nulls
from headrace.core.model.events import CellState, Changes, Column, TableId, Versions
from headrace.core.model.inference import infer_schema

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
def test_takes_the_tables_type(values: list[Any], known: pa.DataType) -> None:
    """What the batch does not tell comes from the table, and no value changes."""
    column = conformed(inferred(values), known)
    assert column is not None
    assert column.type == known
    assert column.to_pylist() == pa.array(values, known).to_pylist()


def test_names_of_numbers_that_json_lacks() -> None:
    """NaN and the infinities are text in JSON, and numbers where the table has numbers."""
    column = conformed(inferred(["Infinity", None, "-Infinity"]), pa.float64())
    assert column is not None
    assert column.to_pylist() == [float("inf"), None, float("-inf")]


@pytest.mark.parametrize(
    ("values", "known"),
    [(["text", "NaN"], pa.float64()), ([2**53 + 1], pa.float64()), ([{"x": "1"}], POINT), (["1"], pa.int64())],
)
def test_leaves_alone_what_does_not_fit(values: list[Any], known: pa.DataType) -> None:
    """Values that the table's type does not hold keep their own type, so that the table refuses them by name."""
    column = conformed(inferred(values), known)
    assert column is not None
    assert column.type != known
    assert column.to_pylist() == values


def test_a_struct_with_more_than_the_table_has() -> None:
    """The table's members come first, so that its evolution sees what to add; an untyped one is not added."""
    column = conformed(inferred([{"y": 1, "z": None, "srid": 7}]), POINT)
    assert column is not None
    assert column.type == pa.struct([*POINT, ("y", pa.int64())])
    assert column.to_pylist() == [{"x": None, "srid": 7, "y": 1}]


def test_new_columns_have_no_untyped_parts() -> None:
    """Without a table, null members are left out of structs, and a column of nothing but nulls disappears."""
    assert conformed(inferred([None]), None) is None
    assert conformed(inferred([[], [None]]), None) is None
    point = conformed(inferred([{"x": 1.5, "srid": None}]), None)
    assert point is not None
    assert point.to_pylist() == [{"x": 1.5}]


@pytest.mark.parametrize(
    ("known", "state"),
    [(pa.string(), CellState.NULL), (pa.list_(pa.string()), CellState.UNKNOWN), (None, CellState.UNKNOWN)],
)
def test_null_of_an_untyped_column(known: pa.DataType | None, state: CellState) -> None:
    """A null is believed where the table's column cannot hide an unchanged value, however the batch was cut."""
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
