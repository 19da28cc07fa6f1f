"""Snapshots of a table with many commits: the metadata stays small, and queries that run keep their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import commit
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item, items

from headrace.ports import LakeTable, TableOptions
from headrace_connectors.lakehouse import iceberg, upkeep
from headrace_connectors.lakehouse.direct import row_index

pytestmark = pytest.mark.spark

KEPT, COMMITS = 4, 12


@pytest.fixture
def name(unique: Callable[[str], str]) -> str:
    return unique("expiry")


@pytest.fixture
def table(warehouse: Warehouse, name: str, monkeypatch: pytest.MonkeyPatch) -> LakeTable:
    """Return a table of which Headrace keeps few snapshots, however young they are, and merges no files."""
    monkeypatch.setattr(iceberg, "_RECENT_MS", 0)
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 1000)
    few = {iceberg.MAX_SNAPSHOTS: str(KEPT), "history.expire.min-snapshots-to-keep": "1"}
    table = warehouse.lakehouse.table("shop", name, TableOptions(properties=few))
    table.evolve(ITEM, ["id"])
    return table


def write(table: LakeTable, first: int = 10) -> None:
    """Update the same rows again and again, each time in a commit of its own."""
    for position in range(first, first + COMMITS):
        apply(table, *(item(key, f"name {position}", position=position) for key in range(3)))


def snapshots(warehouse: Warehouse, name: str) -> list[Any]:
    return list(warehouse.static_table("shop", name).metadata.snapshots)


def rows_of(warehouse: Warehouse, name: str) -> set[str]:
    return set(warehouse.read("shop", name)["name"].to_pylist())


def test_a_table_keeps_so_many_snapshots(warehouse: Warehouse, table: LakeTable, name: str) -> None:
    """The newest; rows, progress and later commits are as before."""
    write(table)
    assert len(snapshots(warehouse, name)) >= COMMITS
    newest = snapshots(warehouse, name)[-KEPT:]
    table.maintain(NOW, 7 * DAY)
    assert [each.snapshot_id for each in snapshots(warehouse, name)] == [each.snapshot_id for each in newest]
    assert rows_of(warehouse, name) == {f"name {9 + COMMITS}"}
    assert table.reached("connect-sink") == {}
    write(table, 100)
    table.maintain(NOW + upkeep.QUERY_TIME, 7 * DAY)
    assert len(snapshots(warehouse, name)) == KEPT
    assert rows_of(warehouse, name) == {f"name {99 + COMMITS}"}


def test_a_query_that_runs_keeps_its_files(warehouse: Warehouse, table: LakeTable, name: str) -> None:
    """The files of an expired snapshot are deleted after ``QUERY_TIME``, and no file of a later one."""
    write(table)
    [old] = [each for each in snapshots(warehouse, name) if each.sequence_number == 3]
    scan = warehouse.static_table("shop", name).scan(snapshot_id=old.snapshot_id)
    tasks, lists = list(scan.plan_files()), Path(old.manifest_list.removeprefix("file:"))
    files = [Path(task.file.file_path.removeprefix("file:")) for task in tasks]
    table.maintain(NOW, 7 * DAY)
    assert old.snapshot_id not in {each.snapshot_id for each in snapshots(warehouse, name)}
    assert lists.exists()
    assert all(file.exists() for file in files)
    apply(table, item(0, "last", position=1000))
    table.maintain(NOW + upkeep.QUERY_TIME - 1, 7 * DAY)
    assert lists.exists()
    table.maintain(NOW + 2 * upkeep.QUERY_TIME, 7 * DAY)
    assert not lists.exists()
    assert not any(file.exists() for file in files)
    assert rows_of(warehouse, name) == {f"name {9 + COMMITS}", "last"}


@pytest.mark.parametrize("limit", [iceberg.MAX_SNAPSHOTS, "history.expire.max-snapshot-age-ms"])
def test_a_vector_that_is_still_used_stays(
    warehouse: Warehouse, table: LakeTable, name: str, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """One Puffin file has the vectors of several data files, and a later commit replaces one of them.

    Iceberg's own expiry deletes such a file (https://github.com/apache/iceberg/issues/17456).
    """
    monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
    for key in range(6):
        apply(table, *(item(key * 10 + number, position=10) for number in range(3)))
    apply(table, *(item(key * 10, "both", position=20) for key in range(6)))  # a vector for each of six data files
    apply(table, item(1, "one", position=30))  # replaces that of the first file
    warehouse.sql(f"ALTER TABLE lake.shop.`{name}` SET TBLPROPERTIES ('{limit}' = '1')")
    write(table, 100)
    rows = warehouse.read("shop", name).sort_by("id")
    for turn in range(3):
        table.maintain(NOW + turn * upkeep.QUERY_TIME, 7 * DAY)
    assert len(snapshots(warehouse, name)) <= KEPT
    assert warehouse.read("shop", name).sort_by("id") == rows
    puffins = {each.name for each in (warehouse.path / "shop" / name / "data").glob("*.puffin")}
    used = warehouse.sql(f"SELECT file_path FROM lake.shop.`{name}`.delete_files")["file_path"].to_pylist()
    assert {path.rpartition("/")[2] for path in used} <= puffins
    assert table.merge(items(item(1, "last", position=1000)), commit()).upserted == 1


def test_the_expiry_of_other_services_keeps_vectors_that_are_used(
    warehouse: Warehouse, table: LakeTable, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's Java API looks at the files that commits have removed. A vector's file goes with its last vector."""
    monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
    for key in range(3):
        apply(table, *(item(key * 10 + number, position=10) for number in range(3)))
    apply(table, *(item(key * 10, "both", position=20) for key in range(3)))
    folder = warehouse.path / "shop" / name / "data"
    [shared] = folder.glob("*.puffin")
    for position, key in enumerate((1, 11, 21), 30):  # replaces one of its vectors after the other
        assert shared.exists()
        apply(table, item(key, "one", position=position))
        rows = warehouse.read("shop", name).sort_by("id")
        expire_by_java(warehouse, name)
        assert warehouse.read("shop", name).sort_by("id") == rows
    apply(table, item(1, "last", position=40))
    expire_by_java(warehouse, name)  # also the commit that replaced the last vector
    assert not shared.exists()


def expire_by_java(warehouse: Warehouse, name: str) -> None:
    session = warehouse.session()
    spark3 = session._jvm.org.apache.iceberg.spark.Spark3Util
    loaded = spark3.loadIcebergTable(session._jsparkSession, f"lake.shop.`{name}`")
    loaded.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()


def test_young_snapshots_are_kept(
    warehouse: Warehouse, table: LakeTable, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: who reads changes every few minutes misses none."""
    monkeypatch.setattr(iceberg, "_RECENT_MS", 3_600_000)
    write(table)
    before = len(snapshots(warehouse, name))
    table.maintain(NOW, 7 * DAY)
    assert len(snapshots(warehouse, name)) == before


def test_a_tag_keeps_its_snapshot(warehouse: Warehouse, table: LakeTable, name: str) -> None:
    """And the files of it."""
    write(table)
    [old] = [each for each in snapshots(warehouse, name) if each.sequence_number == 3]
    warehouse.sql(f"ALTER TABLE lake.shop.`{name}` CREATE TAG audit AS OF VERSION {old.snapshot_id}")
    for turn in range(3):
        table.maintain(NOW + turn * upkeep.QUERY_TIME, 7 * DAY)
    assert old.snapshot_id in {each.snapshot_id for each in snapshots(warehouse, name)}
    tagged = warehouse.static_table("shop", name).scan(snapshot_id=old.snapshot_id).to_arrow()
    assert len(tagged) == 3


def test_a_table_without_the_property_keeps_all(warehouse: Warehouse, table: LakeTable, name: str) -> None:
    """A table from before, or of a user who removes it: only the age counts."""
    write(table)
    warehouse.sql(f"ALTER TABLE lake.shop.`{name}` UNSET TBLPROPERTIES ('{iceberg.MAX_SNAPSHOTS}')")
    before = len(snapshots(warehouse, name))
    table.maintain(NOW, 7 * DAY)
    assert len(snapshots(warehouse, name)) == before


def test_a_limit_that_is_no_number_is_reported(
    warehouse: Warehouse, table: LakeTable, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The default counts: without any limit the metadata of the table would grow."""
    monkeypatch.setitem(iceberg._DEFAULTS, iceberg.MAX_SNAPSHOTS, str(KEPT))
    write(table)
    warehouse.sql(f"ALTER TABLE lake.shop.`{name}` SET TBLPROPERTIES ('{iceberg.MAX_SNAPSHOTS}' = 'few')")
    table.maintain(NOW, 7 * DAY)
    assert len(snapshots(warehouse, name)) == KEPT
    assert f"{iceberg.MAX_SNAPSHOTS} is 'few' and not a number" in caplog.text
