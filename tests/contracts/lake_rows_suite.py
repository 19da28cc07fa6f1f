"""Which rows of a batch a ``ports.LakeTable`` applies: the position gate, deletes, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.lake.lake_actions import delete, text
from support.lake.lake_harness import ITEM, LakeFixtures, LakeHarness, Make, apply, item, items

from headrace.core.model.events import UNVERSIONED
from headrace.ports import LakeTable


class LakeRowsSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_first_rows_are_all_there(self, lake: LakeHarness, name: str, rows: Any) -> None:
        """A batch for an empty table inserts its upserts and ignores its deletes."""
        table = lake.open(name)
        table.evolve(ITEM, ["id"])
        assert apply(table, item(1, position=1), item(2, None, position=2), delete({"id": 3}, position=3)) == (2, 0)
        assert rows() == {1: ("n", "o", 1), 2: (None, "o", 1)}

    def test_a_higher_position_applies(self, table: LakeTable, rows: Any) -> None:
        """An update above the stored position replaces every cell, nulls included."""
        assert apply(table, item(1, "new", None, 2, position=11, at=11)) == (1, 0)
        assert rows() == {1: ("new", None, 2)}

    def test_an_equal_or_lower_position_does_not(self, made: Make, rows: Any) -> None:
        """The same change again, or an older one, changes nothing and is not counted, even if it arrives later."""
        table = made(item(2, position=10, at=10))
        assert apply(table, item(1, "old", position=10, at=99), item(2, "old", position=9, at=99)) == (0, 0)
        assert apply(table, delete({"id": 1}, position=10, at=99), delete({"id": 2}, position=9, at=99)) == (0, 0)
        assert rows() == {1: ("one", "note", 1), 2: ("n", "o", 1)}

    def test_the_oldest_event_of_an_action_decides(self, table: LakeTable, rows: Any) -> None:
        """An action whose oldest event is not above the stored position does not apply at all."""
        assert apply(table, item(1, "new", position=12, first=10)) == (0, 0)
        assert apply(table, item(1, "new", position=12, first=11)) == (1, 0)
        assert rows()[1][0] == "new"

    def test_without_a_position_arrival_decides(self, made: Make, rows: Any) -> None:
        """Without positions, the offset decides within a partition, and the source time between partitions."""
        table = made(*(item(key, "one", position=10, at=10) for key in range(2, 6)))
        reads = [
            item(1, "read", at=11, source_time=5),
            item(2, "read", at=10, source_time=99),
            item(3, "read", at=9, source_time=99),
            item(4, "read", at=1, source_time=11, partition=1),
            item(5, "read", at=99, source_time=10, partition=1),
        ]
        assert apply(table, *reads) == (2, 0)
        assert {key for key, cells in rows().items() if cells[0] == "read"} == {1, 4}

    def test_a_stored_position_is_never_lowered(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A snapshot read replaces the row but not its position; an older update still does not apply."""
        apply(table, item(1, "read", at=20))
        stored = table.stored(items(item(1)))["1"]
        assert (stored.position, stored.offset) == (text(10), 20)
        assert apply(table, item(1, "late", position=9, at=30)) == (0, 0)

    def test_mixed_gates_in_one_batch(self, made: Make, rows: Any) -> None:
        """One batch may have rows with and without positions, some of which apply."""
        table = made(item(2, "two", position=5, at=11), item(3, "three", at=12))
        batch = [item(1, "x", at=9), item(2, "x", position=6, at=13), item(3, "x", at=12), item(4, "x", at=1)]
        assert apply(table, *batch) == (2, 0)
        assert {key: cells[0] for key, cells in rows().items()} == {1: "one", 2: "x", 3: "three", 4: "x"}

    def test_rows_of_other_writers_are_below_everything(
        self, lake: LakeHarness, name: str, table: LakeTable, rows: Any
    ) -> None:
        """Every change applies to rows with null version columns, with or without a position."""
        for key in (7, 8):
            lake.load_otherwise(name, {"id": key, "name": "bulk", "note": "b", "qty": 0})
        assert table.stored(items(item(7))) == {"7": UNVERSIONED}
        assert apply(table, item(7, "x", position=1, at=-1), item(8, "x", at=0, source_time=-5)) == (2, 0)
        assert rows()[7][0] == rows()[8][0] == "x"

    def test_deletes(self, made: Make, rows: Any) -> None:
        """A delete above the stored position removes the row; a lower one, or one without a row, changes nothing."""
        table = made(item(2, position=20), item(3, position=20))
        batch = [delete({"id": 1}, position=11), delete({"id": 2}, position=19), delete({"id": 99}, position=50)]
        assert apply(table, *batch) == (0, 1)
        assert set(rows()) == {2, 3}

    def test_a_table_may_begin_with_deletes(self, lake: LakeHarness, name: str) -> None:
        """Deletes change nothing in a new table, and the rows of the next batch are inserted."""
        table = lake.open(name)
        table.evolve(ITEM, ["id"])
        assert apply(table, delete({"id": 1}, position=1), delete({"id": 2}, position=1)) == (0, 0)
        assert apply(table, item(3, position=2)) == (1, 0)
        assert [row["id"] for row in lake.read(name).to_pylist()] == [3]

    def test_a_batch_of_every_kind_is_counted(self, made: Make, rows: Any) -> None:
        """Updates, inserts and deletes of one batch are counted exactly."""
        table = made(*[item(key, position=key) for key in range(20, 40)])
        batch = [item(key, "u", position=100) for key in range(20, 26)]
        batch += [delete({"id": key}, position=100) for key in range(26, 30)]
        batch += [item(key, "i", position=100) for key in range(50, 55)] + [item(30, position=1)]
        assert apply(table, *batch) == (11, 4)
        assert len(rows()) == 1 + 20 - 4 + 5

    def test_a_batch_of_which_nothing_is_left(
        self, lake: LakeHarness, name: str, table: LakeTable, rows: Callable[[], Any]
    ) -> None:
        """A batch whose events are all stale makes no commit."""
        before = lake.summary(name)
        assert apply(table) == (0, 0)
        assert lake.summary(name) == before
        assert set(rows()) == {1}
