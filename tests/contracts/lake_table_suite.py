"""What every ``ports.LakeTable`` does, whatever stands behind it.

A test class gives the fixture ``lake``, a ``LakeHarness``; every test writes a table of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import cycle, islice
from typing import Any, Protocol

import pyarrow as pa
import pytest
from contracts.lake_actions import CARRY, KEEP, TOPIC, Row, actions, commit, delete, text

from headrace.core.errors import Fatal
from headrace.core.events import Actions, RowVersion
from headrace.core.ranking import UNVERSIONED
from headrace.ports import Commit, LakeTable, MergeCounts, TopicPartition
from headrace_connectors.lakehouse import upkeep

ITEM = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string()), ("qty", pa.int32())])
NOW = 1_790_000_000_000_000
DAY = 24 * 3600 * 1_000_000


class LakeHarness(Protocol):
    """A lakehouse as the suite sees it."""

    def open(self, name: str, **options: Any) -> LakeTable:
        """A new handle for a table; ``options`` are those of ``TableOptions``."""

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        """Make a table without Headrace."""

    def read(self, name: str) -> pa.Table:
        """The whole table, own columns included, in any order."""

    def summary(self, name: str) -> Mapping[str, str]:
        """What the newest commit says about itself."""

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        """Insert a row without Headrace: its version columns are null."""


Make = Callable[..., LakeTable]


def item(key: int, name: Any = "n", note: Any = "o", qty: Any = 1, **more: Any) -> Row:
    """A row of ITEM."""
    return Row({"id": key, "name": name, "note": note, "qty": qty}, **more)


def apply(table: LakeTable, *rows: Row) -> tuple[int, int]:
    """Merge rows of ITEM as one batch; (upserted, deleted)."""
    counts = table.merge(items(*rows), commit())
    return counts.upserted, counts.deleted


def items(*rows: Row) -> Actions:
    return actions(ITEM, rows)


TYPES: Sequence[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [0.5, float("inf"), float("-inf"), 1.1754943508222875e-38]),
    (pa.float64(), [-0.0, 1.7976931348623157e308, float("inf"), 5e-324]),
    (pa.decimal128(12, 2), [Decimal("-9999999999.99"), Decimal("0.01")]),
    (pa.decimal128(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    (pa.decimal128(38, 38), [Decimal("0." + "9" * 38)]),
    (pa.string(), ["", "ünï 😀 \x00 \n", "x" * 100_000]),
    (pa.binary(), [b"", bytes(range(256)), b"\xff" * 100_000]),
    (pa.date32(), [-719162, 2932896, -(2**31), 2**31 - 1, -2147472691, -1000000]),
    (pa.timestamp("us"), [0, -62135596800000000, 253402300799999999, 9223372036825200000, -9223372036832400000,
                          2**63 - 1, -(2**63)]),
    (pa.timestamp("us", tz="UTC"), [1, -62135596800000000, 253402300799999999, 9223372036825200000,
                                    -9223372036832400000]),
    (pa.list_(pa.int32()), [[], [1, None, 3]]),
    (pa.list_(pa.list_(pa.string())), [[], [[], None, ["a", None]]]),
    (pa.map_(pa.string(), pa.string()), [[], [("a", "1"), ("b", None)]]),
    (pa.struct([("x", pa.float64()), ("y", pa.float64())]), [{"x": 1.5, "y": None}]),
    (pa.struct([("wkb", pa.binary()), ("srid", pa.int32())]), [{"wkb": b"\x01", "srid": None}]),
]  # fmt: skip
"""Every kind of type, with values at the ends of its range."""

_ITEMS = pa.struct([("a", pa.decimal128(9, 3)), ("b", pa.list_(pa.timestamp("us", tz="UTC")))])
LISTS_OF_STRUCTS = [(pa.list_(_ITEMS), [[{"a": Decimal("1.250"), "b": [None]}, None]])]
"""In a table of their own: PyIceberg 0.12 reads a null one as an empty one; in the Parquet file the null is there."""


class LakeTableSuite:
    """Run by a subclass per implementation."""

    @pytest.fixture
    def name(self, unique: Callable[[str], str]) -> str:
        return unique("item")

    @pytest.fixture
    def made(self, lake: LakeHarness, name: str) -> Make:
        """Makes an ITEM table with the row 1@10 (offset 10) and more, so that merges are merges and not appends."""

        def make(*more: Row) -> LakeTable:
            table = lake.open(name)
            table.evolve(ITEM, ["id"])
            apply(table, item(1, "one", "note", 1, position=10, at=10), *more)
            return table

        return make

    @pytest.fixture
    def table(self, made: Make) -> LakeTable:
        """With that row alone."""
        return made()

    @pytest.fixture
    def rows(self, lake: LakeHarness, name: str) -> Callable[[], dict[int, tuple[Any, ...]]]:
        """Reads ITEM: (name, note, qty) by id."""

        def read() -> dict[int, tuple[Any, ...]]:
            found = lake.read(name).select(ITEM.names).to_pylist()
            assert len({row["id"] for row in found}) == len(found)
            return {row["id"]: (row["name"], row["note"], row["qty"]) for row in found}

        return read

    # -- which rows apply ---------------------------------------------------------------------------------------------

    def test_first_rows_are_all_there(self, lake: LakeHarness, name: str, rows: Any) -> None:
        """A batch for an empty table inserts its upserts and forgets its deletes."""
        table = lake.open(name)
        table.evolve(ITEM, ["id"])
        assert apply(table, item(1, position=1), item(2, None, position=2), delete({"id": 3}, position=3)) == (2, 0)
        assert rows() == {1: ("n", "o", 1), 2: (None, "o", 1)}

    def test_a_higher_position_applies(self, table: LakeTable, rows: Any) -> None:
        """An update above the stored position replaces every cell, nulls included."""
        assert apply(table, item(1, "new", None, 2, position=11, at=11)) == (1, 0)
        assert rows() == {1: ("new", None, 2)}

    def test_an_equal_or_lower_position_does_not(self, made: Make, rows: Any) -> None:
        """The same change again, or an older one, changes nothing and is not counted, however late it arrives."""
        table = made(item(2, position=10, at=10))
        assert apply(table, item(1, "old", position=10, at=99), item(2, "old", position=9, at=99)) == (0, 0)
        assert apply(table, delete({"id": 1}, position=10, at=99), delete({"id": 2}, position=9, at=99)) == (0, 0)
        assert rows() == {1: ("one", "note", 1), 2: ("n", "o", 1)}

    def test_the_oldest_event_of_an_action_decides(self, table: LakeTable, rows: Any) -> None:
        """An action that reaches back to the stored position does not apply as a whole."""
        assert apply(table, item(1, "new", position=12, first=10)) == (0, 0)
        assert apply(table, item(1, "new", position=12, first=11)) == (1, 0)
        assert rows()[1][0] == "new"

    def test_without_a_position_arrival_decides(self, made: Make, rows: Any) -> None:
        """Within a partition by offset, from another one by source time."""
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
        """A snapshot read takes the row but not its position; an old update stays old."""
        apply(table, item(1, "read", at=20))
        stored = table.stored(items(item(1)))["1"]
        assert (stored.position, stored.offset) == (text(10), 20)
        assert apply(table, item(1, "late", position=9, at=30)) == (0, 0)

    def test_mixed_gates_in_one_batch(self, made: Make, rows: Any) -> None:
        """Rows with and without positions, applying and not, side by side."""
        table = made(item(2, "two", position=5, at=11), item(3, "three", at=12))
        batch = [item(1, "x", at=9), item(2, "x", position=6, at=13), item(3, "x", at=12), item(4, "x", at=1)]
        assert apply(table, *batch) == (2, 0)
        assert {key: cells[0] for key, cells in rows().items()} == {1: "one", 2: "x", 3: "three", 4: "x"}

    def test_rows_of_other_writers_are_below_everything(
        self, lake: LakeHarness, name: str, table: LakeTable, rows: Any
    ) -> None:
        """Null version columns: whatever comes applies, with or without a position."""
        for key in (7, 8):
            lake.load_otherwise(name, {"id": key, "name": "bulk", "note": "b", "qty": 0})
        assert table.stored(items(item(7))) == {"7": UNVERSIONED}
        assert apply(table, item(7, "x", position=1, at=-1), item(8, "x", at=0, source_time=-5)) == (2, 0)
        assert rows()[7][0] == rows()[8][0] == "x"

    def test_deletes(self, made: Make, rows: Any) -> None:
        """A delete above the stored position removes the row; below it, or without a row, it is nothing."""
        table = made(item(2, position=20), item(3, position=20))
        batch = [delete({"id": 1}, position=11), delete({"id": 2}, position=19), delete({"id": 99}, position=50)]
        assert apply(table, *batch) == (0, 1)
        assert set(rows()) == {2, 3}

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
        """All of its events were stale: there is nothing to write, and no commit that says so."""
        before = lake.summary(name)
        assert apply(table) == (0, 0)
        assert lake.summary(name) == before
        assert set(rows()) == {1}

    # -- kept and carried cells ---------------------------------------------------------------------------------------

    def test_kept_cells_stay(self, made: Make, rows: Any) -> None:
        """Row by row and column by column, beside rows that know all their cells."""
        table = made(item(2, "two", "note2", 2, position=10))
        batch = [item(1, "new", KEEP, None, position=11), item(2, KEEP, None, KEEP, position=11), item(3, position=11)]
        assert apply(table, *batch) == (3, 0)
        assert rows() == {1: ("new", "note", None), 2: ("two", None, 2), 3: ("n", "o", 1)}

    def test_a_row_with_kept_cells_is_not_inserted(self, table: LakeTable, rows: Any) -> None:
        """There is nothing to keep; the caller has to find the cells elsewhere."""
        assert apply(table, item(5, "x", KEEP, position=11)) == (0, 0)
        assert set(rows()) == {1}

    def test_kept_cells_of_a_row_below_the_gate(self, table: LakeTable, rows: Any) -> None:
        """The gate is the same for rows that keep cells."""
        assert apply(table, item(1, "x", KEEP, position=9)) == (0, 0)
        assert rows()[1][0] == "one"

    def test_large_batches_are_the_same_in_two_parts(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Rows that keep cells may go apart from the others; offsets stand in the newest commit all the same."""
        known = [item(key, f"n{key}", position=20, at=key) for key in range(10, 6_010)]
        kept = [item(1, "kept", KEEP, position=20), item(7_000, KEEP, position=20)]
        counts = table.merge(items(*kept, *known), commit(7, **{TOPIC: 42}))
        assert counts == MergeCounts(6_001, 0)
        found = lake.read(name).select(["id", "name", "note"]).to_pylist()
        assert len(found) == 6_001
        assert [row for row in found if row["id"] == 1] == [{"id": 1, "name": "kept", "note": "note"}]
        assert lake.summary(name)["headrace.batch-id"] == "7"

    def test_a_moved_row_takes_its_cells_along(self, table: LakeTable, rows: Any) -> None:
        """A key change: the old row goes, the new one has its unchanged cells."""
        batch = [delete({"id": 1}, position=11), item(2, "moved", CARRY, CARRY, position=12, fresh=True, carry=0)]
        assert apply(table, *batch) == (1, 1)
        assert rows() == {2: ("moved", "note", 1)}

    def test_a_row_moved_twice_takes_its_first_cells(self, made: Make, rows: Any) -> None:
        """1 -> 2 -> 3 in one batch: the cells come from the row that stood under 1."""
        table = made(item(2, "two", "note2", 2, position=10))
        batch = [
            delete({"id": 1}, position=13),
            delete({"id": 2}, position=15),
            item(3, "third", CARRY, 3, position=16, fresh=True, carry=0),
        ]
        assert apply(table, *batch) == (1, 2)
        assert rows() == {3: ("third", "note", 3)}

    def test_two_rows_that_swap_their_keys(self, made: Make, rows: Any) -> None:
        """Both take the cells that the other had before the merge; a third keeps its own beside them."""
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
        """Neither an insert nor an update: its cells are unknown."""
        batch = [delete({"id": 8}, position=11), item(9, "x", CARRY, position=12, fresh=True, carry=0)]
        batch += [delete({"id": 7}, position=11), item(1, "x", CARRY, position=12, fresh=True, carry=2)]
        assert apply(table, *batch) == (0, 0)
        assert rows() == {1: ("one", "note", 1)}

    def test_columns_that_the_batch_does_not_know(self, made: Make, rows: Any) -> None:
        """An update keeps them, an insert has null there, and so has a new incarnation of a row that stands."""
        table = made(item(2, "two", "note2", 2, position=10))
        narrow = pa.schema([ITEM.field("id"), ITEM.field("name")])
        batch = [Row({"id": 1, "name": "a"}, position=11), Row({"id": 2, "name": "b"}, position=11, fresh=True)]
        table.merge(actions(narrow, [*batch, Row({"id": 3, "name": "c"}, position=11)]), commit())
        assert rows() == {1: ("a", "note", 1), 2: ("b", None, None), 3: ("c", None, None)}

    def test_a_key_of_several_columns(self, lake: LakeHarness, name: str) -> None:
        """All of them tell rows apart; carried cells find their row by all of them."""
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

    # -- versions, ledger, truncate -----------------------------------------------------------------------------------

    def test_stored_tells_the_versions_of_rows_that_stand(self, made: Make) -> None:
        """By the caller's own key texts; rows that are not there are not in it."""
        table = made(item(2, position=7, at=70, partition=3, source_time=700))
        assert table.stored(items(item(1), item(2), item(3))) == {
            "1": RowVersion(text(10), TOPIC, 0, 10, 10),
            "2": RowVersion(text(7), TOPIC, 3, 70, 700),
        }

    def test_own_columns_tell_where_a_row_comes_from(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Position, topic, partition, offset and source time; no position is a null."""
        apply(table, item(2, at=5))
        found = {row["id"]: row for row in lake.read(name).to_pylist()}
        own = [column for column in found[1] if column.startswith("__headrace_")]
        assert own == [f"__headrace_{what}" for what in ("position", "topic", "partition", "offset", "source_time")]
        assert [found[1][column] for column in own[:4]] == [text(10).decode(), TOPIC, 0, 10]
        assert found[2]["__headrace_position"] is None

    def test_tombstones_are_there_after_a_restart(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """The ledger survives the handle; of two tombstones of a key the higher stands."""
        low, high = RowVersion(text(3), TOPIC, 0, 3, 30), RowVersion(text(5), TOPIC, 1, 5, 50)
        table.record_tombstones({"1": high, "": low}, NOW)
        table.record_tombstones({"1": low, "2": RowVersion(b"", TOPIC, 0, 9, -(2**40))}, NOW)
        table.record_tombstones({}, NOW)
        expected = {"1": high, "": low, "2": RowVersion(b"", TOPIC, 0, 9, -(2**40))}
        assert table.ledger() == expected
        assert lake.open(name).ledger() == expected

    def test_a_ledger_that_others_add_to_has_moved(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Until it is read again, whatever this handle adds itself, which alone does not move it."""
        version = RowVersion(text(3), TOPIC, 0, 3, 30)
        table.ledger()
        table.record_tombstones({"1": version}, NOW)
        assert not table.ledger_moved()
        lake.open(name).record_tombstones({"2": version}, NOW)
        assert table.ledger_moved()
        table.record_tombstones({"3": version}, NOW)
        assert table.ledger_moved()
        assert set(table.ledger()) == {"1", "2", "3"}
        assert not table.ledger_moved()

    def test_a_new_table_has_no_tombstones(self, lake: LakeHarness, name: str) -> None:
        """Before it exists, and when it has just been made."""
        table = lake.open(name)
        assert table.ledger() == {}
        table.evolve(ITEM, ["id"])
        assert table.ledger() == {}

    def test_old_tombstones_are_forgotten_but_not_the_floor(self, table: LakeTable) -> None:
        """Retention counts from when they were recorded."""
        version = RowVersion(text(3), TOPIC, 0, 3, 30)
        table.record_tombstones({"old": version, "": version}, NOW - 8 * DAY)
        table.record_tombstones({"young": version}, NOW - 6 * DAY)
        table.maintain(NOW, 7 * DAY)
        assert table.ledger() == {"young": version, "": version}

    def test_old_tombstones_are_forgotten_after_a_restart(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Also by a handle that has only read them."""
        version = RowVersion(text(3), TOPIC, 0, 3, 30)
        table.record_tombstones({"old": version}, NOW - 8 * DAY)
        table.record_tombstones({"young": version}, NOW - 6 * DAY)
        again = lake.open(name)
        assert set(again.ledger()) == {"old", "young"}
        again.maintain(NOW, 7 * DAY)
        assert again.ledger() == {"young": version}

    @pytest.mark.parametrize(
        ("floor", "left"),
        [
            (RowVersion(text(10), TOPIC, 0, 999, 999), {1, 2, 3}),
            (RowVersion(text(11), TOPIC, 0, 0, 0), {2}),
            (RowVersion(b"", TOPIC, 0, 11, 11), {2, 3}),
            (RowVersion(b"", TOPIC, 1, 0, 25), {2}),
        ],
    )
    def test_truncate_removes_what_it_outranks(self, made: Make, rows: Any, floor: RowVersion, left: set[int]) -> None:
        """By position if it has one, else by arrival; rows without a version go as well."""
        table = made(item(2, position=30, at=30), item(3, position=10, at=20))
        table.record_tombstones({"": floor}, NOW)
        table.truncate(floor, commit())
        assert set(rows()) == left

    def test_nulls_of_older_rows_are_filled(self, made: Make, rows: Any) -> None:
        """By position, by time where a row has none; what has a value keeps it, and versions stay as they are."""
        reads = [item(4, note=None, at=4, source_time=14), item(5, note=None, at=5, source_time=15)]
        table = made(item(2, note=None, position=14), item(3, note=None, position=15, source_time=1), *reads)
        before = RowVersion(text(15), "schema", 0, 0, 15)
        keys = items(*(item(key) for key in range(1, 6)))
        versions = table.stored(keys)
        for _ in range(2):
            table.fill("note", pa.scalar("it's \\n"), before, commit())
        found = {key: note for key, (_, note, _) in rows().items()}
        assert found == {1: "note", 2: "it's \\n", 3: None, 4: "it's \\n", 5: None}
        assert table.stored(keys) == versions

    def test_truncate_of_a_table_without_rows(self, lake: LakeHarness, name: str, rows: Any) -> None:
        """Nothing to remove is no error, and what comes later goes in."""
        table = lake.open(name)
        table.evolve(ITEM, ["id"])
        table.truncate(RowVersion(text(5), TOPIC, 0, 5, 5), commit())
        apply(table, item(1, position=6))
        assert set(rows()) == {1}

    # -- columns ------------------------------------------------------------------------------------------------------

    def test_a_table_that_does_not_exist(self, lake: LakeHarness, name: str) -> None:
        """It has no schema, and nothing can be written before evolve."""
        table = lake.open(name)
        assert table.schema() is None
        with pytest.raises(Fatal, match="does not exist"):
            apply(table, item(1))

    def test_new_columns_are_added(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Wherever they stand in the event; rows that stand have null there."""
        wider = pa.schema([ITEM.field("id"), ("new", pa.list_(pa.int64())), *list(ITEM)[1:]])
        table.evolve(wider, ["id"])
        row = {"id": 2, "new": [1, None], "name": "x", "note": None, "qty": 3}
        table.merge(actions(wider, [Row(row, position=11)]), commit())
        assert lake.open(name).schema() == table.schema() == pa.schema([*ITEM, ("new", pa.list_(pa.int64()))])
        found = {row["id"]: row["new"] for row in lake.read(name).to_pylist()}
        assert found == {1: None, 2: [1, None]}

    def test_a_column_that_somebody_else_added_meanwhile(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Both handles go on: rows without it first, then those that bring it."""
        wider = pa.schema([*ITEM, ("new", pa.string())])
        assert table.schema() == ITEM
        lake.open(name).evolve(wider, ["id"])
        assert apply(table, item(1, "u", position=11), item(2, position=12)) == (2, 0)
        table.evolve(wider, ["id"])
        row = {"id": 3, "name": "x", "note": None, "qty": 3, "new": "y"}
        table.merge(actions(wider, [Row(row, position=13)]), commit())
        assert {row["id"]: row["new"] for row in lake.read(name).to_pylist()} == {1: None, 2: None, 3: "y"}

    def test_members_are_added_to_structs(self, lake: LakeHarness, name: str) -> None:
        """At any depth; structs that stand have null there."""
        inner = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.string()))])
        narrow = pa.schema([("id", pa.int64()), ("s", pa.struct([("x.y", pa.int64()), ("in", pa.struct([inner[0]]))]))])
        wide = pa.schema(
            [("id", pa.int64()), ("s", pa.struct([("x.y", pa.int64()), ("in", inner), ("z", pa.bool_())]))]
        )
        table = lake.open(name)
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": {"x.y": 1, "in": {"b": 2}}}, position=1)]), commit())
        table.evolve(wide, ["id"])
        full = {"x.y": 3, "in": {"b": 4, "c": ["d"]}, "z": True}
        table.merge(actions(wide, [Row({"id": 2, "s": full}, position=2)]), commit())
        assert lake.open(name).schema() == table.schema() == wide
        found = {row["id"]: row["s"] for row in lake.read(name).to_pylist()}
        assert found == {1: {"x.y": 1, "in": {"b": 2, "c": None}, "z": None}, 2: full}

    def test_types_get_wider(self, lake: LakeHarness, name: str) -> None:
        """Integers, floats and decimals; the rows that stand are read in the wider type, narrow events still fit."""
        narrow = pa.schema([("id", pa.int32()), ("s", pa.int16()), ("f", pa.float32()), ("d", pa.decimal128(5, 2))])
        wide = pa.schema([("id", pa.int64()), ("s", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(20, 2))])
        table = lake.open(name)
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": -5, "f": 0.5, "d": Decimal("1.25")}, position=1)]), commit())
        table.evolve(wide, ["id"])
        big = {"id": 2**40, "s": 2**40, "f": 1e300, "d": Decimal("123456789012345678.25")}
        table.merge(actions(wide, [Row(big, position=2)]), commit())
        table.evolve(narrow, ["id"])
        table.merge(actions(narrow, [Row({"id": 1, "s": 6, "f": 0.25, "d": Decimal("2.50")}, position=3)]), commit())
        assert table.schema() == wide
        found = sorted(lake.read(name).select(wide.names).to_pylist(), key=lambda row: row["id"])
        assert found == [{"id": 1, "s": 6, "f": 0.25, "d": Decimal("2.50")}, big]

    def test_other_types_are_refused(self, table: LakeTable) -> None:
        """The message names table, column and both types; the table stays as it was."""
        others = {pa.string(): "INT in the table and STRING", pa.float64(): "DOUBLE", pa.decimal128(5, 1): "DECIMAL"}
        for kind, words in others.items():
            with pytest.raises(Fatal, match=f"item_.*'qty'.*{words}"):
                table.evolve(pa.schema([ITEM.field("id"), ("qty", kind)]), ["id"])
            assert table.schema() == ITEM

    def test_names_that_cannot_stand_beside_others(self, table: LakeTable) -> None:
        """Two names that differ only in case, and our own prefix."""
        for other in ("NAME", "__headrace_position", "__Headrace_x"):
            with pytest.raises(Fatal, match=other):
                table.evolve(pa.schema([*ITEM, (other, pa.string())]), ["id"])

    def test_names_of_any_kind(self, lake: LakeHarness, unique: Callable[[str], str]) -> None:
        """Mixed case, quotes, dots, blanks, emoji, SQL words: in table and column names."""
        names = ["Id", "select", "a.b", "tick`s", 'quo"te', "new 😀", "ünï", "'); DROP TABLE x; --", "back\\slash"]
        schema = pa.schema([(column, pa.string()) for column in names])
        name = unique("Odd.`Näme` 😀'")
        table = lake.open(name)
        table.evolve(schema, ["Id"])
        for position, ending in enumerate(["", "'", "\\"], start=1):
            cells = {column: column + ending for column in names} | {"Id": "it's \\ `me`"}
            assert table.merge(actions(schema, [Row(cells, position=position)], ["Id"]), commit()).upserted == 1
        kept = dict.fromkeys(names, KEEP) | {"Id": "it's \\ `me`", "a.b": "new"}
        assert table.merge(actions(schema, [Row(kept, position=9)], ["Id"]), commit()).upserted == 1
        assert lake.read(name).select(names).to_pylist() == [cells | {"a.b": "new"}]
        assert lake.open(name).schema() == schema

    @pytest.mark.parametrize(("types", "nulls"), [(TYPES, [None]), (LISTS_OF_STRUCTS, [])])
    def test_every_type_comes_back_as_it_went(self, lake: LakeHarness, name: str, types: Any, nulls: list[Any]) -> None:
        """Streamed in and merged over, at the ends of each type's range, with nulls: a column for each type."""
        rows = 1 + max(len(values) for _, values in types)
        columns = {f"v{n}": list(islice(cycle([*nulls, *values]), rows)) for n, (_, values) in enumerate(types)}
        schema = pa.schema([("id", pa.int64()), *zip(columns, (kind for kind, _ in types), strict=True)])
        table = lake.open(name)
        table.evolve(schema, ["id"])
        for position in (1, 2):
            cells = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
            batch = actions(schema, [Row({"id": n, **row}, position=position) for n, row in enumerate(cells)])
            assert table.merge(batch, commit()).upserted == len(cells)
        stored = lake.read(name).sort_by("id")
        for column in batch.columns[1:]:
            kind = _exact(column.values.type)
            assert stored[column.name].combine_chunks().cast(kind) == column.values.cast(kind), column.values.type

    # -- tables of others ---------------------------------------------------------------------------------------------

    def test_a_table_of_others_is_refused(self, lake: LakeHarness, name: str) -> None:
        """Unless it is to be taken over: nobody's rows are changed by accident."""
        lake.create_otherwise(name, ITEM)
        with pytest.raises(Fatal, match=r"not made by Headrace.*table\.adopt=true"):
            lake.open(name).schema()

    def test_a_table_of_others_is_taken_over(self, lake: LakeHarness, name: str, rows: Callable[[], Any]) -> None:
        """Its rows stay, every change applies to them, and then it is a table like others, with a ledger."""
        lake.create_otherwise(name, pa.schema(list(ITEM)[:3]))
        lake.load_otherwise(name, {"id": 1, "name": "theirs", "note": "a"})
        lake.load_otherwise(name, {"id": 2, "name": "theirs", "note": "b"})
        table = lake.open(name, adopt=True)
        assert table.schema() == pa.schema(list(ITEM)[:3])
        assert table.ledger() == {}
        table.evolve(ITEM, ["id"])
        assert apply(table, item(1, "ours", KEEP, 1, position=1), item(3, position=2)) == (2, 0)
        assert rows() == {1: ("ours", "a", 1), 2: ("theirs", "b", None), 3: ("n", "o", 1)}
        table.record_tombstones({"2": RowVersion(text(3), TOPIC, 0, 3, 30)}, NOW)
        again = lake.open(name)
        assert apply(again, item(1, position=1), delete({"id": 2}, position=3)) == (0, 1)
        assert set(again.ledger()) == {"2"}

    # -- commits ------------------------------------------------------------------------------------------------------

    def test_a_commit_says_what_it_is(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Batch, connector, group, offsets, watermark and format version stand in the newest commit."""
        table.merge(items(item(1, position=11)), commit(12, **{"shop.public.item": 40, 'it\'s "odd"': 7}))
        summary = dict(lake.summary(name))
        assert json.loads(summary.pop("headrace.offsets")) == {
            "shop.public.item": {"id": None, "offsets": {"0": 40}},
            'it\'s "odd"': {"id": None, "offsets": {"0": 7}},
        }
        assert {key: value for key, value in summary.items() if key != "headrace.write-id"} == {
            "headrace.format-version": "1",
            "headrace.batch-id": "12",
            "headrace.connector": "sink",
            "headrace.group": "connect-sink",
            "headrace.watermark": "17",
        }

    def test_a_commit_without_a_group_says_nothing_of_offsets(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """Where the group stands is told by the commit before it."""
        table.merge(items(item(1, position=11)), commit(12, **{TOPIC: 40}))
        table.merge(items(item(1, "mended", position=12)), Commit(0, "sink"))
        assert set(lake.summary(name)) - {"headrace.write-id"} == {"headrace.format-version", "headrace.connector"}
        assert table.offsets("connect-sink") == {TopicPartition(TOPIC, 0): 40}

    def test_upkeep_changes_no_row(self, table: LakeTable, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commits with upkeep between them: the rows are those of the last."""
        monkeypatch.setattr(upkeep, "FILES_UNTIL_COMPACTION", 4)  # which two commits make
        for position in (11, 12, 13):
            apply(table, item(1, f"n{position}", position=position), item(position, position=1))
            table.maintain(NOW, 7 * DAY)
        assert rows() == {1: ("n13", "o", 1)} | dict.fromkeys((11, 12, 13), ("n", "o", 1))

    def test_a_restart_reads_what_was_written(self, lake: LakeHarness, name: str, table: LakeTable, rows: Any) -> None:
        """A new handle knows schema, rows and gates of the old one."""
        again = lake.open(name)
        assert again.schema() == ITEM
        assert apply(again, item(1, "x", position=10), item(2, "two", position=1)) == (1, 0)
        assert set(rows()) == {1, 2}

    def test_tables_are_written_side_by_side(self, lake: LakeHarness, unique: Callable[[str], str]) -> None:
        """Each from a thread of its own, with its own commits."""
        names = [unique("side") for _ in range(4)]

        def write(name: str) -> int:
            table = lake.open(name)
            table.evolve(ITEM, ["id"])
            for position in (1, 2):
                table.merge(items(item(1, name, position=position)), commit(position, **{name: position}))
            return 1

        with ThreadPoolExecutor(len(names)) as pool:
            assert sum(pool.map(write, names)) == len(names)
        for name in names:
            assert lake.read(name).column("name").to_pylist() == [name]
            assert name in json.loads(lake.summary(name)["headrace.offsets"])

    # -- reading back -------------------------------------------------------------------------------------------------

    def test_a_scan_brings_every_row_once(self, table: LakeTable) -> None:
        """All rows, in pieces of whatever size, with the columns that were asked for."""
        apply(table, *(item(key, None, position=20 + key, at=key) for key in range(2, 30)))
        pieces = list(table.scan(["name", "id"]))
        assert all(piece.column_names == ["name", "id"] for piece in pieces)
        rows = {row["id"]: row["name"] for piece in pieces for row in piece.to_pylist()}
        assert sum(len(piece) for piece in pieces) == 29
        assert rows == {1: "one", **dict.fromkeys(range(2, 30))}

    def test_reading_by_key_brings_rows_with_their_versions(self, table: LakeTable) -> None:
        """Only the rows that stand under the keys, own columns included."""
        apply(table, item(2, position=11, at=11))
        rows = table.read(pa.table({"id": pa.array([1, 9], pa.int64())}))
        assert rows.column_names[: len(ITEM)] == ITEM.names
        [row] = rows.to_pylist()
        assert (row["id"], row["name"], row["qty"]) == (1, "one", 1)
        assert (row["__headrace_position"].encode(), row["__headrace_offset"]) == (text(10), 10)

    def test_a_table_that_is_not_there_has_no_rows(self, lake: LakeHarness, name: str) -> None:
        """Nothing is scanned or read before the table exists."""
        table = lake.open(name)
        assert list(table.scan(["id"])) == []
        assert len(table.read(pa.table({"id": pa.array([1], pa.int64())}))) == 0

    def test_times_of_any_age_are_scanned_as_they_are(self, lake: LakeHarness, name: str) -> None:
        """Infinity and years beyond what INT96 holds come back as the counts that they are."""
        counts = [9223372036825200000, -(10**17), 0, None]
        schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("z", pa.timestamp("us", tz="UTC"))])
        table = lake.open(name)
        table.evolve(schema, ["id"])
        rows = [Row({"id": n, "at": count, "z": count}, position=n + 1, at=n) for n, count in enumerate(counts)]
        table.merge(actions(schema, rows), commit())
        found = pa.concat_tables(table.scan(["id", "at", "z"])).sort_by("id")
        for column in ("at", "z"):
            assert found[column].combine_chunks().view(pa.int64()).to_pylist() == counts


def _exact(kind: pa.DataType) -> pa.DataType:
    """A type in which values compare bit by bit."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if kind in (pa.date32(), pa.int16()) else kind
