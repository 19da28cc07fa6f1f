"""Key changes: cells that a row takes along to its new key, and rows that lose their key to another row.

PostgreSQL also omits unchanged TOAST columns from a key change (``merge.md`` section 6). So the second half (``c`` with
the oldkey header) has open cells that only the old row can supply: the row that the first half of the same change ended
(``core/batch/event_pairs.py``), and no other row that had the old key before or after it. The search for its cells
follows the events of the batch, along chains (1 to 2 to 3) and swaps. Cells that the batch does not contain are in the
table, under the first key of the chain.

A snapshot read has no source position. If the connector lagged when it sent the read, the read shows a state from after
the events that follow it in the topic, possibly of another row that has the old key by then. So a row whose last event
may be such a read supplies nothing, unless that event is older than the key change by the source's clock.

If a database checks keys at the end of a statement (Oracle) or of a transaction (PostgreSQL's DEFERRABLE), a row may
get the key of another row that changes its key later: ``UPDATE t SET id = id + 1`` sends ``d(1) c(2 from 1) d(2)
c(3 from 2)``. The second delete of such a statement does not belong to the row that has the key at that time. A row
that changes its key twice sends the same events, but its new key is free at that time.

So the state of the key decides: whether a row has it when the second half of a key change arrives. If so, the next
first half of that key in the same transaction belongs to the row that had the key before, and deletes nothing. A batch
may end between the two and be read again, so the ledger stores both events before the table is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.batch.event_pairs import paired_halves
from headrace.core.model.events import (
    NO_POSITION,
    CellState,
    Changes,
    Column,
    Ints,
    Operation,
    RowVersion,
    outranks,
    succeed,
)
from headrace.core.model.keys import TAKEN_PREFIX

STORED = -1
"""The cell is that of the stored row; used instead of an event's index."""

_DELETES = (Operation.DELETE, Operation.TOMBSTONE)
_IMAGES = (Operation.CREATE, Operation.READ)
_CERTAIN = (CellState.VALUE, CellState.NULL)


@dataclass(frozen=True, slots=True)
class CarriedCell:
    """The event that contains a cell, or STORED. ``doubtful`` if a record between it and the key change was lost."""

    event: int
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """The cells that one new row gets, by column.

    ``origin`` is the index of the action whose stored row supplies the STORED cells, or -1.
    """

    origin: int
    cells: Mapping[str, CarriedCell]


def carried_cells(
    changes: Changes,
    index: Ints,
    begin: Ints,
    last: Ints,
    codes: Ints,
    keys: pa.StringArray,
    stored: Mapping[str, RowVersion],
) -> Mapping[int, Carried]:
    """Return what each action that is a key change's second half gets from the old key's row, by action index.

    ``index``, ``begin``, ``last`` and ``codes`` are those of ``fold.Incarnations``; ``stored`` are the versions of
    stored rows. A second half has no entry if its first half is not in this batch or does not apply: reselect or the
    policy for unresolved cells then decides its open cells.
    """
    tracer = _Tracer(changes, index, last, codes, keys, stored)
    carried_by_action = {}
    for action, event in enumerate(index[begin].tolist()):
        if event in changes.key_changes.old_keys:
            carried = tracer.predecessor(event)
            if carried is not None:
                carried_by_action[action] = carried
    return carried_by_action


class _Tracer:
    def __init__(
        self,
        changes: Changes,
        index: Ints,
        last: Ints,
        codes: Ints,
        keys: pa.StringArray,
        stored: Mapping[str, RowVersion],
    ) -> None:
        self._changes = changes
        texts = keys.take(pa.array(codes)).to_pylist()
        firsts = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
        self._actions = {text: action for action, text in enumerate(texts)}
        self._events = {
            text: index[first : end + 1].tolist() for text, first, end in zip(texts, firsts, last, strict=True)
        }
        self._halves = paired_halves(changes)
        self._losses = changes.losses()
        self._stored = stored

    def predecessor(self, second: int) -> Carried | None:
        """Return the old key's row before the first half of the key change with the second half ``second``.

        None if that half is not in the batch or did not apply: then another delete removed another row.
        """
        key, first = self._changes.key_changes.old_keys[second], self._halves.get(second)
        if first is None:
            return None
        # c(1) d(1, to 2) c(1) d(1, to 3) c(2, from 1) c(3, from 1): the key has had two rows. Row 2 gets the cells of
        # the life that the first delete ended, row 3 those of the second. Events of the key behind ``ending`` do not
        # count.
        ending = self._changes.key_changes.displaced.get(first, first)
        events = self._events.get(key, [])
        if (end := bisect_left(events, ending)) == len(events) or events[end] != ending:
            return None
        life = self._life(events[:end])
        if life is None or not self._precedes(key, events[:end], first):  # proven: life-before-change
            return None
        # What no event of this life contains comes from the stored row or an older key. Along the chain d(1, to 2)
        # c(2, from 1) d(2, to 3) c(3, from 2), row 3 gets what c(2) contains, and the rest of what c(2) itself got from
        # the row that is stored under key 1.
        inherited: Carried | None = None
        if life.from_stored:
            stored_cells = {column.name: CarriedCell(STORED) for column in self._changes.columns}
            inherited = Carried(self._actions[key], stored_cells)
        elif life.events[0] in self._changes.key_changes.old_keys:
            inherited = self.predecessor(life.events[0])
        candidates = ((column.name, self._cell(column, life, inherited, first)) for column in self._changes.columns)
        cells = {name: cell for name, cell in candidates if cell is not None}
        return Carried(inherited.origin if inherited is not None else STORED, cells)

    def _precedes(self, key: str, events: list[int], first: int) -> bool:
        """Whether the row after ``events`` is certainly older than the first half of its key change."""
        row = self._stored.get(key)
        for event in events:
            deleted = self._changes.operation[event] in _DELETES
            row = None if deleted else succeed(self._changes.version.row(event), row)
        end = self._changes.version.row(first)
        if row is None or row.source_time < end.source_time:
            return True
        return row.source_time == end.source_time and (row.position != NO_POSITION or end.position == NO_POSITION)

    def _cell(self, column: Column, life: _Life, inherited: Carried | None, end: int) -> CarriedCell | None:
        """The cell before the event ``end``, which ends a life; None if the row had none."""
        states = column.states
        # proven: last-cell
        event = next((e for e in reversed(life.events) if states is None or states[e] in _CERTAIN), None)
        if event is not None:
            return CarriedCell(event, self._losses[event] != self._losses[end])
        if inherited is None:
            return None
        if states is not None and not life.from_stored and states[life.events[0]] == CellState.ABSENT:
            return None  # the schema of the second half that began this life lacks the column
        cell = inherited.cells.get(column.name)
        if cell is None or life.from_stored:
            return cell
        return CarriedCell(cell.event, cell.doubtful or self._losses[life.events[0]] != self._losses[end])

    def _life(self, events: list[int]) -> _Life | None:
        """The row's last incarnation in ``events``; None if they end with its delete."""
        life: list[int] = []
        for event in reversed(events):
            operation = self._changes.operation[event]
            if operation in _DELETES:
                return _Life(life, from_stored=False) if life else None
            life.insert(0, event)
            if operation in _IMAGES:  # proven: begin-of-life
                return _Life(life, from_stored=False)
        return _Life(life, from_stored=True)


@dataclass(frozen=True, slots=True)
class _Life:
    """Events of one incarnation of a row; ``from_stored`` if it continues the stored row."""

    events: list[int]
    from_stored: bool


# -- rows that lose their key ------------------------------------------------------------------------------------------


def taken_keys(changes: Changes) -> list[str]:
    """Return the keys that rows get or leave, in sources whose events contain the transaction."""
    halves = [index for index in changes.key_changes.halves if changes.transaction[index] >= 0]
    return sorted({changes.key[index].as_py() for index in halves})


def taken_entry_keys(changes: Changes) -> list[str]:
    """Return the keys of the ledger entries that ``with_displaced`` compares with."""
    halves = [index for index in sorted(changes.key_changes.halves) if changes.transaction[index] >= 0]
    names = [(int(changes.transaction[index]), changes.key[index].as_py()) for index in halves]
    return [_ledger_key(what, *name) for name in names for what in ("onto", "from")]


def with_displaced(
    changes: Changes, ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> tuple[Changes, Mapping[str, RowVersion]]:
    """Return the changes with ``displaced`` set, and the entries for the ledger that record it.

    ``stored`` are the versions of the rows under ``taken_keys``.
    """
    walk = _Walk(changes, ledger)
    events_by_key: dict[str, list[int]] = {key: [] for key in taken_keys(changes)}
    for index in np.flatnonzero(np.asarray(pc.is_in(changes.key, pa.array([*events_by_key], pa.string())))).tolist():
        events_by_key[changes.key[index].as_py()].append(index)
    for key, events in events_by_key.items():
        walk.apply(key, events, stored.get(key))
    return replace(changes, key_changes=replace(changes.key_changes, displaced=walk.displaced)), walk.new_entries


class _Walk:
    def __init__(self, changes: Changes, ledger: Mapping[str, RowVersion]) -> None:
        self._changes = changes
        self._ledger = ledger
        self._second: dict[tuple[str, int], int] = {}
        self.displaced: dict[int, int] = {}
        self.new_entries: dict[str, RowVersion] = {}

    def apply(self, key: str, events: list[int], row: RowVersion | None) -> None:
        """Apply one key's events in order of arrival."""
        # d(1) c(2 from 1) d(2) c(3 from 2): when c(2) comes, key 2 still has its old row, so c(2) takes the key, and
        # the d(2) of the same transaction belongs to the row that had it before: it deletes nothing.
        tombstone = self._ledger.get(key)
        before = -1
        for event in events:
            version = self._changes.version.row(event)
            if self._changes.operation[event] in _DELETES:
                if self._is_displaced(key, event, before, version):
                    self.displaced[event] = self._second.get((key, int(self._changes.transaction[event])), -1)
                elif row is None or outranks(version, row):
                    row = None
            elif all(rival is None or outranks(version, rival) for rival in (row, tombstone)):
                transaction = int(self._changes.transaction[event])
                if row is not None and event in self._changes.key_changes.old_keys and transaction >= 0:
                    # The row gets a key that another row has.
                    self._second[key, transaction] = event
                    self._record(_ledger_key("onto", transaction, key), version)
                row = succeed(version, row)
            before = event

    def _is_displaced(self, key: str, event: int, before: int, version: RowVersion) -> bool:
        if self._changes.operation[event] == Operation.TOMBSTONE:
            repeated = before in self.displaced and self._changes.operation[before] == Operation.DELETE
            return repeated and not self._second_half_between(key, before, event)
        transaction = int(self._changes.transaction[event])
        onto = self._recorded_version(_ledger_key("onto", transaction, key))
        if event not in self._changes.key_changes.first_halves or onto is None or version.position <= onto.position:
            return False
        left = self._recorded_version(_ledger_key("from", transaction, key))
        if left is None:
            self._record(_ledger_key("from", transaction, key), version)
        return left is None or left.position == version.position

    def _second_half_between(self, old_key: str, delete: int, tombstone: int) -> bool:
        """Whether the row has its new key before the tombstone: then this is another one, of the row that took the key.

        In one partition Debezium sends the tombstone of a first half before the second half.
        """
        partition = self._changes.version.partition
        return any(
            key == old_key and delete < second < tombstone and partition[second] == partition[tombstone]
            for second, key in self._changes.key_changes.old_keys.items()
        )

    def _recorded_version(self, name: str) -> RowVersion | None:
        return self.new_entries.get(name) or self._ledger.get(name)

    def _record(self, name: str, version: RowVersion) -> None:
        if self._ledger.get(name) != version:
            self.new_entries[name] = version


def _ledger_key(what: str, transaction: int, key: str) -> str:
    return f"{TAKEN_PREFIX}{what}:{transaction}:{key}"
