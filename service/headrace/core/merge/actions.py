"""Questions about folded actions, and small changes to them, between fold and merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.fold import OPEN
from headrace.core.model.conform import conformed
from headrace.core.model.events import NO_POSITION, Actions, CellState, RowVersion
from headrace.core.model.inference import is_inferred
from headrace.core.model.ranking import arrived_later

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def table_schema(actions: Actions) -> pa.Schema:
    """The columns that a table needs for the actions."""
    return pa.schema([pa.field(column.name, column.values.type) for column in actions.columns])


def lake_columns(actions: Actions, stored: pa.Schema | None) -> Actions:
    """The actions with columns of inferred type (JSON without schemas) typed as the table has them.

    What has no type, in the batch or in the table, is left out: there is nothing to write yet.
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


def open_rows(actions: Actions, standing: Bools | None = None) -> Bools:
    """The upserts with a cell that nothing supplies: of a new image, or without a stored row to keep it from.

    ``standing`` tells which actions have a stored row; without it only new images are looked at.
    """
    hollow = actions.fresh.copy() if standing is None else actions.fresh | ~standing
    hollow &= ~actions.delete
    found = np.zeros(len(actions), np.bool_)
    if hollow.any():
        for column in actions.columns:
            if column.states is not None:
                found |= hollow & np.isin(column.states, OPEN)
    return found


def with_nulls_for_open_cells(actions: Actions, rows: Bools) -> Actions:
    """The actions with NULL for every open cell of ``rows``."""
    return _with_nulls(actions, rows, OPEN)


def with_nulls_for_absent_cells(actions: Actions, standing: Bools) -> Actions:
    """The actions with NULL where an event's schema lacks a column and no stored row keeps it (``merge.md`` section 1).

    ``standing`` tells which actions have a stored row.
    """
    return _with_nulls(actions, ~actions.delete & (actions.fresh | ~standing), (CellState.ABSENT,))


def with_absent_cells_kept(actions: Actions) -> Actions:
    """The actions as writers know them: a column that an event's schema lacks keeps what the stored row has."""
    columns = []
    for column in actions.columns:
        told = column.states
        if told is not None and (told == CellState.ABSENT).any():
            told = np.where(told == CellState.ABSENT, CellState.UNCHANGED, told).astype(np.uint8)
        columns.append(replace(column, states=told))
    return replace(actions, columns=tuple(columns))


def _with_nulls(actions: Actions, rows: Bools, states: tuple[CellState, ...]) -> Actions:
    if not rows.any():
        return actions
    columns = []
    for column in actions.columns:
        told = column.states
        if told is not None:
            told = np.where(rows & np.isin(told, states), CellState.NULL, told).astype(np.uint8)
        columns.append(replace(column, states=told))
    return replace(actions, columns=tuple(columns))


def without_hollow_carries(actions: Actions, standing: Bools) -> Actions:
    """The actions where cells that were to come from an old row that does not stand are open instead."""
    origin = actions.carry_from
    hollow = (origin >= 0) & ~standing[np.where(origin >= 0, origin, 0)] if len(standing) else origin >= 0
    if not hollow.any():
        return actions
    columns = []
    for column in actions.columns:
        states = column.states
        if states is not None:
            carried = hollow & (states == CellState.CARRIED)
            states = np.where(carried, CellState.UNCHANGED, states).astype(np.uint8)
        columns.append(replace(column, states=states))
    return replace(actions, columns=tuple(columns), carry_from=np.where(hollow, -1, origin))


def with_decided_gates(actions: Actions, stored: Mapping[str, RowVersion]) -> Actions:
    """The actions, folded against ``stored``, so that the merge does what the fold has decided.

    A stored row may be of a read that the batch deletes before it makes the row anew: the action stands for both, but
    its first cell does not outrank the stored row, so that this gate is opened. Every other gate stays as it is. Cells
    are carried from these stored rows only, not from others that somebody writes under their keys meanwhile.
    """
    if (actions.carry_from >= 0).any():
        actions = replace(actions, carried=stored)
    standing = np.fromiter((key in stored for key in actions.key.to_pylist()), np.bool_, len(actions))
    held = standing & ~applying(actions, stored)
    if not held.any():
        return actions
    positions = actions.first_position.copy()
    positions[held] = NO_POSITION
    return replace(actions, first_position=positions, by_arrival=actions.by_arrival & ~held)


def applying(actions: Actions, stored: Mapping[str, RowVersion]) -> Bools:
    """The actions that have a stored row and apply to it, by the gate that ``Actions`` describes."""
    found = np.zeros(len(actions), np.bool_)
    for index, key in enumerate(actions.key.to_pylist()):
        found[index] = key in stored and _outranks(actions, index, stored[key])
    return found


def _outranks(actions: Actions, index: int, stored: RowVersion) -> bool:
    position = bytes(actions.first_position[index])
    if position and position <= stored.position:
        return False
    return not actions.by_arrival[index] or arrived_later(actions.first.row(index), stored)


def take_actions(actions: Actions, index: Ints) -> Actions:
    """The actions at ``index``. Carried cells would lose their origin: only for actions without any."""
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
