"""Append mode: every event a row of its own, with what it did, where it stood, and its image (``merge.md`` section 12).

A cell that the source omitted is filled from an earlier event of the row in the same batch, if no record was lost in
between and no event arrived late, or from what reselect has found for the row's last event. A null that may be real is
not filled: the earlier value may have been removed by this very event. Nothing else is right for the moment of the
event: what stays open is null, and the column's name is listed with the event, which distinguishes it from a null of
the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.gate import group, plainly_later
from headrace.core.model.conform import conformed
from headrace.core.model.events import Actions, CellState, Changes, Column, Operation, TableId, Truncate, Versions
from headrace.core.model.inference import INFERRED

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

OPERATIONS = pa.array([None, "c", "u", "d", "r", "t", "d"])
"""Debezium's op by ``Operation``; a tombstone on its own is a delete."""

_KNOWN = (CellState.VALUE, CellState.NULL)
_OPEN = (CellState.UNCHANGED, CellState.UNKNOWN)
_UNCHANGED, _NULL = np.uint8(CellState.UNCHANGED), np.uint8(CellState.NULL)
_DELETES = (Operation.DELETE, Operation.TOMBSTONE)
_BEGINNINGS = (Operation.CREATE, Operation.READ, *_DELETES)


@dataclass(frozen=True, slots=True)
class History:
    """Events of one table as rows, in order of arrival. Every cell of ``columns`` is decided: no column has states.

    ``unavailable`` lists, for each event, the columns whose value nobody knows; null where there is none.
    """

    table: TableId
    operation: pa.StringArray
    version: Versions
    columns: tuple[Column, ...]
    unavailable: pa.ListArray

    def __len__(self) -> int:
        return len(self.operation)


def unread(changes: Changes, offsets: Mapping[tuple[str, int], int]) -> Changes:
    """The events at or above the next offset of their partition; what lies below is in the table already."""
    version = changes.version
    above = np.ones(len(changes), np.bool_)
    for (topic, partition), offset in offsets.items():
        if topic == version.topic:
            above &= (version.partition != partition) | (version.offset >= offset)
    return changes if above.all() else _taken(changes, np.flatnonzero(above))


def with_nulls_for_doubted_cells(changes: Changes) -> Changes:
    """The events with NULL for each null that may hide a value: ``reselect.unknown.null.mode=null``."""
    columns = (
        column
        if column.states is None
        else replace(column, states=np.where(column.states == CellState.UNKNOWN, _NULL, column.states))
        for column in changes.columns
    )
    return replace(changes, columns=tuple(columns))


def without_last_resorts(last: Actions) -> Actions:
    """The actions with doubtful cells left out: that a value is the best known does not make it that of the event."""
    columns = (
        column
        if column.states is None
        else replace(column, states=np.where(column.states == CellState.DOUBTFUL, _UNCHANGED, column.states))
        for column in last.columns
    )
    return replace(last, columns=tuple(columns))


def next_offsets(versions: Versions) -> dict[tuple[str, int], int]:
    """By topic and partition the offset behind the last of the events."""
    numbers = np.unique(versions.partition).tolist()
    return {(versions.topic, n): int(versions.offset[versions.partition == n].max()) + 1 for n in numbers}


def history(changes: Changes, last: Actions | None = None, stored: pa.Schema | None = None) -> History:
    """The events as rows. ``last`` are the actions they fold into, as reselect has completed them.

    ``stored`` are the table's columns, as which values without a schema are read.
    """
    if changes.key_fields:
        changes = _without_echoes(changes)
    sources = _Sources(changes, last)
    columns, missing = [], []
    for column in changes.columns:
        filled, open_cells = sources.filled(column)
        known = stored.field(column.name).type if stored is not None and column.name in stored.names else None
        values = conformed(filled, known) if column.schema.parameters == INFERRED else filled
        if values is not None:
            columns.append(Column(column.name, column.schema, values))
            missing.append((column.name, open_cells))
    operation = OPERATIONS.take(pa.array(changes.operation))
    return History(changes.table, operation, changes.version, tuple(columns), _listed(missing, len(changes)))


def truncated(truncate: Truncate, offsets: Mapping[tuple[str, int], int]) -> History:
    """A truncate as a row without an image; no row if it is in the table already."""
    version = truncate.version
    rows = [version] if version.offset >= offsets.get((version.topic, version.partition), 0) else []
    versions = Versions(
        version.topic,
        np.array([row.position for row in rows], np.bytes_),
        np.array([row.partition for row in rows], np.int32),
        np.array([row.offset for row in rows], np.int64),
        np.array([row.source_time for row in rows], np.int64),
    )
    nothing = pa.nulls(len(rows), pa.list_(pa.string()))
    return History(truncate.table, pa.array(["t"] * len(rows), pa.string()), versions, (), nothing)


def history_schema(rows: History) -> pa.Schema:
    """The columns that a table needs for the rows."""
    return pa.schema([pa.field(column.name, column.values.type) for column in rows.columns])


class _Sources:
    """Where the cells of a batch that an event leaves out stand in other events of its row."""

    def __init__(self, changes: Changes, last: Actions | None) -> None:
        grouped = group(changes) if changes.key_fields else None
        self._count = len(changes)
        self._order = np.arange(self._count) if grouped is None else grouped.order
        self._begin = _latest(self._beginnings(changes, None if grouped is None else grouped.starts()))
        self._images = ~np.isin(changes.operation[self._order], _DELETES)
        self._losses = changes.losses()[self._order]
        self._resolved = {} if last is None else {column.name: column for column in last.columns}
        self._places = {} if last is None else _places(changes, last)

    def _beginnings(self, changes: Changes, starts: Bools | None) -> Bools:
        if starts is None:  # without a key no two events are known to be of one row
            return np.ones(self._count, np.bool_)
        beginnings: Bools = starts | np.isin(changes.operation[self._order], _BEGINNINGS)
        beginnings[1:] |= ~plainly_later(changes.version.take(self._order))
        return beginnings

    def filled(self, column: Column) -> tuple[pa.Array, Bools]:
        """The column's values, and which of them nobody knows."""
        if column.states is None:
            return column.values, np.zeros(self._count, np.bool_)
        states = column.states[self._order]
        known = _latest(np.isin(states, _KNOWN) & self._images)
        source = np.full(self._count, -1, np.int64)
        tells = (known >= self._begin) & (self._losses[known] == self._losses)
        tells &= (known == np.arange(self._count)) | self._implies(column, states, known)
        source[self._order] = np.where(tells, self._order[known], -1)
        source[column.states == CellState.ABSENT] = -1
        open_cells = (source < 0) & np.isin(column.states, _OPEN)
        return self._with_resolved(column, source, open_cells)

    def _implies(self, column: Column, states: npt.NDArray[np.uint8], known: Ints) -> Bools:
        """Whether the last known cell is also that of an event behind it which has none.

        A value is, where it is said to be unchanged. A null is, where the event has a null that is either real or
        unchanged; a placeholder that was cut too short to be recognized may be a value of any kind. Neither is, once an
        event in between contradicts it.
        """
        omitted, doubted = states == CellState.UNCHANGED, states == CellState.UNKNOWN
        value: Bools = omitted & (states[known] == CellState.VALUE) & (_latest(doubted) < known)
        null: Bools = doubted & (states[known] == CellState.NULL) & (_latest(omitted) < known)
        return value if column.schema.parameter("truncateLength") is not None else value | null

    def _with_resolved(self, column: Column, source: Ints, open_cells: Bools) -> tuple[pa.Array, Bools]:
        resolved = self._resolved.get(column.name)
        if resolved is None or resolved.values.type != column.values.type:
            return column.values.take(pa.array(source, mask=source < 0)), open_cells
        for event, place in self._places.items():
            if open_cells[event] and (resolved.states is None or resolved.states[place] in _KNOWN):
                source[event], open_cells[event] = self._count + place, False
        values = pa.concat_arrays([column.values, resolved.values])
        return values.take(pa.array(source, mask=source < 0)), open_cells


def _places(changes: Changes, last: Actions) -> dict[int, int]:
    """By event the place of its action, where the action is that of this event."""
    actions = {
        (int(partition), int(offset)): place
        for place, (partition, offset) in enumerate(zip(last.version.partition, last.version.offset, strict=True))
    }
    coordinates = zip(changes.version.partition, changes.version.offset, strict=True)
    found = (
        (event, actions.get((int(partition), int(offset)))) for event, (partition, offset) in enumerate(coordinates)
    )
    return {event: place for event, place in found if place is not None}


def _latest(flags: Bools) -> Ints:
    """For each place the latest place up to it where ``flags`` is set, -1 before the first."""
    places = np.where(flags, np.arange(len(flags)), -1)
    return np.maximum.accumulate(places) if len(places) else places


def _without_echoes(changes: Changes) -> Changes:
    """Without the tombstones that only repeat a delete."""
    kept = np.sort(group(changes).order)
    return changes if len(kept) == len(changes) else _taken(changes, kept)


def _taken(changes: Changes, index: Ints) -> Changes:
    places = pa.array(index)
    columns = (
        replace(
            column,
            values=column.values.take(places),
            states=None if column.states is None else column.states[index],
        )
        for column in changes.columns
    )
    return replace(
        changes,
        operation=changes.operation[index],
        key=changes.key.take(places),
        version=changes.version.take(index),
        transaction=changes.transaction[index],
        columns=tuple(columns),
        old_key={},
        moved=frozenset(),
        new_key={},
        lost=None if changes.lost is None else changes.lost[index],
    )


def _listed(missing: list[tuple[str, Bools]], count: int) -> pa.ListArray:
    names: list[list[str] | None] = [None] * count
    for name, open_cells in missing:
        for event in np.flatnonzero(open_cells).tolist():
            names[event] = [*(names[event] or ()), name]
    return pa.array(names, pa.list_(pa.string()))
