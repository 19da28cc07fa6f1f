"""Key changes: what the row under the new key takes over from the row under the old one (``merge.md`` section 6).

PostgreSQL leaves unchanged TOAST columns out of a key change as well, so the second half (``c`` with the oldkey
header) has holes that only the old row can fill. The old row's cells are looked for in the batch, along chains (1 to 2
to 3) and swaps; what the batch does not hold is in the table, under the key where the chain began.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.events import CellState, Changes, Column, Operation

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
    changes: Changes, index: Ints, begin: Ints, last: Ints, codes: Ints, keys: pa.StringArray
) -> Mapping[int, Carried]:
    """For each action (by place) that is the second half of a key change: what it takes from the old key's row.

    ``index``, ``begin``, ``last`` and ``codes`` are those of ``fold.Incarnations``. A half whose first part is not in
    this batch has no entry: its holes are filled by reselect, or by the unresolved policy.
    """
    tracer = _Tracer(changes, index, last, codes, keys)
    found = {}
    for place, event in enumerate(index[begin].tolist()):
        if event in changes.old_key:
            carried = tracer.predecessor(changes.old_key[event], event)
            if carried is not None:
                found[place] = carried
    return found


class _Tracer:
    def __init__(self, changes: Changes, index: Ints, last: Ints, codes: Ints, keys: pa.StringArray) -> None:
        self._changes = changes
        texts = keys.take(pa.array(codes)).to_pylist()
        firsts = np.concatenate([[0], last[:-1] + 1]) if len(last) else last
        self._places = {text: place for place, text in enumerate(texts)}
        self._events = {text: index[first : end + 1] for text, first, end in zip(texts, firsts, last, strict=True)}
        self._halves = first_halves(changes)
        self._losses = changes.losses()

    def predecessor(self, key: str, before: int) -> Carried | None:
        """The row under ``key`` as it stood before the first half of the key change whose second is ``before``.

        None if that half did not apply: what another delete removed was another row.
        """
        events = [event for event in self._events.get(key, ()) if event < before]
        if not events or self._changes.operation[events[-1]] not in _DELETES:
            return None
        if events[-1] < max((half for half in self._halves.get(key, ()) if half < before), default=events[-1]):
            return None
        life = self._life(events[:-1])
        if life is None:
            return None
        inherited = self._inherited(key, life)
        found = ((column.name, self._cell(column, life, inherited, events[-1])) for column in self._changes.columns)
        cells = {name: cell for name, cell in found if cell is not None}
        return Carried(inherited.origin if inherited is not None else STORED, cells)

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
        older = self._changes.old_key.get(life.events[0])
        return None if older is None else self.predecessor(older, life.events[0])


def first_halves(changes: Changes) -> Mapping[str, Sequence[int]]:
    """The deletes that are first halves of key changes, by key."""
    found: dict[str, list[int]] = {}
    for event in changes.moved:
        if changes.operation[event] == Operation.DELETE:
            found.setdefault(changes.key[event].as_py(), []).append(event)
    return found


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
