"""Contract of a table's pipeline in every lake: batches with restarts between them.

A test class provides the fixture ``lake``, a ``LakeHarness``; every test writes a table of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from properties.columns import changes_of, pieces_of, table_id
from properties.reference_model import Event
from support.lake.lake_actions import commit, text
from support.lake.lake_harness import DAY, NOW, LakeHarness

from headrace.core.batch.combine import combine
from headrace.core.model.absent_columns import ColumnDefault, ColumnDefaults
from headrace.core.model.errors import Fatal, HeadraceError
from headrace.core.model.events import CellState, Changes, Operation, RowVersion, Truncate
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import LakeTable
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline

RETENTION = 7 * DAY


def event(operation: Operation, position: int, **cells: int) -> Event:
    """A change of row 1. It arrives in the order of offsets of one partition, also if it is late."""
    values = {name: (CellState.VALUE, value) for name, value in cells.items()}
    return Event(operation, 1, RowVersion(text(position), "t", 0, next(_offsets), position), values)


_offsets = iter(range(10**9))


def change_of(key: int, operation: Operation, position: int, **cells: int | None) -> Event:
    """A change of any row; None is an unavailable cell."""
    found = event(operation, position, **{name: cell for name, cell in cells.items() if cell is not None})
    lacking = {name: (CellState.UNCHANGED, None) for name, cell in cells.items() if cell is None}
    return replace(found, key=key, cells={**found.cells, **lacking})


def opened(name: str, table: LakeTable, now: Callable[[], int] = lambda: NOW) -> TablePipeline:
    """The pipeline of a worker that has just started."""
    return TablePipeline(
        name,
        table,
        Reselect(ReselectOptions()),
        PipelineOptions(tombstone_retention=RETENTION),
        now=now,
        stages=lambda stage: nullcontext(),
    )


class Overtaken:
    """A table whose writer pauses before it calls the method ``before``, while the test does something else."""

    def __init__(self, table: LakeTable, before: str = "merge") -> None:
        self._table = table
        self._before = before
        self.interruptions: list[Callable[[], object]] = []

    def __getattr__(self, name: str) -> Any:
        """The attribute of the table; the writer pauses before the call of ``before``."""
        while name == self._before and self.interruptions:
            self.interruptions.pop()()
        return getattr(self._table, name)


class PipelineSuite:
    """Run by a subclass per lake."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("late")

    @pytest.fixture
    def write(self, lake: LakeHarness, name: str) -> Callable[..., LakeTable]:
        """Writes events as one batch with a worker that has just started; maintains the table at ``now``."""

        def write(*events: Event, now: int = NOW) -> LakeTable:
            table = lake.open(name)
            pipeline = opened(name, table, lambda: now)
            if events:
                pieces = [piece for _, piece in pieces_of(events) if isinstance(piece, Changes)]
                pipeline.write(combine(pieces), commit())
            pipeline.maintain()
            return table

        return write

    @pytest.fixture
    def rows(self, lake: LakeHarness, name: str) -> Callable[[], list[tuple[int, int]]]:
        """Reads (id, a)."""
        return lambda: [(row["id"], row["a"]) for row in lake.read(name).select(["id", "a"]).to_pylist()]

    def test_a_late_update_brings_no_deleted_row_back(
        self, write: Callable[..., LakeTable], rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """insert@1, delete@3, update@2 in three batches: no row. An insert@4 is a row again (merge.md section 3)."""
        write(event(Operation.CREATE, 1, a=1, b=1))
        assert rows() == [(1, 1)]
        write(event(Operation.DELETE, 3))
        write(event(Operation.UPDATE, 2, a=2, b=2))
        assert rows() == []
        write(event(Operation.CREATE, 4, a=4, b=4))
        assert rows() == [(1, 4)]

    def test_a_column_that_an_event_lacks_is_kept(
        self, write: Callable[..., LakeTable], rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """The merge keeps the value of a column that is dropped within a batch (merge.md section 8).

        Other rows of the batch still have the column.
        """
        write(event(Operation.CREATE, 1, a=1, b=1))
        dropped = replace(event(Operation.UPDATE, 3, b=3), columns=(("id", "int64"), ("b", "int64")))
        before = replace(event(Operation.CREATE, 2, a=2, b=2), key=2)
        write(before, dropped)
        assert sorted(rows()) == [(1, 1), (2, 2)]

    def test_what_a_worker_writes_that_was_overtaken_brings_no_deleted_row_back(
        self, lake: LakeHarness, name: str, write: Callable[..., LakeTable], rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """A writer pauses before its merge; its successor inserts and deletes the row at once, without a trace.

        The successor writes the first row of the table that the writer has just created; the table has that row once.
        """
        insert, delete = event(Operation.CREATE, 1, a=1, b=1), event(Operation.DELETE, 3)
        table = Overtaken(lake.open(name))
        slow = opened(name, table)
        table.interruptions = [lambda: write(replace(insert, key=2))]
        slow.write(changes_of([replace(insert, key=2)]), commit())
        table.interruptions = [lambda: write(insert, delete)]
        slow.write(changes_of([insert]), commit())
        assert rows() == [(2, 1)]

    def test_a_worker_that_was_overtaken_sees_whose_key_its_successor_has_taken(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """``id = id + 1`` over rows 1 and 2: both workers apply the delete of key 2 to the row that had it before.

        The first worker pauses before it reads the stored rows, which by then are those of its successor.
        """
        old = [change_of(key, Operation.READ, 1, a=key) for key in (1, 2)]
        opened(name, lake.open(name)).write(changes_of(old), commit())
        moves: list[Event] = []
        for key, position in ((1, 3), (2, 4)):
            left = change_of(key, Operation.DELETE, position)
            made = change_of(key + 1, Operation.CREATE, position, a=key)
            moves += [replace(left, moved=True, new_key=key + 1), replace(made, old_key=key)]
        shift = changes_of([replace(move, transaction=7) for move in moves])
        table = Overtaken(lake.open(name), "stored")
        table.interruptions = [lambda: opened(name, lake.open(name)).write(shift, commit())]
        opened(name, table).write(shift, commit())
        assert sorted(rows()) == [(2, 1), (3, 2)]

    def test_a_value_that_another_worker_has_removed_with_its_row_is_not_missed(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """Key 1 becomes 2 and omits b, then 2 is deleted: a row without b is no error, because the row is gone.

        A fenced worker writes all of it, its successor only the first half. The successor finds no row with b.
        """
        opened(name, lake.open(name)).write(changes_of([change_of(1, Operation.READ, 1, a=1, b=9)]), commit())
        left = replace(change_of(1, Operation.DELETE, 3), moved=True, new_key=2)
        made = replace(change_of(2, Operation.CREATE, 3, a=1, b=None), old_key=1)
        end = change_of(2, Operation.DELETE, 4)
        table = Overtaken(lake.open(name), "stored")
        table.interruptions = [lambda: opened(name, lake.open(name)).write(changes_of([left, made, end]), commit())]
        successor = opened(name, table)
        successor.write(changes_of([left, made]), commit())
        successor.write(changes_of([end]), commit())
        assert rows() == []

    def test_a_row_takes_no_value_from_the_next_row_of_its_old_key(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """A row does not get values of the next row with its old key.

        Key 1 becomes 2 and omits a, 1 is inserted again, 2 is deleted. A fenced worker writes all of it before the
        merge of its successor. The successor knows the delete from an earlier worker and has yet to read it.
        """
        opened(name, lake.open(name)).write(changes_of([change_of(1, Operation.READ, 1, a=9)]), commit())
        left = replace(change_of(1, Operation.DELETE, 3), moved=True, new_key=2)
        made = replace(change_of(2, Operation.CREATE, 3, a=None), old_key=1)
        again, end = change_of(1, Operation.CREATE, 4, a=5), change_of(2, Operation.DELETE, 5)
        everything = changes_of([left, made, again, end])
        killed, table = Overtaken(lake.open(name)), Overtaken(lake.open(name))
        killed.interruptions = [lambda: pytest.fail("killed before its merge")]
        with suppress(pytest.fail.Exception):
            opened(name, killed).write(everything, commit())
        table.interruptions = [lambda: opened(name, lake.open(name)).write(everything, commit())]
        opened(name, table).write(changes_of([left, made]), commit())
        assert rows() == [(1, 5)]

    def test_a_truncate_before_the_first_row_outlives_the_worker(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """A worker is killed after it commits the offset of a truncate; older rows of other partitions stay removed."""
        truncate = Truncate(table_id(0), RowVersion(text(5), "t", 0, next(_offsets), 5))
        opened(name, lake.open(name)).write(truncate, commit())
        after = opened(name, lake.open(name))
        read = replace(event(Operation.READ, 3, a=3, b=3), version=RowVersion(text(3), "t", 1, 0, 3))
        after.write(changes_of([read, replace(event(Operation.CREATE, 6, a=6, b=6), key=2)]), commit())
        assert rows() == [(2, 6)]

    def test_a_default_before_the_first_row_outlives_the_worker(self, lake: LakeHarness, name: str) -> None:
        """A worker is killed after it commits the offset of an ALTER TABLE; an older row still gets the default."""
        added = ColumnDefaults(table_id(0), RowVersion(text(5), "s", 0, 0, 5), (ColumnDefault("b", "number", "7"),))
        opened(name, lake.open(name)).write(added, commit())
        after = opened(name, lake.open(name))
        old = replace(event(Operation.CREATE, 3, a=3), columns=(("id", "int64"), ("a", "int64")))
        after.write(changes_of([old]), commit())
        after.write(changes_of([replace(event(Operation.CREATE, 6, a=6, b=6), key=2)]), commit())
        assert sorted((row["id"], row["b"]) for row in lake.read(name).to_pylist()) == [(1, 7), (2, 6)]

    def test_an_outage_empties_no_ledger(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """The storage is unavailable before a merge and available again during the retry; no deleted row comes back."""
        table = Overtaken(lake.open(name))
        pipeline = opened(name, table)
        pipeline.write(changes_of([event(Operation.CREATE, 1, a=1, b=1)]), commit())
        pipeline.write(changes_of([event(Operation.DELETE, 3)]), commit())
        other = changes_of([replace(event(Operation.CREATE, 6, a=6, b=6), key=2)])
        outage = ExitStack()
        table.interruptions = [lambda: outage.enter_context(lake.hidden(name))]
        with outage:
            with pytest.raises(HeadraceError):
                pipeline.write(other, commit())
            with suppress(HeadraceError):
                pipeline.prepare()
        pipeline.write(other, commit())
        pipeline.write(changes_of([event(Operation.UPDATE, 2, a=2, b=2)]), commit())
        assert rows() == [(2, 6)]

    def test_the_ledger_shrinks_after_its_retention(self, write: Callable[..., LakeTable]) -> None:
        """The pipeline keeps a tombstone for the configured retention and no longer."""
        write(event(Operation.CREATE, 1, a=1, b=1))
        write(event(Operation.DELETE, 3))
        assert list(write(now=NOW + RETENTION - DAY).ledger()) == ["=1"]
        assert list(write(now=NOW + RETENTION + DAY).ledger()) == []

    def test_a_worker_that_runs_on_forgets_as_well(
        self, lake: LakeHarness, name: str, rows: Callable[[], list[tuple[int, int]]]
    ) -> None:
        """A running worker evicts deletes after two retentions at most, and handles later events as after a restart."""
        now = [NOW]
        pipeline = opened(name, lake.open(name), lambda: now[0])
        for each in (event(Operation.CREATE, 1, a=1, b=1), event(Operation.DELETE, 3)):
            pipeline.write(changes_of([each]), commit())
        now[0] += RETENTION + DAY
        pipeline.maintain()
        pipeline.write(changes_of([event(Operation.UPDATE, 2, a=2, b=2)]), commit())
        assert rows() == [(1, 2)]

    def test_an_update_of_a_row_that_was_deleted_since(self, lake: LakeHarness, name: str) -> None:
        """A worker is killed before the offset commit.

        Its successor gets the update in a separate batch, and no source has the cells any more.
        """
        events = [
            change_of(1, Operation.CREATE, 1, a=1, b=1),
            change_of(1, Operation.UPDATE, 2, a=2, b=None),
            change_of(1, Operation.DELETE, 3),
            change_of(1, Operation.UPDATE, 4, a=4, b=None),
        ]
        first = opened(name, lake.open(name))
        first.write(changes_of(events[:1]), commit())
        first.write(changes_of(events[1:3]), commit())
        second = opened(name, lake.open(name))
        for each in events[1:3]:
            assert not second.write(changes_of([each]), commit())
            assert lake.read(name).num_rows == 0
        with pytest.raises(Fatal, match="omits"):
            second.write(changes_of(events[3:]), commit())


class LeftOutSuite:
    """Omitted changes that no source completes, with ``reselect.unresolved.insert.mode=dlq``."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("left")

    def test_what_nothing_completes_is_omitted(self, lake: LakeHarness, name: str) -> None:
        """The pipeline omits such changes from a batch with an existing, a missing, and a deleted and new row."""
        table = lake.open(name)
        options = PipelineOptions(unresolved_insert_mode="dlq")
        reselect = Reselect(ReselectOptions())
        pipeline = TablePipeline(name, table, reselect, options, lambda: NOW, lambda stage: nullcontext())
        both = changes_of([change_of(key, Operation.CREATE, key, a=key, b=1) for key in (1, 2)])
        assert not pipeline.write(both, commit())
        events = [
            change_of(1, Operation.UPDATE, 3, a=3, b=None),
            change_of(9, Operation.UPDATE, 4, a=4, b=None),
            change_of(2, Operation.DELETE, 5),
            change_of(2, Operation.CREATE, 6, a=6, b=None),
        ]
        left = pipeline.write(changes_of(events), commit())
        assert [each.version.offset for each in left] == [events[1].version.offset, events[3].version.offset]
        assert [(row["id"], row["a"]) for row in lake.read(name).select(["id", "a"]).to_pylist()] == [(1, 3)]
        assert list(table.ledger()) == ["=2"]
