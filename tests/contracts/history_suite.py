"""Contract of histories (``insert.mode=insert``) in every lake: one row per event, exactly once.

A test class provides the fixture ``lake``, a ``LakeHarness``; every test writes a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
from headrace.ports import TopicPartition
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect

Row = tuple[Any, ...]
Write = Callable[..., None]


def event(operation: Operation, offset: int, a: object = 0, *, key: int = 1, partition: int = 0) -> Event:
    """A change at a coordinate. ``a`` may be a CellState without a value; b is always null."""
    cells = {"a": (a, None) if isinstance(a, CellState) else (CellState.VALUE, a), "b": (CellState.NULL, None)}
    image = {} if operation in (Operation.DELETE, Operation.TOMBSTONE) else cells
    return Event(operation, key, RowVersion(text(offset), "t", partition, offset, offset), image)


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


class HistorySuite:
    """Run by a subclass per lake."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("history")

    @pytest.fixture
    def start(self, lake: LakeHarness, name: str) -> Callable[[], Write]:
        """Starts a worker; the returned function writes events (or changes, or a truncate) as one batch."""

        def start() -> Write:
            pipeline = HistoryPipeline(
                name,
                lake.open(name, history=True),
                Reselect(ReselectOptions()),
                PipelineOptions(),
                now=lambda: NOW,
                stages=lambda stage: nullcontext(),
            )

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
