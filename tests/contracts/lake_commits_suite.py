"""What a commit records about itself, what survives it, and how its rows are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from support.lake.lake_actions import KEEP, TOPIC, Row, actions, commit, text
from support.lake.lake_harness import DAY, ITEM, NOW, LakeFixtures, LakeHarness, apply, item, items

from headrace.core.model.events import RowVersion
from headrace.core.model.log_progress import LogProgress, Place
from headrace.ports import Commit, LakeTable, TopicPartition
from headrace_connectors.lakehouse import compaction_plan, upkeep

OF_THE_WRITER = {"headrace.write-id", "headrace.upserted", "headrace.deleted"}
"""Properties by which a writer recognizes its own commit; some formats need only the first."""


class LakeCommitsSuite(LakeFixtures):
    """Run as a part of ``LakeTableSuite``."""

    def test_a_commit_contains_its_metadata(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """The newest commit contains batch, connector, group, offsets, watermark and format version."""
        table.merge(items(item(1, position=11)), commit(12, **{"shop.public.item": 40, "\"odd' ${spark.app.name}": 7}))
        summary = dict(lake.summary(name))
        assert json.loads(summary.pop("headrace.offsets")) == {
            "shop.public.item": {"id": None, "offsets": {"0": 40}},
            "\"odd' ${spark.app.name}": {"id": None, "offsets": {"0": 7}},
        }
        assert {key: value for key, value in summary.items() if key not in OF_THE_WRITER} == {
            "headrace.format-version": "1",
            "headrace.batch-id": "12",
            "headrace.connector": "sink",
            "headrace.group": "connect-sink",
            "headrace.watermark": "17",
        }

    def test_a_commit_without_a_group_carries_the_offsets_before_it(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """A commit without a group is no batch of a topic, and copies the offsets of the commit before it."""
        table.merge(items(item(1, position=11)), commit(12, **{TOPIC: 40}))
        before = lake.summary(name)
        lake.open(name).merge(items(item(1, "repaired", position=12)), Commit(0, "sink"))
        carried = {"headrace.group", "headrace.offsets"}
        summary = lake.summary(name)
        assert set(summary) - OF_THE_WRITER == {"headrace.format-version", "headrace.connector", *carried}
        assert {name: summary[name] for name in carried} == {name: before[name] for name in carried}
        assert table.offsets("connect-sink") == {TopicPartition(TOPIC, 0): 40}

    def test_every_commit_carries_all_offsets_on(
        self, lake: LakeHarness, name: str, table: LakeTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every commit copies all offsets, because a catalog may show only the newest commit."""
        monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 1)
        monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
        table.merge(items(item(2, position=11), item(3, position=11)), commit(1, first=40, second=7))
        floor = RowVersion(text(11), TOPIC, 0, 0, 0)
        kept = item(2, KEEP, position=20)
        for write in (
            lambda: apply(table, item(4, position=12)),
            lambda: apply(lake.open(name), item(5, position=12)),
            lambda: table.merge(items(kept, item(6, position=13)), commit(2)),
            lambda: lake.open(name).merge(items(item(4, "repaired", position=14)), Commit(0, "sink")),
            lambda: table.truncate(floor, commit(3)),
            lambda: table.fill("note", pa.scalar("x"), floor, commit(4)),
            lambda: table.maintain(NOW, 7 * DAY),
        ):
            write()
            lake.forget_history(name)
            for each in (table, lake.open(name)):
                assert each.reached("connect-sink") == {TopicPartition("first", 0): 40, TopicPartition("second", 0): 7}
        assert table.reached("connect-other") is None

    def test_every_commit_carries_the_progress_in_the_sources_logs_on(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """A new handle reads the furthest progress, also after commits without one and after those of other tasks."""
        mysql = b"%05d.%010d.%020d.%010d"
        first, second = Place("first", "shop", 0), Place("second", "shop", 1)
        without_gtids = LogProgress(mysql % (1, 3, 77, 2), {"2": (mysql % (0, 3, 77, 2))[6:]}, 5, 4)
        with_gtids = LogProgress(mysql % (0, 9, 7, 0), {"1 a:b": b"%020d" % 70, "2 0-2": b"%020d" % 8}, 6, 12)
        assert table.log_progress("connect-sink") == {}
        table.merge(items(item(2, position=11)), replace(commit(1), progress={first: without_gtids}))
        lake.open(name).merge(items(item(3, position=11)), replace(commit(2), progress={second: with_gtids}))
        table.merge(items(item(2, position=12)), commit(3))
        lake.open(name).merge(items(item(4, "repaired", position=14)), Commit(0, "sink"))
        earlier = {first: LogProgress(mysql % (0, 1, 1, 1), {"1": (mysql % (0, 1, 1, 1))[6:]}, 1, 1)}
        # By a new handle: one that has missed the commit of another task repeats only what it knows
        # (``table_properties.py``).
        lake.open(name).merge(items(item(2, position=13)), replace(commit(4), progress=earlier))
        lake.forget_history(name)
        furthest = {first: without_gtids.join(earlier[first]), second: with_gtids}
        for each in (table, lake.open(name)):
            assert each.log_progress("connect-sink") == furthest
            assert each.log_progress("connect-other") == {}

    def test_offsets_never_go_back(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """The table ignores the offsets of a batch that is read again after a rewind."""
        table.merge(items(item(2, position=11)), commit(1, first=40))
        table.merge(items(item(2, position=12)), commit(2, first=20, second=3))
        assert lake.open(name).reached("connect-sink") == {
            TopicPartition("first", 0): 40,
            TopicPartition("second", 0): 3,
        }

    def test_an_older_copy_is_noticed_at_once(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A handle that wrote commits which a restored copy lacks refuses the copy, and so does a new handle."""
        table.merge(items(item(2, position=11)), commit(1, first=40))
        with lake.restored(name):
            table.merge(items(item(2, position=12)), commit(2, first=50))
            assert table.reached("connect-sink") == {TopicPartition("first", 0): 50}
        table.begin_batch()
        for each in (table, lake.open(name)):
            assert each.reached("connect-sink") == {TopicPartition("first", 0): 40}

    def test_an_older_copy_with_a_foreign_commit_is_detected(
        self, lake: LakeHarness, name: str, table: LakeTable
    ) -> None:
        """In Delta's log, the commit of the other writer has the number of the commit that the copy lacks."""
        table.merge(items(item(2, position=11)), commit(1, first=40))
        with lake.restored(name):
            table.merge(items(item(2, position=12)), commit(2, first=50))
            assert table.reached("connect-sink") == {TopicPartition("first", 0): 50}
        lake.load_otherwise(name, {"id": 3, "name": "theirs", "note": "n", "qty": 0})
        table.begin_batch()
        for each in (table, lake.open(name)):
            assert each.reached("connect-sink") == {TopicPartition("first", 0): 40}

    def test_only_what_is_committed_counts(self, lake: LakeHarness, name: str, table: LakeTable) -> None:
        """A batch of stale changes may make no commit; then its offsets are not in the table."""
        table.merge(items(item(1, position=11)), commit(1, first=40))
        table.merge(items(item(1, position=3)), commit(2, first=50))
        assert table.reached("connect-sink") == lake.open(name).reached("connect-sink")
        assert lake.open(unknown := name + "_x").reached("connect-sink") is None
        assert lake.open(unknown).schema() is None

    def test_upkeep_changes_no_row(self, table: LakeTable, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """Maintenance between commits changes no row."""
        monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 2)
        monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
        for position in (11, 12, 13):
            apply(table, item(1, f"n{position}", position=position), item(position, position=1))
            table.maintain(NOW, 7 * DAY)
        assert rows() == {1: ("n13", "o", 1)} | dict.fromkeys((11, 12, 13), ("n", "o", 1))

    def test_a_restart_reads_what_was_written(self, lake: LakeHarness, name: str, table: LakeTable, rows: Any) -> None:
        """A new handle reads the schema, rows and gates that the old one wrote."""
        again = lake.open(name)
        assert again.schema() == ITEM
        assert apply(again, item(1, "x", position=10), item(2, "two", position=1)) == (1, 0)
        assert set(rows()) == {1, 2}

    def test_tables_are_written_side_by_side(self, lake: LakeHarness, unique: Callable[[str], str]) -> None:
        """Threads write different tables at the same time, each with its own commits."""
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

    def test_a_scan_brings_every_row_once(self, table: LakeTable) -> None:
        """A scan returns every row once, in parts of any size, with the requested columns, and the rows' topics."""
        more = items(*(item(key, None, position=20 + key, at=key) for key in range(2, 30)))
        table.merge(replace(more, version=replace(more.version, topic="it's another")), commit())
        assert sorted(table.topics()) == ["it's another", TOPIC]
        pieces = list(table.scan(["name", "id"]))
        assert all(piece.column_names == ["name", "id"] for piece in pieces)
        rows = {row["id"]: row["name"] for piece in pieces for row in piece.to_pylist()}
        assert sum(len(piece) for piece in pieces) == 29
        assert rows == {1: "one", **dict.fromkeys(range(2, 30))}

    def test_reading_by_key_brings_rows_with_their_versions(self, table: LakeTable) -> None:
        """A read by key returns only the rows stored under the keys, with their own columns."""
        apply(table, item(2, position=11, at=11))
        rows = table.read(pa.table({"id": pa.array([1, 9], pa.int64())}))
        assert rows.column_names[: len(ITEM)] == ITEM.names
        [row] = rows.to_pylist()
        assert (row["id"], row["name"], row["qty"]) == (1, "one", 1)
        assert (row["__headrace_position"].encode(), row["__headrace_offset"]) == (text(10), 10)

    def test_a_table_that_is_not_there_has_no_rows(self, lake: LakeHarness, name: str) -> None:
        """A table that does not exist has no rows to scan or read."""
        table = lake.open(name)
        assert list(table.scan(["id"])) == list(table.topics()) == []
        assert len(table.read(pa.table({"id": pa.array([1], pa.int64())}))) == 0

    def test_times_of_any_age_are_scanned_as_they_are(self, lake: LakeHarness, name: str) -> None:
        """A scan returns infinity and years beyond the range of INT96 as the stored integers."""
        counts = [9223372036825200000, -(10**17), 0, None]
        schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us")), ("z", pa.timestamp("us", tz="UTC"))])
        table = lake.open(name)
        table.evolve(schema, ["id"])
        rows = [Row({"id": n, "at": count, "z": count}, position=n + 1, at=n) for n, count in enumerate(counts)]
        table.merge(actions(schema, rows), commit())
        found = pa.concat_tables(table.scan(["id", "at", "z"])).sort_by("id")
        for column in ("at", "z"):
            assert found[column].combine_chunks().view(pa.int64()).to_pylist() == counts
