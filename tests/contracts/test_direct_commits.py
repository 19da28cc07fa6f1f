"""What a commit to an Iceberg table without a Spark job contains, beside one by MERGE."""

from __future__ import annotations

import gc
import random
import weakref
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
import pytest
from support.fix_direct_commits import EITHER_WAY, SMALL, Commits, Shop
from support.lake.lake_actions import CARRY, KEEP, Row, actions, commit, delete
from support.lake.lake_harness import ITEM, apply, item

from headrace.core.tables.table_layout import table_layout
from headrace.ports import MergeCounts
from headrace_connectors.lakehouse.direct import direct_table, row_index
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable

pytestmark = pytest.mark.spark

TIMES = [("years", "at"), ("days", "at"), ("hours", "zoned"), ("years", "day")]


def test_a_commit_needs_no_job(shop: Shop, commits: Commits) -> None:
    """Inserts, updates and deletes are one snapshot with the metrics and totals that Iceberg's writers give it."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10), item(2, position=10), item(3, position=10))
    assert apply(table, item(1, "one", position=11), delete({"id": 2}, position=12), item(4, position=13)) == (2, 1)
    assert apply(table, delete({"id": 2}, position=14)) == (0, 0)  # no snapshot
    assert commits.count == 2
    summary = shop.warehouse.summary("shop", shop.name)
    assert {name: summary[name] for name in summary if name.startswith(("total-", "added-", "removed-"))} == {
        "added-data-files": "1",
        "added-delete-files": "1",
        "added-dvs": "1",
        "added-files-size": summary["added-files-size"],
        "added-position-deletes": "2",
        "added-records": "2",
        "total-data-files": "2",
        "total-delete-files": "1",
        "total-equality-deletes": "0",
        "total-files-size": summary["total-files-size"],
        "total-position-deletes": "2",
        "total-records": "5",
    }
    assert shop.rows() == {1: ("one", "o", 1), 3: ("n", "o", 1), 4: ("n", "o", 1)}


@EITHER_WAY
def test_kept_cells_and_late_changes_need_no_job(shop: Shop, commits: Commits) -> None:
    """Stored cells and versions are read by location: after the row's column was widened, renamed and others added."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, f"{key}", "note", key, position=10) for key in range(1, 7)))
    shop.sql("ALTER TABLE {table} RENAME COLUMN qty TO old")
    shop.sql("ALTER TABLE {table} RENAME COLUMN old TO qty")
    shop.sql("ALTER TABLE {table} ALTER COLUMN qty TYPE BIGINT")
    shop.sql("ALTER TABLE {table} ADD COLUMNS (more STRING)")
    table, count = shop.open(), commits.count
    kept = [item(1, "new", KEEP, KEEP, position=20), item(2, KEEP, "new", 20, position=21)]
    late = [item(3, "late", position=9), delete({"id": 4}, position=10), item(5, "equal", position=10)]
    moved = [delete({"id": 6}, position=22), item(7, CARRY, CARRY, 70, position=22, fresh=True, carry=5)]
    assert apply(table, *kept, *late, *moved, item(8, KEEP, position=22)) == (3, 1)
    assert apply(table, *kept, *late) == (0, 0)
    narrow = pa.schema([ITEM.field("id"), ITEM.field("name")])
    rows = [Row({"id": 1, "name": "narrow"}, position=30), Row({"id": 2, "name": "anew"}, position=30, fresh=True)]
    table.merge(actions(narrow, rows), commit())
    assert shop.rows() == {
        1: ("narrow", "note", 1),
        2: ("anew", None, None),
        3: ("3", "note", 3),
        4: ("4", "note", 4),
        5: ("5", "note", 5),
        7: ("6", "note", 70),
    }
    assert commits.count == count + 2


@pytest.mark.parametrize("shop", [SMALL], indirect=True)
def test_a_small_table_has_one_file(shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit replaces it, and writes a manifest, a list and the metadata beside it. Rows keep their lineage."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, position=10) for key in range(1, 6)))
    lineage = f"SELECT id, _row_id, _last_updated_sequence_number AS at FROM lake.shop.`{shop.name}` ORDER BY id"
    [*_, first] = before = shop.warehouse.sql(lineage).to_pylist()
    assert apply(table, item(1, "one", position=11), delete({"id": 2}, position=11), item(9, position=11)) == (2, 1)
    summary = shop.warehouse.summary("shop", shop.name)
    changed = ("added-data-files", "deleted-data-files", "added-records", "deleted-records", "total-records")
    assert [summary[name] for name in changed] == ["1", "1", "5", "5", "5"]
    assert summary["total-delete-files"] == "0"
    operations = shop.warehouse.sql(f"SELECT operation FROM lake.shop.`{shop.name}`.snapshots ORDER BY committed_at")
    assert operations["operation"].to_pylist()[-2:] == ["append", "overwrite"]
    assert len(shop.warehouse.sql(f"SELECT * FROM lake.shop.`{shop.name}`.manifests")) == 1
    after = {row["id"]: row for row in shop.warehouse.sql(lineage).to_pylist()}
    assert [after[row["id"]] for row in before if row["id"] not in (1, 2)] == before[2:]
    assert (after[1]["_row_id"], after[1]["at"]) == (before[0]["_row_id"], first["at"] + 1)
    assert (after[9]["_row_id"] > max(row["_row_id"] for row in before), after[9]["at"]) == (True, first["at"] + 1)

    # All rows of a batch are deletes, and then all rows of the table.
    assert apply(table, delete({"id": 9}, position=12)) == (0, 1)
    assert apply(table, *(delete({"id": key}, position=13) for key in (1, 3, 4, 5))) == (0, 4)
    assert (shop.rows(), shop.warehouse.summary("shop", shop.name)["total-data-files"]) == ({}, "0")
    apply(table, item(1, "again", position=14))

    # Late changes are compared with the rows in memory.
    monkeypatch.setattr(DirectTable, "open", None)
    assert apply(table, item(1, "late", position=9), item(2, "two", position=15)) == (1, 0)
    assert shop.rows() == {1: ("again", "o", 1), 2: ("two", "o", 1)}
    assert commits.count == 6


@pytest.mark.parametrize("shop", [SMALL], indirect=True)
def test_a_table_that_grows_gets_vectors(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """From ``SMALL_BYTES`` on, or where its rows take much memory."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    chance = random.Random(1)
    apply(table, *(item(key, f"{chance.random()} {chance.random()}", position=11) for key in range(1, 2_000)))
    apply(table, item(1, "one", position=12))
    summary = shop.warehouse.summary("shop", shop.name)
    assert (summary["total-data-files"], summary["added-dvs"]) == ("2", "1")
    other = Shop(shop.warehouse, f"{shop.name}_2")
    monkeypatch.setattr(row_index, "SMALL_UNPACKED", 10)
    other_table = other.open()
    other_table.evolve(ITEM, ["id"])
    apply(other_table, item(1, position=10), item(2, position=10))
    other_table = other.open()
    apply(other_table, item(1, "one", position=12))
    assert shop.warehouse.summary("shop", other.name)["added-dvs"] == "1"
    assert (shop.rows()[1], other.rows()[1]) == (("one", "o", 1), ("one", "o", 1))


def test_the_metrics_are_those_of_icebergs_writers(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounds and counts of each column, of a file by a MERGE and of one by a direct commit with equal rows."""
    types = {
        "id": pa.int64(),
        "b": pa.bool_(),
        "i": pa.int32(),
        "f": pa.float32(),
        "d": pa.float64(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "zoned": pa.timestamp("us", tz="UTC"),
        "text": pa.string(),
        "raw": pa.binary(),
        "price": pa.decimal128(9, 2),
        "large": pa.decimal128(38, 3),
    }
    schema = pa.schema(types.items())
    cells = [
        {"id": 1, "b": True, "i": -5, "f": -0.5, "d": 1e9, "day": 20_000, "at": 7, "zoned": -7, "text": "a" * 20},
        {"id": 2, "text": "z\U0010ffff" * 10, "raw": b"\xff" * 20},
        {"id": 3, "raw": b"ab", "price": -1, "large": 10**30, "text": ""},
    ]
    found = []
    for limit in (shop.warehouse.lakehouse.indexes.limit, 0):
        monkeypatch.setattr(shop.warehouse.lakehouse.indexes, "limit", limit)
        of = Shop(shop.warehouse, f"{shop.name}_{limit}")
        table = of.open()
        table.evolve(schema, ["id"])
        table.merge(actions(schema, [Row(row, position=10) for row in cells]), commit())
        [file] = of.warehouse.sql(f"SELECT readable_metrics FROM lake.shop.`{of.name}`.files").to_pylist()
        for metrics in file["readable_metrics"].values():
            del metrics["column_size"], metrics["nan_value_count"]  # of another writer; there is no NaN
        found.append(file["readable_metrics"])
    assert commits.count == 1
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "partition",
    [
        *("bucket(5, name)", "truncate(1, name), flag", "months(day)", "bucket(3, zoned), zoned"),
        *(
            pytest.param(partition, marks=pytest.mark.long)
            for partition in ("id", "bucket(4, id)", "truncate(10, id)", "name", "day")
        ),
        *(pytest.param(f"{unit}({column})", marks=pytest.mark.long) for unit, column in TIMES),
    ],
)
def test_partitions_are_those_of_icebergs_writers(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch, partition: str
) -> None:
    """A MERGE, and commits without one, put equal rows into equal partitions; updated rows move to others."""
    types = [("id", pa.int64()), ("name", pa.string()), ("flag", pa.bool_()), ("day", pa.date32())]
    schema = pa.schema([*types, ("at", pa.timestamp("us")), ("zoned", pa.timestamp("us", tz="UTC"))])
    at, hour = 1_790_000_000_000_000, 3_600_000_000
    names = ["ä/b c", "null", "", None]
    cells = [
        {"id": key, "name": names[key % 4], "flag": key % 2 == 0, "day": -400 * key, "at": at - key * 99 * hour}
        for key in range(8)
    ]
    old = [Row({**row, "zoned": row["at"]}, position=10) for row in cells]
    new = [Row({**row, "id": 9 - row["id"], "zoned": row["at"] + hour}, position=20) for row in cells[2:7]]
    found = []
    for limit in (shop.warehouse.lakehouse.indexes.limit, 0):
        monkeypatch.setattr(shop.warehouse.lakehouse.indexes, "limit", limit)
        of = Shop(shop.warehouse, f"{shop.name}_{limit}", {"layout": table_layout("iceberg", partition, "")})
        table = of.open()
        table.evolve(schema, ["id"])
        table.merge(actions(schema, old), commit())
        assert table.merge(actions(schema, [*new, delete({"id": 0}, position=20)]), commit()) == MergeCounts(5, 1)
        of_rows = f"SELECT id, _partition, name, flag, day, at, zoned FROM lake.shop.`{of.name}` ORDER BY id"
        live = f"SELECT DISTINCT partition FROM lake.shop.`{of.name}`.partitions ORDER BY 1"
        found.append([of.warehouse.sql(statement).to_pylist() for statement in (of_rows, live)])
        assert len(of.warehouse.read("shop", of.name)) == len(found[-1][0])
    assert found[0] == found[1]
    assert commits.count == 2


@EITHER_WAY
def test_files_of_other_storage_are_read_by_iceberg(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new handle reads the keys of all files through Iceberg's streams, as from an object store."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, "n" * 100, position=10) for key in range(1000)))
    apply(table, item(1, position=20), delete({"id": 2}, position=20))
    monkeypatch.setattr(direct_table, "_LOCAL", ("none:",))
    assert apply(shop.open(), item(3, "three", position=30), *(delete({"id": n}, position=30) for n in (1, 2))) == (
        1,
        1,
    )
    assert commits.count == 3
    rows = shop.rows()
    assert (len(rows), rows[3][0]) == (998, "three")


def test_a_large_request_is_passed_in_a_file(shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is removed after the commit, also after one that fails."""
    monkeypatch.setattr(direct_table, "_MOST_PASSED", 0)
    files: list[Path] = []
    write = NamedTemporaryFile

    def observed(**options: Any) -> Any:
        file = write(**options)
        files.append(Path(file.name))
        return file

    monkeypatch.setattr(direct_table, "NamedTemporaryFile", observed)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10), item(2, position=10))
    commits.meanwhile = lambda: shop.sql("INSERT INTO {table} (id, name) VALUES (9, 'theirs')")
    apply(table, item(1, "one", position=11), delete({"id": 2}, position=12))
    assert shop.rows() == {1: ("one", "o", 1), 9: ("theirs", None, None)}
    assert [file.exists() for file in files] == [False] * 3


def test_the_jvm_keeps_no_table_that_was_loaded_before(shop: Shop) -> None:
    """Otherwise it would keep the metadata of each load until Python looks for cycles, which it does rarely."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    gc.collect()
    gc.disable()
    try:
        loaded = IcebergTable(table._session, IcebergName("lake", "shop", shop.name))  # type: ignore[attr-defined]
        assert loaded.format_version() == 3
        assert not loaded.hides_snapshots()
        freed = [weakref.ref(loaded.java), weakref.ref(loaded.loaded)]
        del loaded
        assert [each() for each in freed] == [None, None]
    finally:
        gc.enable()
