"""The law of ``merge.md``: whatever the batch boundaries, whatever comes twice or late, the table equals the model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from properties.reference_model import Event, Model

from headrace.core.events import CellState, Changes, Column, Operation, RowVersion, TableId, Truncate, Versions
from headrace.core.keys import canonical_keys
from headrace.core.reselect import ReselectOptions
from headrace.core.schema import Schema
from headrace.ports import Commit, TableOptions
from headrace.runtime.post_processor import ReselectColumnsPostProcessor
from headrace.runtime.table_pipeline import PipelineOptions, TablePipeline
from headrace_connectors.memory import MemoryLakehouse

COLUMNS = ("a", "b")
TABLE = TableId("s", "db", "public", "t")
INT = Schema("int64", optional=True)


def version(position: int | None, offset: int, partition: int = 0) -> RowVersion:
    text = b"" if position is None else b"00000.%020d" % position
    return RowVersion(text, "t", partition, offset, offset * 1000)


def cells_strategy(states: Sequence[CellState]) -> st.SearchStrategy[dict[str, tuple[CellState, int | None]]]:
    cell = st.sampled_from(states).flatmap(
        lambda state: st.tuples(st.just(state), st.integers(0, 9) if state is CellState.VALUE else st.none())
    )
    return st.fixed_dictionaries(dict.fromkeys(COLUMNS, cell))


FULL = cells_strategy([CellState.VALUE, CellState.VALUE, CellState.NULL])
PARTIAL = cells_strategy(
    [CellState.VALUE, CellState.NULL, CellState.UNCHANGED, CellState.UNCHANGED, CellState.UNKNOWN, CellState.ABSENT]
)
MOVED = cells_strategy([CellState.VALUE, CellState.NULL, CellState.UNCHANGED, CellState.UNCHANGED])


@st.composite
def histories(draw: st.DrawFn) -> list[list[Event]]:
    """What a database did, as a list of units that are delivered whole (a key change is one unit)."""
    live: set[int] = set()
    units: list[list[Event]] = []
    for place in range(1, draw(st.integers(1, 14)) + 1):
        choice = draw(st.sampled_from(["insert", "update", "update", "delete", "move", "read", "truncate"]))
        key = draw(st.integers(1, 4))
        stamp = version(place * 10, len(units))
        if choice == "insert" and key not in live:
            units.append([Event(Operation.CREATE, key, stamp, draw(FULL))])
            live.add(key)
        elif choice == "update" and key in live:
            units.append([Event(Operation.UPDATE, key, stamp, draw(PARTIAL))])
        elif choice == "read" and key in live:
            units.append([Event(Operation.READ, key, version(None, len(units)), draw(FULL))])
        elif choice == "delete" and key in live:
            units.append(draw(st.sampled_from([deleted(key, place), deleted(key, place)[:1]])))
            live.discard(key)
        elif choice == "move" and key in live:
            target = draw(st.integers(1, 4).filter(lambda k, key=key: k != key))
            if target not in live:
                units.append([*moved_away(key, place), moved_in(target, key, place, draw(MOVED))])
                live.discard(key)
                live.add(target)
        elif choice == "truncate":
            units.append([Event(Operation.TRUNCATE, 0, stamp)])
            live.clear()
    return numbered(units)


def deleted(key: int, place: int) -> list[Event]:
    return [Event(Operation.DELETE, key, version(place * 10, 0)), Event(Operation.TOMBSTONE, key, version(None, 0))]


def moved_away(key: int, place: int) -> list[Event]:
    return [replace(event, moved=True) for event in deleted(key, place)]


def moved_in(key: int, old: int, place: int, cells: dict[str, tuple[CellState, int | None]]) -> Event:
    return Event(Operation.CREATE, key, version(place * 10 + 1, 0), cells, old_key=old)


def numbered(units: list[list[Event]]) -> list[list[Event]]:
    """Every event with its own offset."""
    offset, result = 0, []
    for unit in units:
        events = []
        for event in unit:
            events.append(replace(event, version=replace(event.version, offset=offset, source_time=offset * 1000)))
            offset += 1
        result.append(events)
    return result


@st.composite
def deliveries(draw: st.DrawFn, repeats: bool) -> tuple[list[list[Event]], list[int]]:
    """A history, possibly with a stretch that is sent again under higher offsets, and where batches end."""
    units = draw(histories())
    if repeats and units:
        begin = draw(st.integers(0, len(units) - 1))
        end = draw(st.integers(begin, len(units)))
        at = draw(st.integers(end, len(units)))
        units = numbered([*units[:at], *units[begin:end], *units[at:]])
    cuts = draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units)))
    return units, [place for place, cut in enumerate(cuts) if cut]


def changes_of(events: Sequence[Event]) -> Changes:
    columns = [Column("id", Schema("int64"), pa.array([event.key for event in events], pa.int64()))]
    for name in COLUMNS:
        cells = [event.cells.get(name, (CellState.NULL, None)) for event in events]
        states = np.array([state for state, _ in cells], np.uint8)
        open_cells = bool((states > CellState.NULL).any())
        values = pa.array([value for _, value in cells], pa.int64())
        columns.append(Column(name, INT, values, states if open_cells else None))
    return Changes(
        table=TABLE,
        key_fields=("id",),
        operation=np.array([event.operation for event in events], np.uint8),
        key=canonical_keys([columns[0].values]),
        version=Versions(
            "t",
            np.array([event.version.position for event in events], "S26"),
            np.array([event.version.partition for event in events], np.int32),
            np.array([event.version.offset for event in events], np.int64),
            np.array([event.version.source_time for event in events], np.int64),
        ),
        transaction=np.full(len(events), -1, np.int64),
        columns=tuple(columns),
        old_key={i: f"={event.old_key}" for i, event in enumerate(events) if event.old_key is not None},
        moved=frozenset(i for i, event in enumerate(events) if event.moved),
    )


def pieces_of(events: Sequence[Event]) -> list[Changes | Truncate]:
    """A batch's events, cut at truncates as the batch manager does."""
    pieces: list[Changes | Truncate] = []
    run: list[Event] = []
    for event in events:
        if event.operation is Operation.TRUNCATE:
            pieces += [changes_of(run)] if run else []
            pieces.append(Truncate(TABLE, event.version))
            run = []
        else:
            run.append(event)
    return pieces + ([changes_of(run)] if run else [])


class Table:
    """A pipeline over a memory table that can be restarted between batches."""

    def __init__(self) -> None:
        self._lakehouse = MemoryLakehouse()
        self.restart()

    def restart(self) -> None:
        self.memory = self._lakehouse.table("n", "t", TableOptions())
        self._pipeline = TablePipeline(
            "n.t",
            self.memory,
            ReselectColumnsPostProcessor(ReselectOptions()),
            PipelineOptions(unresolved_insert_mode="null"),
            now=lambda: 0,
            stages=lambda stage: nullcontext(),
        )

    def write(self, events: Sequence[Event]) -> None:
        for piece in pieces_of(events):
            self._pipeline.write(piece, Commit(0, "c", "g", {}))

    def rows(self) -> dict[int, dict[str, int | None]]:
        return {row["id"]: {name: row.get(name) for name in COLUMNS} for row in self.memory.rows().values()}


def expected(units: list[list[Event]]) -> dict[int, dict[str, int | None]]:
    model = Model(COLUMNS)
    for unit in units:
        for event in unit:
            model.apply(event)
    return model.table()


def deliver(units: list[list[Event]], cuts: list[int], *, restarts: bool = False) -> Table:
    table = Table()
    pending: list[Event] = []
    for place, unit in enumerate(units):
        pending += unit
        if place in cuts:
            table.write(pending)
            pending = []
            if restarts:
                table.restart()
    if pending:
        table.write(pending)
    return table


@settings(max_examples=3000, deadline=None)
@given(deliveries(repeats=False))
def test_any_batch_boundaries_give_the_model(delivery: tuple[list[list[Event]], list[int]]) -> None:
    """A history in any batches gives the table of the model."""
    units, cuts = delivery
    assert deliver(units, cuts).rows() == expected(units)


@settings(max_examples=3000, deadline=None)
@given(deliveries(repeats=True))
def test_a_stretch_sent_again_changes_nothing_but_what_the_model_says(
    delivery: tuple[list[list[Event]], list[int]],
) -> None:
    """A restarted connector sends a stretch again under higher offsets; restarts between batches forget memory."""
    units, cuts = delivery
    assert deliver(units, cuts, restarts=True).rows() == expected(units)


@settings(max_examples=300, deadline=None)
@given(deliveries(repeats=False), st.data())
def test_reading_again_from_an_older_offset_gives_the_same_table(
    delivery: tuple[list[list[Event]], list[int]], data: st.DataObject
) -> None:
    """After a crash the group's offset is behind the table: the same records come again in other batches."""
    units, cuts = delivery
    table = deliver(units, cuts)
    begin = data.draw(st.integers(0, len(units)))
    again = data.draw(st.lists(st.booleans(), min_size=len(units), max_size=len(units)))
    table.restart()
    pending: list[Event] = []
    for unit, cut in zip(units[begin:], again, strict=False):
        pending += unit
        if cut:
            table.write(pending)
            pending = []
    if pending:
        table.write(pending)
    assert table.rows() == expected(units)
