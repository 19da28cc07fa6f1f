"""What a table stores beside its cells: versions of rows, tombstones, the floor of a truncate."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.lake.lake_actions import TOPIC, commit, text
from support.lake.lake_harness import DAY, ITEM, NOW, LakeFixtures, LakeHarness, Make, apply, item, items

from headrace.core.model.errors import HeadraceError, TableMissing
from headrace.core.model.events import RowVersion
from headrace.ports import LakeTable


class LakeLedgerSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_stored_returns_the_versions_of_stored_rows(self, made: Make) -> None:
        """``stored`` returns the versions of stored rows by the caller's key texts, and omits keys without a row."""
        table = made(item(2, position=7, at=70, partition=3, source_time=700))
        assert table.stored(items(item(1), item(2), item(3))) == {
            "1": RowVersion(text(10), TOPIC, 0, 10, 10),
            "2": RowVersion(text(7), TOPIC, 3, 70, 700),
        }

    def test_own_columns_contain_the_origin_of_a_row(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """Own columns contain position, topic, partition, offset and source time; no position is null."""
        apply(table, item(2, at=5))
        found = {row["id"]: row for row in lake.read(name).to_pylist()}
        own = [column for column in found[1] if column.startswith("__headrace_")]
        assert own == [f"__headrace_{what}" for what in ("position", "topic", "partition", "offset", "source_time")]
        assert [found[1][column] for column in own[:4]] == [text(10).decode(), TOPIC, 0, 10]
        assert found[2]["__headrace_position"] is None

    def test_tombstones_are_there_after_a_restart(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A new handle reads the tombstones; of two tombstones of a key, the higher one applies."""
        low, high = RowVersion(text(3), TOPIC, 0, 3, 30), RowVersion(text(5), TOPIC, 1, 5, 50)
        table.record_tombstones({"1": high, "": low}, NOW)
        table.record_tombstones({"1": low, "2": RowVersion(b"", TOPIC, 0, 9, -(2**40))}, NOW)
        table.record_tombstones({}, NOW)
        expected = {"1": high, "": low, "2": RowVersion(b"", TOPIC, 0, 9, -(2**40))}
        assert table.ledger() == expected
        assert lake.open(name).ledger() == expected

    def test_a_ledger_that_others_add_to_has_moved(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A ledger that another handle changed is reported as moved until it is read; own tombstones do not count."""
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

    def test_entries_are_found_by_their_keys(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A search returns the entries with the keys, own ones from after the read, and those of the table."""
        version, of_table = RowVersion(text(3), TOPIC, 0, 3, 30), {"": RowVersion(text(1), TOPIC, 0, 1, 10)}
        table.record_tombstones({**of_table, **{f"={key}": version for key in range(100)}}, NOW)
        entries = lake.open(name).ledger()
        assert entries.of(pa.array(["=7", "=70", "=700", "=7"])) == {**of_table, "=7": version, "=70": version}
        assert entries.of(pa.array([], pa.string())) == of_table
        entries = table.ledger()
        higher = RowVersion(text(5), TOPIC, 1, 5, 50)
        table.record_tombstones({"=7": higher, "=700": higher}, NOW)
        table.record_tombstones({"=7": version}, NOW)
        assert entries.of(pa.array(["=7", "=8", "=700"])) == {**of_table, "=7": higher, "=8": version, "=700": higher}
        assert entries.additions(pa.array(["=7", "=8", "=700"])) == {}
        assert len(entries) == len(dict(entries.items())) == 102

    def test_entries_of_others_are_additions_until_the_ledger_is_read(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """An update finds what others have added, beside own entries; a read of the ledger counts it as read."""
        version, higher = RowVersion(text(3), TOPIC, 0, 3, 30), RowVersion(text(5), TOPIC, 1, 5, 50)
        table.record_tombstones({"=1": version}, NOW)
        entries, keys = table.ledger(), pa.array(["=1", "=2", "=3", "=4"])
        other = lake.open(name)
        other.record_tombstones({"=2": version, "=1": higher, "": higher}, NOW)
        table.record_tombstones({"=3": version}, NOW)
        other.record_tombstones({"=4": higher}, NOW)
        assert entries.of(keys) == {"=1": version, "=3": version}
        table.update_ledger()
        assert not table.ledger_moved()
        assert entries.of(keys) == {"=1": version, "=3": version}
        others = {"=1": higher, "=2": version, "": higher, "=4": higher}
        additions = entries.additions(keys)
        assert {key: additions[key] for key in others} == others
        assert additions.keys() - others.keys() <= {"=3"}
        assert entries == {**others, "=3": version}
        entries = table.ledger()
        assert entries.of(keys) == {**others, "=3": version}
        assert entries.additions(keys) == {}

    def test_a_new_table_has_no_tombstones(self, lake: LakeHarness, name: str) -> None:
        """A table that does not exist, or is new, has no tombstones."""
        table = lake.open(name)
        assert table.ledger() == {}
        table.evolve(ITEM, ["id"])
        assert table.ledger() == {}

    def test_what_is_recorded_before_the_table_exists_is_durable(self, lake: LakeHarness, name: str) -> None:
        """A table that is created later has the floor of a truncate that was read before the first row."""
        floor, delete = RowVersion(text(3), TOPIC, 0, 3, 30), RowVersion(text(5), TOPIC, 0, 5, 50)
        lake.open(name).record_tombstones({"": floor}, NOW)
        again = lake.open(name)
        assert (again.schema(), again.ledger()) == (None, {"": floor})
        again.record_tombstones({"1": delete}, NOW)
        assert not again.ledger_moved()
        again.evolve(ITEM, ["id"])
        assert again.ledger() == lake.open(name).ledger() == {"": floor, "1": delete}

    def test_the_ledger_of_a_dropped_table_does_not_count_for_the_next(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """A ledger that is older than its table is invalid together with that table."""
        version = RowVersion(text(30), TOPIC, 0, 30, 30)
        table.record_tombstones({"1": version}, NOW)
        for _ in range(2):
            lake.drop(name)
            new = lake.open(name)
            assert (new.schema(), new.ledger()) == (None, {})
            new.record_tombstones({"2": version}, NOW)
            assert lake.open(name).ledger() == {"2": version}
            new.evolve(ITEM, ["id"])
            assert lake.open(name).ledger() == {"2": version}

    def test_a_table_that_is_gone_has_no_empty_ledger(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A handle that has seen the table does not create it again after its loss: it reads and writes nothing."""
        version = RowVersion(text(30), TOPIC, 0, 30, 30)
        table.record_tombstones({"1": version}, NOW)
        lake.drop(name)
        with pytest.raises(HeadraceError):
            apply(table, item(1, position=20))
        for call in (table.schema, table.ledger, lambda: table.evolve(ITEM, ["id"])):
            with pytest.raises(TableMissing, match=name):
                call()
        assert lake.open(name).schema() is None

    def test_a_table_that_is_gone_is_created_again_where_that_is_wanted(self, lake: LakeHarness, name: str) -> None:
        """With ``table.missing=recreate`` the table is created again without the ledger of the lost one."""
        table = lake.open(name, recreate=True)
        table.evolve(ITEM, ["id"])
        apply(table, item(1, position=10))
        table.record_tombstones({"1": RowVersion(text(30), TOPIC, 0, 30, 30)}, NOW)
        lake.drop(name)
        with pytest.raises(HeadraceError):
            apply(table, item(1, position=20))
        assert (table.schema(), table.ledger()) == (None, {})
        table.evolve(ITEM, ["id"])
        assert (apply(table, item(1, position=20)), table.ledger()) == ((1, 0), {})

    def test_a_ledger_that_is_gone_is_no_empty_one(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A table without its ledger is an error for every handle; ``table.missing=recreate`` begins a new one."""
        table.record_tombstones({"1": RowVersion(text(30), TOPIC, 0, 30, 30)}, NOW)
        lake.drop_ledger(name)
        for each in (table, lake.open(name)):
            with pytest.raises(TableMissing, match="ledger"):
                each.ledger()
        assert lake.open(name, recreate=True).ledger() == {}
        assert lake.open(name).ledger() == {}

    def test_old_tombstones_are_removed_but_not_the_floor(self, table: LakeTable) -> None:
        """The retention of tombstones begins when they are recorded; the floor and origins of columns are kept."""
        version = RowVersion(text(3), TOPIC, 0, 3, 30)
        origin = '*["read", ["total"]]'
        table.record_tombstones({"old": version, "": version, origin: version}, NOW - 8 * DAY)
        table.record_tombstones({"young": version}, NOW - 6 * DAY)
        table.maintain(NOW, 7 * DAY)
        assert table.ledger() == {"young": version, "": version, origin: version}

    def test_old_tombstones_are_removed_after_a_restart(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A handle that has only read the tombstones removes expired ones as well."""
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
        """A truncate removes rows of lower positions, else rows that arrived earlier, and rows without a version."""
        table = made(item(2, position=30, at=30), item(3, position=10, at=20))
        table.record_tombstones({"": floor}, NOW)
        table.truncate(floor, commit())
        assert set(rows()) == left

    def test_nulls_of_older_rows_are_filled(self, made: Make, rows: Any) -> None:
        """Nulls are filled in older rows, by position or by time. Values and versions do not change."""
        reads = [item(4, note=None, at=4, source_time=14), item(5, note=None, at=5, source_time=15)]
        table = made(item(2, note=None, position=14), item(3, note=None, position=15, source_time=1), *reads)
        before = RowVersion(text(15), "schema", 0, 0, 15)
        keys = items(*(item(key) for key in range(1, 6)))
        versions = table.stored(keys)
        for _ in range(2):
            table.fill("note", pa.scalar("it's \\n ${spark.app.name}"), before, commit())
        found = {key: note for key, (_, note, _) in rows().items()}
        assert found == {1: "note", 2: "it's \\n ${spark.app.name}", 3: None, 4: "it's \\n ${spark.app.name}", 5: None}
        assert table.stored(keys) == versions

    def test_truncate_of_a_table_without_rows(self, lake: LakeHarness, name: str, rows: Any) -> None:
        """A truncate of a table without rows is no error, and later rows are written."""
        table = lake.open(name)
        table.evolve(ITEM, ["id"])
        table.truncate(RowVersion(text(5), TOPIC, 0, 5, 5), commit())
        apply(table, item(1, position=6))
        assert set(rows()) == {1}
