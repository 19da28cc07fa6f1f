"""The demo's comparison finds every kind of difference: a proof that it would not pass a wrong lake."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from headrace_dev.demo.compare import differences

ROW = {"id": 1, "amount": Decimal("1.50"), "text": None}
OTHER = {"id": 2, "amount": None, "text": "x"}


def found(lake: list[dict[str, Any]]) -> list[str]:
    """What is said when the database holds ROW and OTHER and the lake holds ``lake``."""
    return [str(difference) for difference in differences("t", ["id"], [ROW, OTHER], lake)]


def test_equal_tables_have_no_difference() -> None:
    """The order of rows does not matter."""
    assert found([OTHER, ROW]) == []


@pytest.mark.parametrize(
    ("lake", "said"),
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
def test_a_difference_is_named(lake: list[dict[str, Any]], said: str) -> None:
    """Table, key and columns of what is not equal are told, and nothing else is."""
    assert found(lake) == [said]
