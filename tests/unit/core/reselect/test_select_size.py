"""``SelectSize`` limits how many rows one SELECT reads."""

from __future__ import annotations

import pytest

from headrace.core.reselect.select_size import FIRST_GUESS, MOST, SelectSize, value_bytes


def test_keys_are_the_bound_of_small_rows() -> None:
    """``max.keys`` limits a SELECT of small rows, also before the first answer, with the default of 64 MiB."""
    size = SelectSize(1000, 64 << 20)
    assert size.rows() == 1000
    size.learn(2, [["ab", "cd"], [None, 1]])
    assert size.rows() == 1000


def test_bytes_are_the_bound_of_large_rows() -> None:
    """The size of the last answer's rows limits the next SELECT; a row above the byte limit is read alone."""
    size = SelectSize(1000, 10 * FIRST_GUESS)
    assert size.rows() == 10
    size.learn(4, [["x" * FIRST_GUESS * 5] * 4])
    assert size.rows() == 2
    size.learn(1, [["x" * FIRST_GUESS * 50]])
    assert size.rows() == 1
    size.learn(0, [])
    assert size.rows() == 1


def test_time_outs_are_the_bound_of_slow_tables() -> None:
    """A time-out halves the number of rows, down to one; requests that succeed raise it step by step."""
    size = SelectSize(20, 64 << 20)
    size.timed_out(20)
    assert size.rows() == 10
    size.answered()
    assert size.rows() == 10, "the request that had the time-out does not raise it"
    size.answered()
    assert size.rows() == 11
    size.timed_out(3)
    size.timed_out(1)
    assert size.rows() == 1
    for _ in range(30):
        size.answered()
    assert size.rows() == 20


@pytest.mark.parametrize(
    ("value", "expected"), [("abc", 3), (b"ab", 2), (None, 8), (5, 8), (["a", "bc"], 3), ({"k": ["abc"]}, 4)]
)
def test_bytes_of_values(value: object, expected: int) -> None:
    """``value_bytes`` is the length of texts and bytes, the sum of items and members, and 8 for other values."""
    assert value_bytes(value) == expected


def test_rows_of_known_size_are_limited_to_an_arrow_column() -> None:
    """When the size of rows is known, a SELECT reads no more rows than fit into an Arrow column."""
    size = SelectSize(100_000, 1 << 40)
    assert size.rows() == 100_000
    size.learn(1, [["x" * 1_000_000]])
    assert size.rows() == MOST // 1_000_000
