"""Contract of histories (``insert.mode=insert``) in every lake: one row per event, exactly once.

A test class provides the fixture ``lake``, a ``LakeHarness``; every test writes a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from properties.columns import changes_of, table_id
from properties.reference_model import Event
from support.lake.lake_actions import commit, text
from support.lake.lake_harness import ITEM, NOW, LakeHarness, apply, item

from headrace.core.model.errors import Fatal
from headrace.core.model.events import CellState, Changes, Column, Operation, RowVersion, Truncate, Versions
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import LakeTable, TableOptions, TopicPartition
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace_dev.memory import MemoryLakehouse

Row = tuple[Any, ...]
Write = Callable[..., None]


def event(
    operation: Operation,
    offset: int,
    a: object = 0,
    *,
    key: int = 1,
    partition: int = 0,
    position: int | None = None,
    time: int | None = None,
) -> Event:
    """A change at a coordinate; b is always null.

    ``a`` may be a CellState without a value. The position is the offset unless it is given; -1 is none.
    """
    cells = {"a": (a, None) if isinstance(a, CellState) else (CellState.VALUE, a), "b": (CellState.NULL, None)}
    image = {} if operation in (Operation.DELETE, Operation.TOMBSTONE) else cells
    position = offset if position is None else position
    at = offset if time is None else time
    return Event(operation, key, RowVersion(b"" if position < 0 else text(position), "t", partition, offset, at), image)


def read(offset: int, a: object, **where: int) -> Event:
    """A snapshot read, which has no position."""
    return event(Operation.READ, offset, a, position=-1, **where)


def random_events(choose: Random, keys: int) -> Iterator[Event]:
    """Events of keys that repeat, arrive late, omit cells, and are in two partitions if the key is odd.

    Source times order the arrival of the latter only: those of one partition may go back.
    """
    operations = (Operation.CREATE, Operation.UPDATE, Operation.UPDATE, Operation.UPDATE, Operation.DELETE)
    for number in range(8 * keys):
        key = choose.randrange(keys)
        a = choose.choice([number, number, CellState.UNCHANGED])
        where = {"key": key, "partition": choose.randint(0, 1) if key % 2 else 0}
        where["time"] = number if key % 2 else number - choose.randint(0, 3 * keys)
        if choose.random() < 0.2:
            yield read(number, a, **where)
            continue
        late = choose.choice([0, 0, 0, 0, choose.randint(0, 4 * keys)])
        # Positions repeat, as of events that are sent again.
        position = max(number - late, 1) // 8 * keys + key
        yield event(choose.choice(operations), number, a, position=position, **where)


def last_states(table: LakeTable, keys: Sequence[int] | None = None) -> dict[int, Row]:
    """(a, position, offset, unavailable) of the last states by id."""
    wanted = None if keys is None else pa.table({"id": pa.array(keys, pa.int64())})
    rows = [row for piece in table.last_states(["id"], ["id", "a"], wanted) for row in piece.to_pylist()]
    own = [f"__headrace_{what}" for what in ("position", "offset", "unavailable")]
    states = {row["id"]: (row["a"], *(row[name] for name in own)) for row in rows}
    assert len(states) == len(rows)
    return states


def keyless(offsets: Sequence[int]) -> Changes:
    """Inserts into a table without a key."""
    count = len(offsets)
    return Changes(
        table=table_id(0),
        key_fields=(),
        operation=np.full(count, Operation.CREATE, np.uint8),
        key=pa.nulls(count, pa.string()),
        version=Versions(
            "t", np.full(count, b"", "S26"), np.zeros(count, np.int32), np.array(offsets), np.array(offsets)
        ),
        transaction=np.full(count, -1),
        columns=(Column("a", Schema("int64"), pa.array(offsets, pa.int64())),),
    )


def _pipeline(name: str, table: LakeTable) -> HistoryPipeline:
    return HistoryPipeline(
        name,
        table,
        Reselect(ReselectOptions()),
        PipelineOptions(),
        now=lambda: NOW,
        stages=lambda stage: nullcontext(),
    )


class HistorySuite:
    """Run by a subclass per lake."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("history")

    @pytest.fixture
    def start(self, lake: LakeHarness, name: str) -> Callable[[], Write]:
        """Starts a worker; the returned function writes events (or changes, or a truncate) as one batch."""

        def start() -> Write:
            pipeline = _pipeline(name, lake.open(name, history=True))

            def write(*events: Event | Changes | Truncate) -> None:
                first = events[0]
                pipeline.write(changes_of(events) if isinstance(first, Event) else first, commit())
                pipeline.maintain()

            return write

        return start

    @pytest.fixture
    def rows(self, lake: LakeHarness, name: str) -> Callable[[], list[Row]]:
        """Reads (offset, operation, a, unavailable) in the order of offsets."""
        own = [f"__headrace_{what}" for what in ("offset", "operation", "unavailable")]

        def read() -> list[Row]:
            found = sorted(lake.read(name).to_pylist(), key=lambda row: (row["__headrace_partition"], row[own[0]]))
            return [(row[own[0]], row[own[1]], row["a"], row[own[2]]) for row in found]

        return read

    def test_every_event_is_a_row(self, start: Callable[[], Write], rows: Callable[[], list[Row]]) -> None:
        """The history has a row per change, delete and truncate, but none for the tombstone after a delete."""
        write = start()
        write(event(Operation.READ, 1, 1), event(Operation.UPDATE, 2, 2))
        write(event(Operation.DELETE, 3), event(Operation.TOMBSTONE, 4), event(Operation.CREATE, 5, 5))
        write(Truncate(table_id(0), RowVersion(text(6), "t", 0, 6, 6)))
        assert rows() == [
            (1, "r", 1, None),
            (2, "u", 2, None),
            (3, "d", None, None),
            (5, "c", 5, None),
            (6, "t", None, None),
        ]

    def test_unavailable_cells(self, start: Callable[[], Write], rows: Callable[[], list[Row]]) -> None:
        """An unavailable cell gets the value of an earlier event of the batch; otherwise it is null and marked.

        It gets no value from before a delete.
        """
        omitted = CellState.UNCHANGED
        write = start()
        write(event(Operation.UPDATE, 1, omitted), event(Operation.UPDATE, 2, 2), event(Operation.UPDATE, 3, omitted))
        write(event(Operation.DELETE, 4), event(Operation.UPDATE, 5, omitted), event(Operation.UPDATE, 6, None))
        assert rows() == [
            (1, "u", None, ["a"]), (2, "u", 2, None), (3, "u", 2, None),
            (4, "d", None, None), (5, "u", None, ["a"]), (6, "u", None, None),
        ]  # fmt: skip

    def test_what_is_read_again_is_there_once(self, start: Callable[[], Write], rows: Callable[[], list[Row]]) -> None:
        """An event that is read again adds no row, by the same worker or by one that reads the commits first."""
        write = start()
        write(event(Operation.CREATE, 1, 1), event(Operation.CREATE, 7, 7, partition=1))
        write(event(Operation.UPDATE, 2, 2))
        write(event(Operation.CREATE, 1, 1), event(Operation.UPDATE, 2, 2))
        again = start()
        again(event(Operation.UPDATE, 2, 2), event(Operation.UPDATE, 3, 3))
        again(event(Operation.CREATE, 7, 7, partition=1), event(Operation.UPDATE, 8, 8, partition=1))
        assert [offset for offset, *_ in rows()] == [1, 2, 3, 7, 8]

    def test_two_workers_at_once(self, start: Callable[[], Write], rows: Callable[[], list[Row]]) -> None:
        """A worker that has lost its assignment adds no row that is stored already."""
        zombie = start()
        zombie(event(Operation.CREATE, 1, 1))
        start()(event(Operation.UPDATE, 2, 2), event(Operation.UPDATE, 3, 3))
        zombie(event(Operation.UPDATE, 2, 2))
        assert [offset for offset, *_ in rows()] == [1, 2, 3]

    def test_offsets_of_a_commit(self, lake: LakeHarness, name: str, start: Callable[[], Write]) -> None:
        """Each commit carries the offsets of all partitions; it names the group only if others write the table."""
        write = start()
        write(event(Operation.CREATE, 1, 1), event(Operation.CREATE, 7, 7, partition=1))
        write(event(Operation.UPDATE, 2, 2))
        table = lake.open(name, history=True)
        assert table.offsets("connect-sink") == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 8}

    def test_tables_without_a_key(self, start: Callable[[], Write], rows: Callable[[], list[Row]]) -> None:
        """A table without a key has one row per event, also for equal events."""
        start()(keyless([1, 2]))
        start()(keyless([2, 3]))
        assert [(offset, a) for offset, _, a, _ in rows()] == [(1, 1), (2, 2), (3, 3)]

    def test_the_last_state_of_each_key(self, lake: LakeHarness, name: str, start: Callable[[], Write]) -> None:
        """It is that of the highest position, or of a read that arrived later, and has the cells that it omits.

        A key is not there after its delete, nor after a truncate that outranks it.
        """
        omitted, update = CellState.UNCHANGED, Operation.UPDATE
        write = start()
        assert last_states(lake.open(name, history=True)) == {}
        write(event(Operation.CREATE, 1, 1, key=1), event(Operation.CREATE, 2, 1, key=2))
        write(event(update, 3, 3, key=1), event(Operation.DELETE, 4, key=2))
        write(event(Operation.CREATE, 5, 5, key=3), event(update, 6, 6, key=3, position=30))
        write(event(update, 7, 7, key=3, position=20), event(update, 8, 8, key=3, position=30))  # late, and sent again
        write(event(update, 9, 9, key=4), read(10, 10, key=4), event(update, 11, omitted, key=4, position=11))
        write(event(update, 12, omitted, key=4), read(13, 13, key=5), read(14, 14, key=5))
        write(event(Operation.CREATE, 15, 15, key=6), event(Operation.DELETE, 16, key=6))
        write(event(update, 17, omitted, key=6), event(Operation.CREATE, 18, 18, key=7))
        write(Truncate(table_id(0), RowVersion(text(18), "t", 0, 19, 19)))
        assert last_states(lake.open(name, history=True)) == {3: (6, text(30).decode(), 6, None)}
        write(event(Operation.CREATE, 20, 20, key=7), read(21, 21, key=1), event(update, 22, omitted, key=8))
        write(event(update, 23, 23, key=9), event(Operation.DELETE, 24, key=2))
        write(event(update, 25, omitted, key=9))
        table = lake.open(name, history=True)
        expected = {
            1: (21, text(3).decode(), 21, None),
            3: (6, text(30).decode(), 6, None),
            7: (20, text(20).decode(), 20, None),
            8: (None, text(22).decode(), 22, ["a"]),
            9: (23, text(25).decode(), 25, ["a"]),
        }
        assert last_states(table) == expected
        assert last_states(table, [2, 3, 9, 10]) == {key: expected[key] for key in (3, 9)}
        assert last_states(table, []) == {}

    def test_the_last_states_of_random_histories(
        self, lake: LakeHarness, name: str, start: Callable[[], Write]
    ) -> None:
        """They are those of a fold of the events in the order of their arrival."""
        keys, choose = 200, Random(7)
        lakehouse = MemoryLakehouse()
        expected = lakehouse.table("n", "t", TableOptions(history=True))
        in_memory = _pipeline(name, expected)
        write, events = start(), list(random_events(choose, keys))
        for begin in range(0, len(events), 400):
            part = events[begin : begin + 400]
            write(*part)
            in_memory.write(changes_of(part), commit())
        assert last_states(lake.open(name, history=True)) == last_states(expected)
        truncate = Truncate(table_id(0), RowVersion(text(4 * keys), "t", 0, len(events), len(events) // 2))
        write(truncate)
        in_memory.write(truncate, commit())
        found = last_states(expected)
        assert 10 < len(found) < keys - 10
        assert last_states(lake.open(name, history=True)) == found
        some = list(range(0, keys, 3))
        assert last_states(lake.open(name, history=True), some) == {key: found[key] for key in some if key in found}

    def test_events_without_a_key_have_no_last_state(
        self, lake: LakeHarness, name: str, start: Callable[[], Write]
    ) -> None:
        """A delete has the columns of its record's key only. Without the compared ones it belongs to no row."""
        start()(event(Operation.CREATE, 1, 1), event(Operation.DELETE, 2))
        with pytest.raises(Fatal, match=r"no value in a"):
            list(lake.open(name, history=True).last_states(["a"], ["id"]))

    def test_a_table_is_of_one_kind(self, lake: LakeHarness, name: str, start: Callable[[], Write]) -> None:
        """A table that was created with one insert.mode cannot be written with the other."""
        start()(keyless([1]))
        with pytest.raises(Fatal, match=r"another insert\.mode"):
            lake.open(name).schema()
        table = lake.open(f"{name}_merged")
        table.evolve(ITEM, ["id"])
        apply(table, item(1, position=1))
        with pytest.raises(Fatal, match=r"another insert\.mode"):
            lake.open(f"{name}_merged", history=True).schema()
