"""Cells that a merge keeps from the stored row, or copies from the row with the old key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from support.lake.lake_actions import CARRY, KEEP, TOPIC, Row, actions, commit, delete
from support.lake.lake_harness import ITEM, LakeFixtures, LakeHarness, Make, apply, item, items

from headrace.ports import LakeTable, MergeCounts


class LakeCellsSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_kept_cells_stay(self, made: Make, rows: Any) -> None:
        """The merge keeps cells row by row and column by column, beside rows whose cells are all in the batch."""
        table = made(item(2, "two", "note2", 2, position=10))
        batch = [item(1, "new", KEEP, None, position=11), item(2, KEEP, None, KEEP, position=11), item(3, position=11)]
        assert apply(table, *batch) == (3, 0)
        assert rows() == {1: ("new", "note", None), 2: ("two", None, 2), 3: ("n", "o", 1)}

    def test_a_row_with_kept_cells_is_not_inserted(self, table: LakeTable, rows: Any) -> None:
        """There is no stored row to keep cells from; the caller has to find the cells elsewhere."""
        assert apply(table, item(5, "x", KEEP, position=11)) == (0, 0)
        assert set(rows()) == {1}

    def test_kept_cells_of_a_row_below_the_gate(self, table: LakeTable, rows: Any) -> None:
        """The gate is the same for rows that keep cells."""
        assert apply(table, item(1, "x", KEEP, position=9)) == (0, 0)
        assert rows()[1][0] == "one"

    def test_large_batches_are_the_same_in_two_parts(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """The merge may commit rows that keep cells separately from the others; the newest commit has the offsets."""
        known = [item(key, f"n{key}", position=20, at=key) for key in range(10, 6_010)]
        kept = [item(1, "kept", KEEP, position=20), item(7_000, KEEP, position=20)]
        counts = table.merge(items(*kept, *known), commit(7, **{TOPIC: 42}))
        assert counts == MergeCounts(6_001, 0)
        found = lake.read(name).select(["id", "name", "note"]).to_pylist()
        assert len(found) == 6_001
        assert [row for row in found if row["id"] == 1] == [{"id": 1, "name": "kept", "note": "note"}]
        assert lake.summary(name)["headrace.batch-id"] == "7"

    def test_a_moved_row_takes_its_cells_along(self, table: LakeTable, rows: Any) -> None:
        """A key change deletes the old row, and the new row gets its unchanged cells."""
        batch = [delete({"id": 1}, position=11), item(2, "moved", CARRY, CARRY, position=12, fresh=True, carry=0)]
        assert apply(table, *batch) == (1, 1)
        assert rows() == {2: ("moved", "note", 1)}

    def test_a_row_moved_twice_takes_its_first_cells(self, made: Make, rows: Any) -> None:
        """1 -> 2 -> 3 in one batch: the cells come from the row that was stored under key 1."""
        table = made(item(2, "two", "note2", 2, position=10))
        batch = [
            delete({"id": 1}, position=13),
            delete({"id": 2}, position=15),
            item(3, "third", CARRY, 3, position=16, fresh=True, carry=0),
        ]
        assert apply(table, *batch) == (1, 2)
        assert rows() == {3: ("third", "note", 3)}

    def test_two_rows_that_swap_their_keys(self, made: Make, rows: Any) -> None:
        """Both rows get the cells that the other had before the merge; a third row in the batch keeps its own."""
        table = made(item(2, "two", "note2", 2, position=10), item(4, "four", "note4", 4, position=10))
        batch = [
            item(1, "was 2", CARRY, CARRY, position=13, fresh=True, carry=1),
            item(2, "was 1", CARRY, CARRY, position=14, fresh=True, carry=0),
            item(4, KEEP, KEEP, 44, position=15),
            item(5, "plain", position=16),
        ]
        assert apply(table, *batch) == (4, 0)
        assert rows() == {
            1: ("was 2", "note2", 2),
            2: ("was 1", "note", 1),
            4: ("four", "note4", 44),
            5: ("plain", "o", 1),
        }

    def test_nothing_is_carried_from_a_row_that_is_not_there(self, table: LakeTable, rows: Any) -> None:
        """A CARRY row without its old row is neither inserted nor updated, because its cells are unknown."""
        batch = [delete({"id": 8}, position=11), item(9, "x", CARRY, position=12, fresh=True, carry=0)]
        batch += [delete({"id": 7}, position=11), item(1, "x", CARRY, position=12, fresh=True, carry=2)]
        assert apply(table, *batch) == (0, 0)
        assert rows() == {1: ("one", "note", 1)}

    def test_nothing_is_carried_from_a_row_that_was_replaced(self, made: Make, rows: Any) -> None:
        """The merge copies no cells if another worker wrote a later row under the old key since this worker read it.

        A snapshot read has no position.
        """
        table = made(item(2, "two", "note2", 2, position=10), item(3, "three", "note3", 3, at=5))
        read = table.stored(items(item(1, position=1), item(2, position=1), item(3, position=1)))
        assert apply(table, delete({"id": 1}, position=11), item(3, "four", "note4", 4, at=9)) == (1, 1)
        assert apply(table, item(1, "later", "other", 9, position=12)) == (1, 0)
        moved = items(
            item(1, "again", position=20),
            item(2, "gone", position=20),
            item(3, "anew", position=20),
            item(4, "of 1", CARRY, position=20, fresh=True, carry=0),
            item(5, "of 2", CARRY, position=20, fresh=True, carry=1),
            item(6, "of 3", CARRY, position=20, fresh=True, carry=2),
        )
        assert moved.carried is not None
        moved = replace(moved, carried=replace(moved.carried, versions=read))
        assert table.merge(moved, commit()) == MergeCounts(4, 0)
        assert {key: row[:2] for key, row in rows().items() if key > 3} == {5: ("of 2", "note2")}

    def test_columns_that_the_batch_does_not_know(self, made: Make, rows: Any) -> None:
        """An update keeps columns that the batch lacks; an insert, also one after a delete, sets them to null."""
        table = made(item(2, "two", "note2", 2, position=10))
        narrow = pa.schema([ITEM.field("id"), ITEM.field("name")])
        batch = [Row({"id": 1, "name": "a"}, position=11), Row({"id": 2, "name": "b"}, position=11, fresh=True)]
        table.merge(actions(narrow, [*batch, Row({"id": 3, "name": "c"}, position=11)]), commit())
        assert rows() == {1: ("a", "note", 1), 2: ("b", None, None), 3: ("c", None, None)}

    def test_a_key_of_several_columns(self, lake: LakeHarness, name: str) -> None:
        """Rows are identified, and carried cells are found, by all columns of the key."""
        schema = pa.schema([("shop", pa.string()), ("nr", pa.int32()), ("name", pa.string())])
        table = lake.open(name)
        assert table.key_fields() == ()
        table.evolve(schema, ["shop", "nr"])

        def write(*rows: Row) -> MergeCounts:
            return table.merge(actions(schema, rows, ["shop", "nr"]), commit())

        write(*(Row({"shop": shop, "nr": nr, "name": f"{shop}{nr}"}, position=1) for shop in "ab" for nr in (1, 2)))
        gone, moved = {"shop": "a", "nr": 1}, {"shop": "it's \\", "nr": 3, "name": CARRY}
        counts = write(delete(gone, position=2), Row(moved, position=3, fresh=True, carry=0))
        assert counts == MergeCounts(1, 1)
        found = {(row["shop"], row["nr"]): row["name"] for row in lake.read(name).to_pylist()}
        assert found == {("a", 2): "a2", ("b", 1): "b1", ("b", 2): "b2", ("it's \\", 3): "a1"}
        assert lake.open(name).key_fields() == table.key_fields() == ("shop", "nr")
