"""Changes for tests, built from rows of plain values instead of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.core.model.events import CellState, Changes, Column, KeyChanges, Operation, RowVersion, TableId, Versions
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Schema

TABLE = TableId("shop", "shop", "public", "items")
UNCHANGED, UNKNOWN, ABSENT = CellState.UNCHANGED, CellState.UNKNOWN, CellState.ABSENT
Cell = int | None | CellState


@dataclass(frozen=True)
class Event:
    """One change: ``cells`` contain a number, None for NULL, or a CellState. ``lsn`` is None for no position.

    A delete that is ``moved`` without a ``new_key`` has the key of the next insert whose ``old_key`` is its key.
    """

    operation: Operation
    key: int
    lsn: int | None
    cells: dict[str, Cell] = field(default_factory=dict)
    old_key: int | None = None
    moved: bool = False
    new_key: int | None = None
    partition: int = 0
    offset: int | None = None


def create(key: int, lsn: int, **cells: Cell) -> Event:
    return Event(Operation.CREATE, key, lsn, cells)


def update(key: int, lsn: int | None, **cells: Cell) -> Event:
    return Event(Operation.UPDATE, key, lsn, cells)


def read(key: int, **cells: Cell) -> Event:
    return Event(Operation.READ, key, None, cells)


def delete(key: int, lsn: int | None, *, moved: bool = False) -> Event:
    return Event(Operation.DELETE, key, lsn, moved=moved)


def tombstone(key: int) -> Event:
    return Event(Operation.TOMBSTONE, key, None)


def position(lsn: int | None) -> bytes:
    return b"" if lsn is None else b"00000.%020d" % lsn


def version(lsn: int | None, offset: int, partition: int = 0) -> RowVersion:
    return RowVersion(position(lsn), "t", partition, offset, offset * 1000)


def changes(*events: Event, columns: Sequence[str] = ("a",)) -> Changes:
    """Return the events in order of arrival; offsets without a value count from 0."""
    offsets = [index if event.offset is None else event.offset for index, event in enumerate(events)]
    ids = Column("id", Schema("int64"), pa.array([event.key for event in events], pa.int64()))
    return Changes(
        table=TABLE,
        key_fields=("id",),
        operation=np.array([event.operation for event in events], np.uint8),
        key=canonical_keys([ids.values]),
        version=Versions(
            "t",
            np.array([position(event.lsn) for event in events], "S26"),
            np.array([event.partition for event in events], np.int32),
            np.array(offsets, np.int64),
            np.array(offsets, np.int64) * 1000,
        ),
        transaction=np.full(len(events), -1, np.int64),
        columns=(ids, *(_column(name, events) for name in columns)),
        key_changes=KeyChanges(
            {i: f"={event.old_key}" for i, event in enumerate(events) if event.old_key is not None},
            frozenset(i for i, event in enumerate(events) if event.moved),
            {i: f"={key}" for i, key in _new_keys(events) if key is not None},
        ),
    )


def _new_keys(events: Sequence[Event]) -> Iterator[tuple[int, int | None]]:
    for index, event in enumerate(events):
        if event.moved:
            following = (each.key for each in events[index:] if each.old_key == event.key)
            yield index, event.new_key if event.new_key is not None else next(following, None)


def _column(name: str, events: Sequence[Event]) -> Column:
    cells = [event.cells.get(name) for event in events]
    states = np.array([_state(cell) for cell in cells], np.uint8)
    values = pa.array([None if isinstance(cell, CellState) else cell for cell in cells], pa.int64())
    return Column(name, Schema("int64", optional=True), values, states if (states > CellState.NULL).any() else None)


def _state(cell: Cell) -> CellState:
    if isinstance(cell, CellState):
        return cell
    return CellState.NULL if cell is None else CellState.VALUE
