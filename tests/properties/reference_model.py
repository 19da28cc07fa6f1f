"""The reference model: ``merge.md`` as plain Python over a dict, one event at a time, in the order of arrival.

It is simple, and shares only the vocabulary with the code that it checks. The fold, the writers and every optimization
must give the same result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.core.model.events import CellState, Operation, RowVersion

KEEP = (CellState.UNCHANGED, CellState.UNKNOWN, CellState.ABSENT)
UPSERTS = (Operation.CREATE, Operation.UPDATE, Operation.READ)


Columns = tuple[tuple[str, str], ...]
"""Names and types of a table's columns, the key's first."""

Cells = dict[str, tuple[CellState, Any]]
Row = dict[str, Any]
Rows = dict[int, Row]


@dataclass(frozen=True)
class Event:
    """One change. ``cells`` maps column names to (state, value); ``old_key`` is set on second halves of key changes.

    ``columns`` are those of the source table at that time. A column that is in none of the event's cells is ABSENT.
    """

    operation: Operation
    key: int
    version: RowVersion
    cells: Cells = field(default_factory=dict)
    old_key: int | None = None
    moved: bool = False
    new_key: int | None = None
    columns: Columns = (("id", "int64"), ("a", "int64"), ("b", "int64"))
    table: int = 0
    transaction: int = -1


@dataclass
class Standing:
    """A stored row. A column without a cell is null."""

    cells: Row
    version: RowVersion


def later(new: RowVersion, old: RowVersion) -> bool:
    """Section 2, rules 1 and 2."""
    if new.position:
        return not old.position or new.position > old.position
    if (new.topic, new.partition) == (old.topic, old.partition):
        return new.offset > old.offset
    return new.source_time > old.source_time


def merged(new: RowVersion, old: RowVersion | None) -> RowVersion:
    """The stored version after ``new`` is applied: a position never decreases."""
    if old is None or new.position:
        return new
    return RowVersion(old.position, new.topic, new.partition, new.offset, new.source_time)


def precedes(row: RowVersion, first_half: RowVersion) -> bool:
    """Whether a row is certainly older than its key change: its last event may be a snapshot read of a later state."""
    if row.source_time != first_half.source_time:
        return row.source_time < first_half.source_time
    return bool(row.position) or not first_half.position


def absent(event: Event, column: str) -> bool:
    """Whether the event's schema has no such column."""
    return column not in event.cells or event.cells[column][0] is CellState.ABSENT


class Model:
    """A table."""

    def __init__(self) -> None:
        self.rows: dict[int, Standing] = {}
        self.tombstones: dict[int, RowVersion] = {}
        self.floor: RowVersion | None = None
        self._moved_away: dict[int, Row] = {}
        self._displaced: dict[tuple[int, int], tuple[Standing, bytes]] = {}
        self._left: dict[tuple[int, int], bytes] = {}
        self._last: dict[int, Operation] = {}

    def apply(self, event: Event) -> None:
        """Apply one event. A tombstone right after a delete of its key is part of that delete (section 2.3)."""
        before, self._last[event.key] = self._last.get(event.key), event.operation
        if event.operation is Operation.TOMBSTONE and before is Operation.DELETE:
            return
        if event.operation in UPSERTS:
            self._upsert(event)
        elif event.operation is Operation.TRUNCATE:
            self._truncate(event)
        else:
            self._delete(event)

    def _upsert(self, event: Event) -> None:
        row, tombstone = self.rows.get(event.key), self.tombstones.get(event.key)
        for known in (tombstone, self.floor, row.version if row else None):
            if known is not None and not later(event.version, known):
                return
        base: Row = {}
        if event.operation is Operation.UPDATE and row is not None:
            base = dict(row.cells)
        elif event.old_key is not None:
            if row is not None and event.transaction >= 0:
                self._displaced[event.key, event.transaction] = row, event.version.position
            moved = self._moved_away.get(event.old_key, {})
            base = {name: value for name, value in moved.items() if not absent(event, name)}
        for name, (state, value) in event.cells.items():
            if state not in KEEP:
                base[name] = value
        self.rows[event.key] = Standing(base, merged(event.version, row.version if row else None))

    def _leaves_a_key_that_was_taken(self, event: Event) -> bool:
        """Whether another row took the key before, in the same transaction (deferred constraints)."""
        where, position = (event.key, event.transaction), event.version.position
        if not event.moved or where not in self._displaced or position <= self._displaced[where][1]:
            return False
        if self._left.setdefault(where, position) != position:
            return False
        row = self._displaced[where][0]
        self._moved_away[event.key] = row.cells if precedes(row.version, event.version) else {}
        return True

    def _delete(self, event: Event) -> None:
        if self._leaves_a_key_that_was_taken(event):
            return
        row = self.rows.get(event.key)
        if row is not None and not later(event.version, row.version):
            self._moved_away.pop(event.key, None)  # another row is stored under the key: no cell is carried from it
            return
        gone = self.rows.pop(event.key, None)
        if event.moved:
            self._moved_away[event.key] = gone.cells if gone and precedes(gone.version, event.version) else {}
        old = self.tombstones.get(event.key)
        if old is None or later(event.version, old):
            self.tombstones[event.key] = merged(event.version, old)

    def _truncate(self, event: Event) -> None:
        if self.floor is None or later(event.version, self.floor):
            self.floor = event.version
        standing = self.rows.items()
        self.rows = {key: row for key, row in standing if not later(event.version, row.version)}

    def table(self, columns: Iterable[str]) -> Rows:
        """The rows by key."""
        return {key: {name: row.cells.get(name) for name in columns} for key, row in self.rows.items()}
