"""A history table has a row per event: unavailable cells are filled, and events that it contains are skipped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from support.records.change_events import changes, create, delete, tombstone, update

from headrace.core.merge.fold import fold
from headrace.core.merge.history import (
    changes_to_append,
    history,
    next_offsets,
    truncate_row,
    with_nulls_for_doubted_cells,
    without_last_resorts,
)
from headrace.core.model.events import UNVERSIONED, CellState, Column, Truncate

GONE, DOUBT = CellState.UNCHANGED, CellState.UNKNOWN


def test_an_event_takes_what_an_earlier_one_of_its_row_had() -> None:
    """An unavailable cell is filled from an earlier event of the same row, not from a later one or another row."""
    first, second = [update(1, 1, a=GONE), update(2, 2, a=2)], [update(1, 3, a=3), update(1, 4, a=GONE)]
    events = changes(*first, *second, update(2, 5, a=GONE))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [None, 2, 3, 3, 2]
    assert rows.unavailable.to_pylist() == [["a"], None, None, None, None]
    assert rows.operation.to_pylist() == ["u"] * 5


def test_an_event_takes_nothing_over_a_record_that_was_lost() -> None:
    """A cell that is unavailable after a lost record stays null and marked, because that record may have changed it."""
    events = changes(update(1, 1, a=1), update(1, 2, a=GONE), update(1, 4, a=GONE), update(1, 5, a=GONE))
    with_losses = replace(events, lost=np.array([2, 2, 3, 3]))
    rows = history(with_losses, without_last_resorts(fold(with_losses)))
    assert rows.columns[1].values.to_pylist() == [1, 1, None, None]
    assert rows.unavailable.to_pylist() == [None, None, ["a"], ["a"]]


def test_a_null_that_may_be_real_shows_no_older_value() -> None:
    """A doubtful null after a value is null and marked as unavailable, and so is a cell that is omitted after it."""
    events = changes(create(1, 1, a=1), update(1, 2, a=DOUBT), update(1, 3, a=GONE), update(1, 4, a=2))
    for rows in (history(events), history(events, without_last_resorts(fold(events)))):
        assert rows.columns[1].values.to_pylist() == [1, None, None, 2]
        assert rows.unavailable.to_pylist() == [None, ["a"], ["a"], None]


def test_a_null_behind_a_null_is_certain() -> None:
    """A doubtful null after a null is a null; a placeholder after them is marked as unavailable."""
    events = changes(create(1, 1, a=None), update(1, 2, a=DOUBT), update(1, 3, a=DOUBT), update(1, 4, a=GONE))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [None] * 4
    assert rows.unavailable.to_pylist() == [None, None, None, ["a"]]


def test_a_placeholder_that_was_cut_too_short_is_never_certain() -> None:
    """Under ``column.truncate.to.3.chars`` a text that may be the placeholder is unavailable, also after a null."""
    events = changes(create(1, 1, a=None), update(1, 2, a=DOUBT))
    key, column = events.columns
    cut = replace(column, schema=replace(column.schema, parameters=(("truncateLength", "3"),)))
    rows = history(replace(events, columns=(key, cut)))
    assert rows.unavailable.to_pylist() == [None, ["a"]]


def test_a_tombstone_that_was_sent_twice_is_a_row_once() -> None:
    """The first one repeats its delete. The second one is a delete without a position, as in a batch of its own."""
    events = changes(
        create(1, 1, a=1), delete(1, 2), tombstone(1), tombstone(1), create(1, 3, a=2), update(1, 4, a=GONE)
    )
    for rows in (history(events), history(events, without_last_resorts(fold(events)))):
        assert rows.operation.to_pylist() == ["c", "d", "d", "c", "u"]
        assert rows.columns[1].values.to_pylist() == [1, None, None, 2, 2]


def test_mode_null_stores_doubtful_nulls() -> None:
    """``reselect.unknown.null.mode=null`` stores every doubtful null as a null that is not marked as unavailable."""
    events = with_nulls_for_doubted_cells(changes(create(1, 1, a=1), update(1, 2, a=DOUBT), update(1, 3, a=DOUBT)))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [1, None, None]
    assert rows.unavailable.to_pylist() == [None, None, None]


def test_a_late_event_takes_nothing_from_a_newer_one() -> None:
    """An older event of another partition that arrives late is not filled from a newer event that arrived before it."""
    late = replace(update(1, 3, a=GONE), partition=1)
    rows = history(changes(update(1, 5, a=5), late, update(1, 6, a=GONE), update(1, 7, a=7), update(1, 8, a=GONE)))
    assert rows.columns[1].values.to_pylist() == [5, None, None, 7, 7]
    assert rows.unavailable.to_pylist() == [None, ["a"], ["a"], None, None]


def test_events_before_an_insert_or_delete_supply_nothing() -> None:
    """An insert, and an update after it, are not filled from events before the delete."""
    events = changes(create(1, 1, a=1), delete(1, 2), tombstone(1), create(1, 3, a=GONE), update(1, 4, a=GONE))
    rows = history(events)
    assert rows.operation.to_pylist() == ["c", "d", "c", "u"]
    assert rows.unavailable.to_pylist() == [None, None, ["a"], ["a"]]


def test_reselect_fills_the_last_event_of_a_row() -> None:
    """A value that reselect read fills the last event of a row and no earlier one."""
    events = changes(update(1, 1, a=GONE), update(1, 2, a=GONE), update(2, 3, a=GONE))
    last = fold(events)
    resolved = [replace(last.columns[1], values=pa.array([7, None], pa.int64()), states=np.array([0, 2], np.uint8))]
    rows = history(events, replace(last, columns=(last.columns[0], *resolved)))
    assert rows.columns[1].values.to_pylist() == [None, 7, None]
    assert rows.unavailable.to_pylist() == [["a"], None, ["a"]]


def test_a_column_that_an_event_does_not_have_is_null() -> None:
    """A column that an event does not have is null and is not marked as unavailable."""
    events = changes(update(1, 1, a=1), update(1, 2, a=CellState.ABSENT))
    rows = history(events)
    assert rows.columns[1].values.to_pylist() == [1, None]
    assert rows.unavailable.to_pylist() == [None, None]


def test_events_that_are_in_the_table_already() -> None:
    """``unread`` skips events below the stored next offset of their own topic and partition."""
    events = changes(update(1, 1, a=1), update(1, 2, a=2), update(1, 3, a=3))
    topic = events.version.topic
    first = int(events.version.offset[0])
    assert len(changes_to_append(events, {(topic, 0): first + 2})) == 1
    assert changes_to_append(events, {(topic, 1): 99, ("other", 0): 99}) is events
    assert next_offsets(events.version) == {(topic, 0): first + 3}


def test_a_truncate_is_a_row_once() -> None:
    """A truncate is one row, which is skipped if the table contains its offset."""
    truncate = Truncate(changes(update(1, 1, a=1)).table, replace(UNVERSIONED, topic="t", partition=0, offset=5))
    assert truncate_row(truncate, {}).operation.to_pylist() == ["t"]
    assert len(truncate_row(truncate, {("t", 0): 6})) == 0


CELLS = st.sampled_from([1, 2, None, GONE, DOUBT])


@given(st.lists(st.tuples(st.sampled_from("cud"), st.integers(1, 2), CELLS), min_size=1, max_size=12))
def test_a_walk_event_by_event_gives_the_same(plan: list[tuple[str, int, object]]) -> None:
    """The vectorized fill equals a fill event by event with a dict."""
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
