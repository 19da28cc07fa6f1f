"""Requests for rows of the source, their answers, and the size of a SELECT."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.rows import (
    FIRST_GUESS,
    MOST,
    UNREADABLE,
    ReadRows,
    RowAnswer,
    RowRequest,
    SelectSize,
    value_bytes,
)

INTEGER = Schema("int32", optional=True)
FITS = (1, None)
DOES_NOT_FIT = (UNREADABLE, "text", 2**40)


@st.composite
def answers(draw: st.DrawFn) -> tuple[RowRequest, RowAnswer]:
    """Draw a request of one column, and an answer with values that fit or do not fit and rows that are missing."""
    values = draw(st.lists(st.sampled_from((*FITS, *DOES_NOT_FIT)), min_size=1, max_size=8))
    flags = st.lists(st.booleans(), min_size=len(values), max_size=len(values))
    found, needs = (np.array(draw(flags), np.bool_) for _ in range(2))
    key = Column("id", INTEGER, pa.array(range(len(values)), pa.int32()))
    cells = Column("n", INTEGER, pa.array([], pa.int32()))
    unknown = np.full(len(values), -1, np.int64)
    request = RowRequest(TableId("s", "d", "public", "t"), (key,), (cells,), needs.reshape(-1, 1), unknown)
    return request, RowAnswer(found, (values,))


@given(answers())
def test_requested_cells_that_exist_and_fit_are_usable(case: tuple[RowRequest, RowAnswer]) -> None:
    """``ReadRows`` contains the requested cells of existing rows whose values fit, and counts those that do not fit."""
    request, answer = case
    [cells] = ReadRows.of(request, answer).columns
    wanted = [place for place in range(len(request)) if answer.found[place] and request.needs[place, 0]]
    expected = {place: answer.values[0][place] for place in wanted if answer.values[0][place] in FITS}
    assert dict(zip(cells.places.tolist(), cells.values.to_pylist(), strict=True)) == expected
    assert cells.unreadable == len(wanted) - len(expected)


@given(answers(), st.integers(1, 8))
def test_parts_make_the_whole(case: tuple[RowRequest, RowAnswer], size: int) -> None:
    """Joined parts equal the complete answer, for any number of rows per SELECT."""
    request, answer = case
    parts = []
    for begin in range(0, len(request), size):
        part = RowAnswer(answer.found[begin : begin + size], (answer.values[0][begin : begin + size],), begin > 0)
        parts.append(ReadRows.of(request.slice(begin, begin + size), part))
    joined, whole = ReadRows.joined(parts), ReadRows.of(request, answer)
    assert joined.found.tolist() == whole.found.tolist()
    assert joined.columns[0].places.tolist() == whole.columns[0].places.tolist()
    assert joined.columns[0].values.equals(whole.columns[0].values)
    assert joined.columns[0].unreadable == whole.columns[0].unreadable
    assert not joined.proven, "one part that is not proven makes the complete answer unproven"


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
