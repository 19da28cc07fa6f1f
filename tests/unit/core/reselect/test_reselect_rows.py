"""The usable cells of a source's answer, read in one part or in several."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.rows import UNREADABLE, ReadRows, RowAnswer, RowRequest

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
