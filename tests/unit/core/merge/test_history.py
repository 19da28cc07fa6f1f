"""Every event a row: what is filled into cells that were left out, and which events are in a table already."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from change_events import changes, create, delete, tombstone, update
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.merge.fold import fold
from headrace.core.merge.history import (
    history,
    next_offsets,
    truncated,
    unread,
    with_nulls_for_doubted_cells,
    without_last_resorts,
)
from headrace.core.model.events import CellState, Column, Truncate
from headrace.core.model.ranking import UNVERSIONED

GONE, DOUBT = CellState.UNCHANGED, CellState.UNKNOWN


def test_an_event_takes_what_an_earlier_one_of_its_row_had() -> None:
    """Not what a later one has, nor one of another row."""
    first, second = [update(1, 1, a=GONE), update(2, 2, a=2)], [update(1, 3, a=3), update(1, 4, a=GONE)]
    events = changes(*first, *second, update(2, 5, a=GONE))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [None, 2, 3, 3, 2]
    assert rows.unavailable.to_pylist() == [["a"], None, None, None, None]
    assert rows.operation.to_pylist() == ["u"] * 5


def test_an_event_takes_nothing_over_a_record_that_was_lost() -> None:
    """Whatever the lost one has changed is unknown from then on; what stood before is no last resort either."""
    events = changes(update(1, 1, a=1), update(1, 2, a=GONE), update(1, 4, a=GONE), update(1, 5, a=GONE))
    told = replace(events, lost=np.array([2, 2, 3, 3]))
    rows = history(told, without_last_resorts(fold(told)))
    assert rows.columns[1].values.to_pylist() == [1, 1, None, None]
    assert rows.unavailable.to_pylist() == [None, None, ["a"], ["a"]]


def test_a_null_that_may_be_real_shows_no_older_value() -> None:
    """It is null and marked; so is what an event omits behind it, since nobody knows whether the value was removed."""
    events = changes(create(1, 1, a=1), update(1, 2, a=DOUBT), update(1, 3, a=GONE), update(1, 4, a=2))
    for rows in (history(events), history(events, without_last_resorts(fold(events)))):
        assert rows.columns[1].values.to_pylist() == [1, None, None, 2]
        assert rows.unavailable.to_pylist() == [None, ["a"], ["a"], None]


def test_a_null_behind_a_null_is_certain() -> None:
    """Whether it is real or stands for an unchanged value, it is null; a placeholder there contradicts it."""
    events = changes(create(1, 1, a=None), update(1, 2, a=DOUBT), update(1, 3, a=DOUBT), update(1, 4, a=GONE))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [None] * 4
    assert rows.unavailable.to_pylist() == [None, None, None, ["a"]]


def test_a_placeholder_that_was_cut_too_short_is_never_certain() -> None:
    """``column.truncate.to.3.chars``: the text may be a value, also behind a null."""
    events = changes(create(1, 1, a=None), update(1, 2, a=DOUBT))
    key, column = events.columns
    cut = replace(column, schema=replace(column.schema, parameters=(("truncateLength", "3"),)))
    rows = history(replace(events, columns=(key, cut)))
    assert rows.unavailable.to_pylist() == [None, ["a"]]


def test_operator_says_that_nulls_are_real() -> None:
    """``reselect.unknown.null.mode=null``: every such null is one, and what is omitted behind it contradicts it."""
    events = with_nulls_for_doubted_cells(changes(create(1, 1, a=1), update(1, 2, a=DOUBT), update(1, 3, a=DOUBT)))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [1, None, None]
    assert rows.unavailable.to_pylist() == [None, None, None]


def test_a_late_event_takes_nothing_from_a_newer_one() -> None:
    """Another partition may bring an event of before: what arrived earlier is not what stood there then."""
    late = replace(update(1, 3, a=GONE), partition=1)
    rows = history(changes(update(1, 5, a=5), late, update(1, 6, a=GONE), update(1, 7, a=7), update(1, 8, a=GONE)))
    assert rows.columns[1].values.to_pylist() == [5, None, None, 7, 7]
    assert rows.unavailable.to_pylist() == [None, ["a"], ["a"], None, None]


def test_another_life_of_a_row_says_nothing() -> None:
    """A new image, and what comes after a delete, take nothing from before."""
    events = changes(create(1, 1, a=1), delete(1, 2), tombstone(1), create(1, 3, a=GONE), update(1, 4, a=GONE))
    rows = history(events)
    assert rows.operation.to_pylist() == ["c", "d", "c", "u"]
    assert rows.unavailable.to_pylist() == [None, None, ["a"], ["a"]]


def test_reselect_speaks_for_the_last_event_of_a_row() -> None:
    """What it has read is not what the row was at an earlier one."""
    events = changes(update(1, 1, a=GONE), update(1, 2, a=GONE), update(2, 3, a=GONE))
    last = fold(events)
    resolved = [replace(last.columns[1], values=pa.array([7, None], pa.int64()), states=np.array([0, 2], np.uint8))]
    rows = history(events, replace(last, columns=(last.columns[0], *resolved)))
    assert rows.columns[1].values.to_pylist() == [None, 7, None]
    assert rows.unavailable.to_pylist() == [["a"], None, ["a"]]


def test_a_column_that_an_event_does_not_have() -> None:
    """It is null, and nothing is missing."""
    events = changes(update(1, 1, a=1), update(1, 2, a=CellState.ABSENT))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [1, None]
    assert rows.unavailable.to_pylist() == [None, None]


def test_events_that_are_in_the_table_already() -> None:
    """Below the next offset of their own partition and topic; others are not touched."""
    events = changes(update(1, 1, a=1), update(1, 2, a=2), update(1, 3, a=3))
    topic = events.version.topic
    first = int(events.version.offset[0])
    assert len(unread(events, {(topic, 0): first + 2})) == 1
    assert unread(events, {(topic, 1): 99, ("other", 0): 99}) is events
    assert next_offsets(events.version) == {(topic, 0): first + 3}


def test_a_truncate_is_a_row_once() -> None:
    """It is known by its offset like any event."""
    truncate = Truncate(changes(update(1, 1, a=1)).table, replace(UNVERSIONED, topic="t", partition=0, offset=5))
    assert truncated(truncate, {}).operation.to_pylist() == ["t"]
    assert len(truncated(truncate, {("t", 0): 6})) == 0


CELLS = st.sampled_from([1, 2, None, GONE, DOUBT])


@given(st.lists(st.tuples(st.sampled_from("cud"), st.integers(1, 2), CELLS), min_size=1, max_size=12))
def test_a_walk_event_by_event_gives_the_same(plan: list[tuple[str, int, object]]) -> None:
    """The columns' searches against a dict that is kept up to date."""
    events, expected, rows = [], [], {}
    for number, (what, key, cell) in enumerate(plan, start=1):
        if what == "d":
            events.append(delete(key, number))
            rows.pop(key, None)
            expected.append((None, None))
            continue
        events.append((create if what == "c" else update)(key, number, a=cell))  # type: ignore[arg-type] # a Cell
        if what == "c":
            rows.pop(key, None)
        if not isinstance(cell, CellState):
            rows[key] = cell
        elif (cell is DOUBT) == (rows.get(key, cell) is not None):  # a value or a null is contradicted
            rows.pop(key, None)
        expected.append((rows.get(key), None if key in rows else ["a"]))
    found = history(changes(*events))
    column = next((column for column in found.columns if column.name == "a"), Column("a", None, None))  # type: ignore[arg-type] # unused
    assert list(zip(column.values.to_pylist(), found.unavailable.to_pylist(), strict=True)) == expected
