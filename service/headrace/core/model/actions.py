"""What a batch does to a table: one action per row key, and changes of the actions between fold and merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.events import (
    NO_POSITION,
    Bools,
    CellState,
    Column,
    Ints,
    RowVersion,
    TableId,
    Versions,
    arrived_later,
)
from headrace.core.model.inferred_types import is_inferred, to_table_type

OPEN = (CellState.UNCHANGED, CellState.UNKNOWN)
"""States of a cell that an event does not contain."""

States = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Gates:
    """The condition under which each action applies to a stored row.

    ``position`` and ``first`` are those of the oldest event whose cells the action still contains (for a delete: of the
    delete). An action applies to a stored row if

    - ``position`` is b"" or higher than the stored position (or none is stored), and
    - where ``by_arrival`` is set (that oldest event had no position): it arrived later than the stored row's event, in
      the same topic and partition with a higher offset, or in another partition with a later source time.
    """

    position: npt.NDArray[np.bytes_]
    first: Versions
    by_arrival: Bools

    @classmethod
    def of(cls, versions: Versions) -> Gates:
        return cls(versions.position, versions, versions.position == NO_POSITION)

    def take(self, index: Ints) -> Gates:
        return Gates(self.position[index], self.first.take(index), self.by_arrival[index])

    def opened_for(self, actions: Bools) -> Gates:
        """Return the gates, open for these actions whatever row is stored."""
        position = self.position.copy()
        position[actions] = NO_POSITION
        return Gates(position, self.first, self.by_arrival & ~actions)


@dataclass(frozen=True, slots=True)
class CarriedCells:
    """The rows that CARRIED cells are copied from, after key changes.

    ``origin`` is the index of the action under whose key the row is stored, or -1. ``versions`` contains, by key, the
    versions of these rows when they were read: a row with another version at the merge is another row, and its cells
    are not copied.
    """

    origin: Ints
    versions: Mapping[str, RowVersion] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Superseded:
    """The events of a batch that its actions do not show.

    ``reads`` marks deletes that replace reads without a position: if the delete is stale, these may still apply.
    ``tombstones`` contains, by key, those of deletes within the batch that the action's own version does not include:
    of deletes before a row without a position, and of deletes that outrank the last delete. ``stale_keys`` have no
    action, because none of their events applies.
    """

    reads: Bools | None = None
    tombstones: Mapping[str, RowVersion] = field(default_factory=dict)
    stale_keys: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a batch on a table: at most one per row key.

    ``delete`` marks deletes; the others are upserts. ``fresh`` rows are new incarnations that must not keep stored
    cells. A ``fresh`` delete is of a row that was created in the same batch, so that there may be no stored row.
    ``version`` and ``transaction`` (-1 if unknown) are those of the last event; ``read`` marks rows whose last event is
    of a snapshot, even if earlier events gave the row a position. ``carried`` is None if no cell is CARRIED.
    """

    table: TableId
    key_fields: tuple[str, ...]
    key: pa.StringArray
    delete: Bools
    fresh: Bools
    version: Versions
    gates: Gates
    transaction: npt.NDArray[np.int64]
    columns: tuple[Column, ...]
    carried: CarriedCells | None = None
    superseded: Superseded = Superseded()
    read: Bools | None = None

    def __len__(self) -> int:
        return len(self.delete)

    def carries(self) -> Bools:
        """Return the actions of rows whose cells may be carried from a stored row."""
        return np.zeros(len(self), np.bool_) if self.carried is None else self.carried.origin >= 0

    def take(self, index: Ints) -> Actions:
        """Return the actions at ``index``, none of which may carry cells: these would lose their origin."""
        reads = self.superseded.reads
        return replace(
            self,
            key=self.key.take(pa.array(index)),
            delete=self.delete[index],
            fresh=self.fresh[index],
            version=self.version.take(index),
            gates=self.gates.take(index),
            transaction=self.transaction[index],
            columns=tuple(column.take(index) for column in self.columns),
            carried=None,
            superseded=replace(self.superseded, reads=None if reads is None else reads[index]),
            read=None if self.read is None else self.read[index],
        )


# -- between fold and merge --------------------------------------------------------------------------------------------


def table_schema(actions: Actions) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.values.type) for column in actions.columns])


def lake_columns(actions: Actions, stored: pa.Schema | None) -> Actions:
    """Return the actions with columns of inferred type (JSON without schemas) in the type of the table's column.

    A column without a type in the batch and in the table is omitted: it has no values to write yet.
    """
    if not any(is_inferred(column.schema) for column in actions.columns):
        return actions
    stored_types = {} if stored is None else {column.name: column.type for column in stored}
    columns = []
    for column in actions.columns:
        values: pa.Array | None = column.values
        if is_inferred(column.schema):
            values = to_table_type(column.values, stored_types.get(column.name))
        if values is not None:
            columns.append(replace(column, values=values))
    return replace(actions, columns=tuple(columns))


def open_rows(actions: Actions, has_stored: Bools | None = None) -> Bools:
    """Return the upserts with an open cell that no stored row supplies.

    Those are new images and, if ``has_stored`` marks the actions that have a stored row, the actions without one.
    """
    hollow = actions.fresh.copy() if has_stored is None else actions.fresh | ~has_stored
    hollow &= ~actions.delete
    is_open = np.zeros(len(actions), np.bool_)
    if hollow.any():
        for column in actions.columns:
            if column.states is not None:
                is_open |= hollow & np.isin(column.states, OPEN)
    return is_open


def with_nulls_for_open_cells(actions: Actions, rows: Bools) -> Actions:
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
    return _with_states(columns, lambda states: np.where(states == old, np.uint8(new), states))


def without_hollow_carries(actions: Actions, has_stored: Bools) -> Actions:
    """Return the actions with open cells instead of cells that are carried from a row that is not stored."""
    if actions.carried is None:
        return actions
    origin = actions.carried.origin
    hollow = (origin >= 0) & ~has_stored[np.maximum(origin, 0)]
    if not hollow.any():
        return actions
    columns = _with_states(
        actions.columns,
        lambda states: np.where(hollow & (states == CellState.CARRIED), np.uint8(CellState.UNCHANGED), states),
    )
    carried = None if (hollow == (origin >= 0)).all() else CarriedCells(np.where(hollow, -1, origin))
    return replace(actions, columns=columns, carried=carried)


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
    if actions.carried is not None:
        actions = replace(actions, carried=CarriedCells(actions.carried.origin, stored))  # proven: carried-from-stored
    has_stored = np.fromiter((key in stored for key in actions.key.to_pylist()), np.bool_, len(actions))
    closed = has_stored & ~outranking(actions, stored)
    return replace(actions, gates=actions.gates.opened_for(closed)) if closed.any() else actions


def outranking(actions: Actions, stored: Mapping[str, RowVersion]) -> Bools:
    """Return the actions that have a stored row and outrank it, by the rule of ``Gates``."""
    gates = actions.gates
    higher = np.zeros(len(actions), np.bool_)
    for index, key in enumerate(actions.key.to_pylist()):
        row, position = stored.get(key), bytes(gates.position[index])
        if row is not None and (not position or position > row.position):
            higher[index] = not gates.by_arrival[index] or arrived_later(gates.first.row(index), row)
    return higher
