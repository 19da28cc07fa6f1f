"""Properties of folded actions, and changes to them between fold and merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.fold import OPEN
from headrace.core.model.events import NO_POSITION, Actions, CellState, Column, RowVersion, arrived_later
from headrace.core.model.inferred_types import conformed, is_inferred

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
States = npt.NDArray[np.uint8]


def table_schema(actions: Actions) -> pa.Schema:
    """Return the columns that a table needs for the actions."""
    return pa.schema([pa.field(column.name, column.values.type) for column in actions.columns])


def lake_columns(actions: Actions, stored: pa.Schema | None) -> Actions:
    """Return the actions with columns of inferred type (JSON without schemas) in the type of the table's column.

    A column without a type in the batch and in the table is omitted: it has no values to write yet.
    """
    if not any(is_inferred(column.schema) for column in actions.columns):
        return actions
    known = {} if stored is None else {column.name: column.type for column in stored}
    columns = []
    for column in actions.columns:
        values: pa.Array | None = column.values
        if is_inferred(column.schema):
            values = conformed(column.values, known.get(column.name))
        if values is not None:
            columns.append(replace(column, values=values))
    return replace(actions, columns=tuple(columns))


def open_rows(actions: Actions, has_stored: Bools | None = None) -> Bools:
    """Return the upserts with an open cell that no stored row supplies.

    Those are new images and, if ``has_stored`` marks the actions that have a stored row, the actions without one.
    """
    hollow = actions.fresh.copy() if has_stored is None else actions.fresh | ~has_stored
    hollow &= ~actions.delete
    found = np.zeros(len(actions), np.bool_)
    if hollow.any():
        for column in actions.columns:
            if column.states is not None:
                found |= hollow & np.isin(column.states, OPEN)
    return found


def with_nulls_for_open_cells(actions: Actions, rows: Bools) -> Actions:
    """Return the actions with NULL for every open cell of ``rows``."""
    return _with_nulls(actions, rows, OPEN)


def with_nulls_for_absent_cells(actions: Actions, has_stored: Bools) -> Actions:
    """Return the actions with NULL for cells that are absent from the event and from storage (``merge.md`` section 1).

    ``has_stored`` marks the actions that have a stored row. A cell is absent if the event's schema lacks its column.
    """
    return _with_nulls(actions, ~actions.delete & (actions.fresh | ~has_stored), (CellState.ABSENT,))


def with_absent_cells_kept(actions: Actions) -> Actions:
    """Return the actions for writers: a column that an event's schema lacks keeps the value of the stored row."""
    return replace(actions, columns=with_state(actions.columns, CellState.ABSENT, CellState.UNCHANGED))


def with_state(columns: Iterable[Column], old: CellState, new: CellState) -> tuple[Column, ...]:
    """Return the columns with one state of cells replaced by another."""
    return _with_states(columns, lambda states: np.where(states == old, np.uint8(new), states))


def without_hollow_carries(actions: Actions, has_stored: Bools) -> Actions:
    """Return the actions with open cells instead of cells that are carried from a row that is not stored."""
    origin = actions.carry_from
    hollow = (origin >= 0) & ~has_stored[np.where(origin >= 0, origin, 0)] if len(has_stored) else origin >= 0
    if not hollow.any():
        return actions
    columns = _with_states(
        actions.columns,
        lambda states: np.where(hollow & (states == CellState.CARRIED), np.uint8(CellState.UNCHANGED), states),
    )
    return replace(actions, columns=columns, carry_from=np.where(hollow, -1, origin))


def _with_nulls(actions: Actions, rows: Bools, replaced: tuple[CellState, ...]) -> Actions:
    if not rows.any():
        return actions
    columns = _with_states(
        actions.columns, lambda states: np.where(rows & np.isin(states, replaced), np.uint8(CellState.NULL), states)
    )
    return replace(actions, columns=columns)


def _with_states(columns: Iterable[Column], change: Callable[[States], States]) -> tuple[Column, ...]:
    return tuple(
        column if column.states is None else replace(column, states=change(column.states)) for column in columns
    )


def with_decided_gates(actions: Actions, stored: Mapping[str, RowVersion]) -> Actions:
    """Return the actions with gates by which the merge does what the fold against ``stored`` has decided.

    A stored row may come from a read that the batch deletes before it creates the row again. The action represents both
    events, but its first cell does not outrank the stored row, so this gate opens. Every other gate stays as it is.
    Cells are carried only from these stored rows, not from rows that another writer stores under their keys later.
    """
    if (actions.carry_from >= 0).any():
        actions = replace(actions, carried=stored)
    has_stored = np.fromiter((key in stored for key in actions.key.to_pylist()), np.bool_, len(actions))
    held = has_stored & ~outranking(actions, stored)
    if not held.any():
        return actions
    positions = actions.first_position.copy()
    positions[held] = NO_POSITION
    return replace(actions, first_position=positions, by_arrival=actions.by_arrival & ~held)


def outranking(actions: Actions, stored: Mapping[str, RowVersion]) -> Bools:
    """Return the actions that have a stored row and outrank it, by the gate that ``Actions`` describes."""
    found = np.zeros(len(actions), np.bool_)
    for index, key in enumerate(actions.key.to_pylist()):
        row, position = stored.get(key), bytes(actions.first_position[index])
        if row is not None and (not position or position > row.position):
            found[index] = not actions.by_arrival[index] or arrived_later(actions.first.row(index), row)
    return found


def take_actions(actions: Actions, index: Ints) -> Actions:
    """Return the actions at ``index``, none of which may carry cells: these would lose their origin."""
    places = pa.array(index)
    return replace(
        actions,
        key=actions.key.take(places),
        delete=actions.delete[index],
        fresh=actions.fresh[index],
        version=actions.version.take(index),
        first_position=actions.first_position[index],
        first=actions.first.take(index),
        by_arrival=actions.by_arrival[index],
        carry_from=actions.carry_from[index],
        transaction=actions.transaction[index],
        hiding=None if actions.hiding is None else actions.hiding[index],
        read=None if actions.read is None else actions.read[index],
        columns=tuple(
            replace(
                column,
                values=column.values.take(places),
                states=None if column.states is None else column.states[index],
            )
            for column in actions.columns
        ),
    )
