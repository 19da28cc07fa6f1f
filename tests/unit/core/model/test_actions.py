"""Folded actions are completed and filtered between fold and merge."""

from __future__ import annotations

import numpy as np
from support.records.change_events import ABSENT, UNCHANGED, UNKNOWN, Event, changes, create, delete, update

from headrace.core.merge.fold import fold
from headrace.core.model.actions import (
    Actions,
    open_rows,
    with_nulls_for_absent_cells,
    with_nulls_for_open_cells,
    without_hollow_carries,
)
from headrace.core.model.events import CellState

YES, NO = np.array([True]), np.array([False])


def _states(actions: Actions) -> list[int]:
    """Return the states of column ``a``."""
    states = actions.columns[1].states
    assert states is not None
    return list(states.tolist())


def test_open_rows_are_new_images_with_open_cells() -> None:
    """An action with open cells is open if it is a new image or its row is not stored; a delete is never open."""
    assert open_rows(fold(changes(create(1, 10, a=UNCHANGED)))).tolist() == [True]
    kept = fold(changes(update(1, 10, a=UNKNOWN)))
    assert open_rows(kept).tolist() == [False]
    assert open_rows(kept, NO).tolist() == [True]
    assert open_rows(kept, YES).tolist() == [False]
    assert open_rows(fold(changes(delete(1, 10))), NO).tolist() == [False]


def test_open_cells_become_null_in_the_rows_that_are_named() -> None:
    """``reselect.unresolved.insert.mode=null`` makes open cells null in the given rows only."""
    actions = fold(changes(update(1, 10, a=UNCHANGED), update(2, 20, a=UNCHANGED)))
    assert _states(with_nulls_for_open_cells(actions, np.array([True, False]))) == [
        CellState.NULL,
        CellState.UNCHANGED,
    ]


def test_absent_columns_of_rows_that_are_not_stored_become_null() -> None:
    """An absent cell stays absent in an update and becomes null in an insert; open cells do not change."""
    actions = fold(changes(update(1, 10, a=ABSENT), update(2, 20, a=ABSENT), update(3, 30, a=UNCHANGED)))
    settled = with_nulls_for_absent_cells(actions, np.array([True, False, False]))
    assert _states(settled) == [CellState.ABSENT, CellState.NULL, CellState.UNCHANGED]


def test_cells_of_an_old_row_that_is_not_stored_are_open() -> None:
    """A cell that a key change takes from a row that is not stored becomes UNCHANGED, so that reselect may fill it."""
    into = Event(create(2, 21).operation, 2, 21, {"a": UNCHANGED}, old_key=1)
    actions = fold(changes(delete(1, 20, moved=True), into))
    assert without_hollow_carries(actions, np.array([True, False])) is actions
    hollow = without_hollow_carries(actions, np.array([False, False]))
    assert hollow.carried is None
    assert hollow.columns[1].states is not None
    assert hollow.columns[1].states[1] == CellState.UNCHANGED


def test_take_keeps_keys_cells_and_versions() -> None:
    """``take`` returns the chosen rows with their keys, values, states of cells and versions."""
    folded = fold(changes(update(1, 10, a=UNCHANGED), update(2, 20, a=5), update(3, 30, a=ABSENT)))
    actions = folded.take(np.array([2, 1]))
    assert actions.key.to_pylist() == ["=3", "=2"]
    assert actions.columns[1].values.to_pylist() == [None, 5]
    assert _states(actions) == [CellState.ABSENT, CellState.VALUE]
    assert [actions.version.row(index) for index in (0, 1)] == [folded.version.row(index) for index in (2, 1)]
