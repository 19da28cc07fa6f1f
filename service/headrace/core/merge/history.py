"""Append mode: each event becomes a row with its operation, version and image (``merge.md`` section 12).

A cell that the source omitted is filled from an earlier event of the row in the same batch if no record between them
was lost and no event arrived late, or from the result of reselect for the row's last event. A null that may be real is
not filled, because this event may have removed the earlier value. No other value is correct at the time of the event:
the cell is null then, and the event lists the column's name to distinguish it from a null of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.applicable_events import Grouped, group, latest, plainly_later
from headrace.core.model.actions import Actions, with_state
from headrace.core.model.events import (
    NO_KEY_CHANGES,
    Bools,
    CellState,
    Changes,
    Column,
    Ints,
    Operation,
    TableId,
    TopicPartition,
    Truncate,
    Versions,
)
from headrace.core.model.inferred_types import INFERRED, to_table_type

OPERATIONS = pa.array([None, "c", "u", "d", "r", "t", "d"])
"""Debezium's op by ``Operation``; a tombstone without its delete is a delete."""

_CERTAIN = (CellState.VALUE, CellState.NULL)
_OPEN = (CellState.UNCHANGED, CellState.UNKNOWN)
_DELETES = (Operation.DELETE, Operation.TOMBSTONE)
_BEGINNINGS = (Operation.CREATE, Operation.READ, *_DELETES)


@dataclass(frozen=True, slots=True)
class History:
    """Events of one table as rows, in order of arrival. No column has states: every cell of ``columns`` is decided.

    ``unavailable`` lists the columns of each event whose value is unknown; null if there are none.
    """

    table: TableId
    operation: pa.StringArray
    version: Versions
    columns: tuple[Column, ...]
    unavailable: pa.ListArray

    def __len__(self) -> int:
        return len(self.operation)


def changes_to_append(changes: Changes, offsets: Mapping[TopicPartition, int]) -> Changes:
    """Return the events at or above the next offset of their partition; the table contains those below."""
    version = changes.version
    above = np.ones(len(changes), np.bool_)
    for (topic, partition), offset in offsets.items():
        if topic == version.topic:
            above &= (version.partition != partition) | (version.offset >= offset)
    return changes if above.all() else _select_events(changes, np.flatnonzero(above))


def with_nulls_for_doubted_cells(changes: Changes) -> Changes:
    """Return the events with NULL for each null that may hide a value: ``reselect.unknown.null.mode=null``."""
    return replace(changes, columns=with_state(changes.columns, CellState.UNKNOWN, CellState.NULL))


def without_last_resorts(last: Actions) -> Actions:
    """Return the actions with doubtful cells open: the best earlier value need not be that of the event."""
    return replace(last, columns=with_state(last.columns, CellState.DOUBTFUL, CellState.UNCHANGED))


def next_offsets(versions: Versions) -> dict[TopicPartition, int]:
    """Return the offset behind the last event of each partition."""
    partitions = np.unique(versions.partition).tolist()
    return {
        TopicPartition(versions.topic, p): int(versions.offset[versions.partition == p].max()) + 1 for p in partitions
    }


def history(changes: Changes, last: Actions | None = None, stored: pa.Schema | None = None) -> History:
    """Return the events as rows. ``last`` are the actions that they fold into, completed by reselect.

    ``stored`` are the table's columns, whose types values without a schema get.
    """
    grouped: Grouped | None = None
    if changes.key_fields:
        grouped = group(changes)
        kept = np.sort(grouped.order)
        if len(kept) < len(changes):  # tombstones that repeat a delete are not rows
            changes = _select_events(changes, kept)
            grouped = replace(grouped, order=np.searchsorted(kept, grouped.order))
    sources = _Sources(changes, grouped, last)
    columns, missing = [], []
    for column in changes.columns:
        filled, open_cells = sources.fill(column)
        stored_type = stored.field(column.name).type if stored is not None and column.name in stored.names else None
        values = to_table_type(filled, stored_type) if column.schema.parameters == INFERRED else filled
        if values is not None:
            columns.append(Column(column.name, column.schema, values))
            missing.append((column.name, open_cells))
    unavailable: list[list[str] | None] = [None] * len(changes)
    for name, open_cells in missing:
        for event in np.flatnonzero(open_cells).tolist():
            unavailable[event] = [*(unavailable[event] or ()), name]
    operation = OPERATIONS.take(pa.array(changes.operation))
    names = pa.array(unavailable, pa.list_(pa.string()))
    return History(changes.table, operation, changes.version, tuple(columns), names)


def truncate_row(truncate: Truncate, offsets: Mapping[TopicPartition, int]) -> History:
    """Return a truncate as a row without an image; no row if the table already contains it."""
    version = truncate.version
    rows = [version] if version.offset >= offsets.get(TopicPartition(version.topic, version.partition), 0) else []
    nothing = pa.nulls(len(rows), pa.list_(pa.string()))
    operation = pa.array(["t"] * len(rows), pa.string())
    return History(truncate.table, operation, Versions.of(version.topic, rows), (), nothing)


def history_schema(rows: History) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.values.type) for column in rows.columns])


class _Sources:
    """The events of a batch that contain the cells which other events of the row omit."""

    def __init__(self, changes: Changes, grouped: Grouped | None, last: Actions | None) -> None:
        self._count = len(changes)
        self._order = np.arange(self._count) if grouped is None else grouped.order
        begins = np.ones(self._count, np.bool_)
        if grouped is not None:  # without a key, no two events are certain to belong to one row
            begins = grouped.starts() | np.isin(changes.operation[self._order], _BEGINNINGS)
            begins[1:] |= ~plainly_later(changes.version.take(self._order))
        self._begin = latest(begins)
        self._images = ~np.isin(changes.operation[self._order], _DELETES)
        self._losses = changes.losses()[self._order]
        self._resolved = {} if last is None else {column.name: column for column in last.columns}
        self._actions: dict[int, int] = {}  # of each event that is the last of its row
        if last is not None:
            coordinates = zip(last.version.partition.tolist(), last.version.offset.tolist(), strict=True)
            action_at = {coordinate: action for action, coordinate in enumerate(coordinates)}
            coordinates = zip(changes.version.partition.tolist(), changes.version.offset.tolist(), strict=True)
            for event, coordinate in enumerate(coordinates):
                if coordinate in action_at:
                    self._actions[event] = action_at[coordinate]

    def fill(self, column: Column) -> tuple[pa.Array, Bools]:
        """Return the column's values, and which of them are unknown."""
        if column.states is None:
            return column.values, np.zeros(self._count, np.bool_)
        states = column.states[self._order]
        certain = latest(np.isin(states, _CERTAIN) & self._images)
        source = np.full(self._count, -1, np.int64)
        supplied = (certain >= self._begin) & (self._losses[certain] == self._losses)
        supplied &= (certain == np.arange(self._count)) | self._implies(column, states, certain)
        source[self._order] = np.where(supplied, self._order[certain], -1)
        source[column.states == CellState.ABSENT] = -1
        open_cells = (source < 0) & np.isin(column.states, _OPEN)
        resolved = self._resolved.get(column.name)
        if resolved is None or resolved.values.type != column.values.type:
            return column.values.take(pa.array(source, mask=source < 0)), open_cells
        for event, action in self._actions.items():
            if open_cells[event] and (resolved.states is None or resolved.states[action] in _CERTAIN):
                source[event], open_cells[event] = self._count + action, False
        values = pa.concat_arrays([column.values, resolved.values])
        return values.take(pa.array(source, mask=source < 0)), open_cells

    def _implies(self, column: Column, states: npt.NDArray[np.uint8], certain: Ints) -> Bools:
        """Whether the last certain cell is also the cell of a later event that omits it.

        A value is, if the event reports it as unchanged. A null is, if the event has a null that is either real or
        unchanged; a placeholder that was truncated beyond recognition may stand for a value of any type. Neither is
        after an event in between that contradicts it.
        """
        omitted, doubted = states == CellState.UNCHANGED, states == CellState.UNKNOWN
        value: Bools = omitted & (states[certain] == CellState.VALUE) & (latest(doubted) < certain)
        null: Bools = doubted & (states[certain] == CellState.NULL) & (latest(omitted) < certain)
        return value if column.schema.parameter("truncateLength") is not None else value | null


def _select_events(changes: Changes, index: Ints) -> Changes:
    """Return some of the events. A key change whose halves are not both among them does not count as one."""
    return replace(changes.take(index), key_changes=NO_KEY_CHANGES, servers=None)
