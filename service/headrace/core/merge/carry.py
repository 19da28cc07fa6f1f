"""Key changes: what the row under the new key takes over from the row under the old one (``merge.md`` section 6).

PostgreSQL omits unchanged TOAST columns from a key change as well, so the second half (``c`` with the oldkey header)
has open cells that only the old row can supply: the row that the first half of the same change ended
(``core/batch/event_pairs.py``), and no other row that had the old key before or after it. Its cells are searched in the
batch, along chains (1 to 2 to 3) and swaps; what the batch does not hold is in the table, under the key where the chain
began.

A snapshot read has no source position. One that was read while the connector lagged shows a state from after the events
that follow it in the topic, possibly of another row that has the old key by then. So a row whose last event may be such
a read supplies nothing, unless that event is older than the key change by the source's clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.batch.event_pairs import paired_halves
from headrace.core.model.events import NO_POSITION, CellState, Changes, Column, Operation, RowVersion
from headrace.core.model.ranking import succeed

Ints = npt.NDArray[np.int64]

STORED = -1
"""Instead of an event's index: the cell is that of the stored row."""

_DELETES = (Operation.DELETE, Operation.TOMBSTONE)
_IMAGES = (Operation.CREATE, Operation.READ)


@dataclass(frozen=True, slots=True)
class CarriedCell:
    """The event that holds a cell, or STORED. ``doubtful`` if a record was lost between it and the key change."""

    event: int
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Carried:
    """The cells that one new row takes over, by column.

    ``origin`` is the place of the action whose stored row STORED cells come from, or -1.
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
    """For each action (by place) that is the second half of a key change: what it takes from the old key's row.

    ``index``, ``begin``, ``last`` and ``codes`` are those of ``fold.Incarnations``; ``stored`` are the versions of the
    stored rows, as far as they are known. A second half whose first half is not in this batch, or does not apply, has
    no entry: reselect or the unresolved policy supplies its open cells.
    """
    tracer = _Tracer(changes, index, last, codes, keys, stored)
    found = {}
    for place, event in enumerate(index[begin].tolist()):
        if event in changes.old_key:
            carried = tracer.predecessor(event)
            if carried is not None:
                found[place] = carried
    return found


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
        self._places = {text: place for place, text in enumerate(texts)}
        self._events = {
            text: index[first : end + 1].tolist() for text, first, end in zip(texts, firsts, last, strict=True)
        }
        self._halves = paired_halves(changes)
        self._losses = changes.losses()
        self._stored = stored

    def predecessor(self, second: int) -> Carried | None:
        """The row under the old key as the first half of the key change found it, whose second half is ``second``.

        None if that half is not here or did not apply: the row that another delete removed is another row.
        """
        key, first = self._changes.old_key[second], self._halves.get(second)
        if first is None:
            return None
        ending = self._changes.displaced.get(first, first)
        events = self._events.get(key, [])
        if (end := bisect_left(events, ending)) == len(events) or events[end] != ending:
            return None
        life = self._life(events[:end])
        if life is None or not self._precedes(key, events[:end], first):
            return None
        inherited = self._inherited(key, life)
        found = ((column.name, self._cell(column, life, inherited, first)) for column in self._changes.columns)
        cells = {name: cell for name, cell in found if cell is not None}
        return Carried(inherited.origin if inherited is not None else STORED, cells)

    def _precedes(self, key: str, events: list[int], first: int) -> bool:
        """Whether the row that ``events`` left is certain to be older than the first half of its key change."""
        row = self._stored.get(key)
        for event in events:
            deleted = self._changes.operation[event] in _DELETES
            row = None if deleted else succeed(self._changes.version.row(event), row)
        end = self._changes.version.row(first)
        if row is None or row.source_time < end.source_time:
            return True
        return row.source_time == end.source_time and (row.position != NO_POSITION or end.position == NO_POSITION)

    def _cell(self, column: Column, life: _Life, inherited: Carried | None, end: int) -> CarriedCell | None:
        """The cell as it stood when the event ``end`` ended a life; None if the row had none."""
        event = _latest_cell(column.states, life.events)
        if event is not None:
            return CarriedCell(event, self._losses[event] != self._losses[end])
        if inherited is None or _began_without(column.states, life):
            return None
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
            if operation in _IMAGES:
                return _Life(life, from_stored=False)
        return _Life(life, from_stored=True)

    def _inherited(self, key: str, life: _Life) -> Carried | None:
        """Where cells come from that no event of this life holds: the stored row, an older key, or nowhere."""
        if life.from_stored:
            return Carried(self._places[key], {column.name: CarriedCell(STORED) for column in self._changes.columns})
        return self.predecessor(life.events[0]) if life.events[0] in self._changes.old_key else None


@dataclass(frozen=True, slots=True)
class _Life:
    """Events of one incarnation of a row; ``from_stored`` if it goes on from the row in the table."""

    events: list[int]
    from_stored: bool


def _began_without(states: npt.NDArray[np.uint8] | None, life: _Life) -> bool:
    """Whether the schema of a key change's second half had no such column, so that nothing came over with it."""
    return states is not None and not life.from_stored and states[life.events[0]] == CellState.ABSENT


def _latest_cell(states: npt.NDArray[np.uint8] | None, life: list[int]) -> int | None:
    """The last event of a life that holds the cell."""
    for event in reversed(life):
        if states is None or states[event] in (CellState.VALUE, CellState.NULL):
            return event
    return None
