"""Contract of tables with ``delete.mode=soft`` in every lake: deleted rows stay and are marked.

All queries treat such a row as missing. N5 of ``reselect.md`` section 6: its cells are not kept.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from contracts.pipeline_suite import event
from properties.columns import changes_of
from support.lake.lake_actions import CARRY, KEEP, TOPIC, Row, actions, commit, delete, text
from support.lake.lake_harness import ITEM, NOW, LakeHarness, apply, item, items

from headrace.core.model.errors import Fatal
from headrace.core.model.events import Operation, RowVersion
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import LakeTable
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline

Rows = Callable[[], dict[int, tuple[Any, ...]]]


class SoftDeleteSuite:
    """Run by a subclass per lake."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("soft")

    @pytest.fixture
    def table(self, lake: LakeHarness, name: str) -> LakeTable:
        """Rows 1 and 2 at position 10; row 2 is deleted at position 20."""
        table = lake.open(name, soft_delete=True)
        table.evolve(ITEM, ["id"])
        apply(table, item(1, "one", "note", 1, position=10), item(2, "two", "note2", 2, position=10))
        assert apply(table, delete({"id": 2}, position=20, at=20)) == (0, 1)
        return table

    @pytest.fixture
    def rows(self, lake: LakeHarness, name: str) -> Rows:
        """Reads (name, note, qty, deleted) by id."""

        def read() -> dict[int, tuple[Any, ...]]:
            found = lake.read(name).to_pylist()
            assert len({row["id"] for row in found}) == len(found)
            return {row["id"]: (row["name"], row["note"], row["qty"], row["__headrace_deleted"]) for row in found}

        return read

    def test_a_deleted_row_stays_as_it_was(self, lake: LakeHarness, name: str, table: LakeTable, rows: Rows) -> None:
        """A deleted row keeps its cells and gets the version of its delete; a repeated or older delete is ignored."""
        assert rows() == {1: ("one", "note", 1, False), 2: ("two", "note2", 2, True)}
        (row,) = [row for row in lake.read(name).to_pylist() if row["id"] == 2]
        assert (row["__headrace_position"], row["__headrace_offset"]) == (text(20).decode(), 20)
        again = [delete({"id": 2}, position=20), delete({"id": 1}, position=9), delete({"id": 7}, position=30)]
        assert apply(table, *again) == (0, 0)

    def test_every_kind_is_counted(self, table: LakeTable, rows: Rows) -> None:
        """The table counts updates, inserts, inserts onto deleted rows, and deletes with and without effect."""
        apply(table, *(item(key, position=10) for key in range(10, 20)))
        batch = [item(1, position=30), item(2, position=30), item(3, position=30), item(10, position=1)]
        batch += [delete({"id": key}, position=30) for key in (11, 12, 99)] + [delete({"id": 13}, position=5)]
        assert apply(table, *batch) == (3, 2)
        assert {key for key, cells in rows().items() if cells[3]} == {11, 12}

    def test_n05_nothing_is_kept_from_a_deleted_row(self, table: LakeTable, rows: Rows) -> None:
        """A row with kept cells is not merged into a deleted row, and a key change carries no cells from one."""
        assert apply(table, item(2, "new", KEEP, position=30)) == (0, 0)
        moved = [delete({"id": 2}, position=31), item(3, "moved", CARRY, position=32, fresh=True, carry=0)]
        assert apply(table, *moved) == (0, 0)
        assert rows()[2] == ("two", "note2", 2, True)

    def test_a_new_row_has_nothing_of_the_deleted_one(self, table: LakeTable, rows: Rows) -> None:
        """A row that is inserted again has neither cells nor the position of the deleted one."""
        narrow = pa.schema([ITEM.field("id"), ITEM.field("name")])
        assert table.merge(actions(narrow, [Row({"id": 2, "name": "new"}, at=1)]), commit()).upserted == 1
        assert rows()[2] == ("new", None, None, False)
        assert table.stored(items(item(2)))["2"].position == b""

    def test_deleted_rows_are_not_read(self, table: LakeTable) -> None:
        """The exact path and ``headrace verify`` do not read deleted rows."""
        assert set(table.stored(items(item(1), item(2)))) == {"1"}
        assert [row["id"] for part in table.scan(["id"]) for row in part.to_pylist()] == [1]
        keys = pa.table({"id": pa.array([1, 2], pa.int64())})
        assert table.read(keys)["id"].to_pylist() == [1]

    def test_a_truncate_marks_what_it_outranks(self, table: LakeTable, rows: Rows) -> None:
        """A truncate marks rows of lower positions and keeps the others."""
        apply(table, item(3, position=40))
        floor = RowVersion(text(30), TOPIC, 0, 30, 30)
        table.record_tombstones({"": floor}, NOW)
        table.truncate(floor, commit())
        assert {key: cells[3] for key, cells in rows().items()} == {1: True, 2: True, 3: False}

    def test_a_table_may_begin_to_mark(self, lake: LakeHarness, unique: Callable[[str], str]) -> None:
        """A table with rows may switch to soft deletes.

        The way back is refused, since readers may depend on the marks.
        """
        name = unique("hard")
        before = lake.open(name)
        before.evolve(ITEM, ["id"])
        apply(before, item(1, position=1), item(2, position=1))
        assert apply(lake.open(name, soft_delete=True), delete({"id": 1}, position=2)) == (0, 1)
        after = lake.open(name, soft_delete=True)
        assert set(after.stored(items(item(1), item(2)))) == {"2"}
        with pytest.raises(Fatal, match=r"delete\.mode"):
            lake.open(name).schema()

    def test_a_late_update_wakes_no_deleted_row(self, lake: LakeHarness, name: str, rows: Rows) -> None:
        """insert@1, delete@3, update@2 in three batches with a restart between them, and insert@4.

        The update does not restore the row; the insert does.
        """
        name = f"{name}_late"

        def write(*events: Any) -> list[tuple[Any, ...]]:
            pipeline = TablePipeline(
                name,
                lake.open(name, soft_delete=True),
                Reselect(ReselectOptions()),
                PipelineOptions(),
                now=lambda: NOW,
                stages=lambda stage: nullcontext(),
            )
            pipeline.write(changes_of(events), commit())
            return [(row["a"], row["__headrace_deleted"]) for row in lake.read(name).to_pylist()]

        assert write(event(Operation.CREATE, 1, a=1, b=1)) == [(1, False)]
        assert write(event(Operation.DELETE, 3)) == [(1, True)]
        assert write(event(Operation.UPDATE, 2, a=2, b=2)) == [(1, True)]
        assert write(event(Operation.CREATE, 4, a=4, b=4)) == [(4, False)]
