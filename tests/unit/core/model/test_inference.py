"""``infer_schema`` finds types for JSON without schemas."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.errors import BadRecord
from headrace.core.model.inference import infer_schema


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
