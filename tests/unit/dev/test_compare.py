"""The comparison of the demo finds every kind of difference between the database and the lake."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace_dev.demo.compare import differences

ROW = {"id": 1, "amount": Decimal("1.50"), "text": None}
OTHER = {"id": 2, "amount": None, "text": "x"}


def found(lake: list[dict[str, Any]]) -> list[str]:
    """Return the differences between a database with ROW and OTHER and the rows of ``lake``."""
    return [str(difference) for difference in differences("t", ["id"], [ROW, OTHER], lake)]


def test_equal_tables_have_no_difference() -> None:
    """The order of rows does not matter."""
    assert found([OTHER, ROW]) == []


@pytest.mark.parametrize(
    ("lake", "text"),
    [
        ([ROW], "t 2: only in the database"),
        ([ROW, OTHER, OTHER], "t 2: only in the lake, twice"),
        ([ROW, OTHER, {**ROW, "id": 3}], "t 3: only in the lake"),
        ([ROW, {**OTHER, "text": "y", "amount": Decimal(0)}], "t 2: amount, text differ"),
        ([ROW, {**OTHER, "text": None}], "t 2: text differ"),
        ([{**ROW, "amount": 1.5}, OTHER], "t 1: amount differ"),
        ([{"id": 1, "amount": ROW["amount"]}, OTHER], "t 1: text differ"),
        ([{**ROW, "more": None}, OTHER], "t 1: more differ"),
    ],
    ids=["lost", "twice", "left over", "wrong cells", "nulled", "wrong type", "column missing", "column too many"],
)
def test_a_difference_is_reported(lake: list[dict[str, Any]], text: str) -> None:
    """The text of a difference has table, key and columns, and no values."""
    assert found(lake) == [text]
