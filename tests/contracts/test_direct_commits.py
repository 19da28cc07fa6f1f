"""Commits to Iceberg tables without a Spark job: beside MERGE, and while somebody else commits."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pyarrow as pa
import pytest
from support.fix_direct_commits import Commits
from support.fix_spark import Warehouse
from support.lake.lake_actions import CARRY, KEEP, Row, actions, commit, delete
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item

from headrace.core.model.events import RowVersion
from headrace.core.tables.table_layout import table_layout
from headrace.ports import LakeTable, MergeCounts, TableOptions
from headrace_connectors.lakehouse import compaction_plan, iceberg, upkeep
from headrace_connectors.lakehouse.direct import direct_table, direct_writer, row_index, small_files
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.iceberg_compaction import IcebergCompaction
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable
from headrace_connectors.lakehouse.ledger import SUFFIX

pytestmark = pytest.mark.spark

VECTORS, SMALL = "vectors", "small"
KEYS = range(1, 13)
HOUR = DAY // 24
TIMES = [("years", "at"), ("days", "at"), ("hours", "zoned"), ("years", "day")]
OTHERS = {
    "insert": "INSERT INTO {table} (id, name) VALUES (9, 'theirs')",
    "insert our key": "INSERT INTO {table} (id, name) VALUES (4, 'theirs')",
    "update": "UPDATE {table} SET note = 'theirs' WHERE id = 1",
    "delete": "DELETE FROM {table} WHERE id = 1",
    "compact": "CALL lake.system.rewrite_data_files(table => 'shop.{name}', options => map('rewrite-all', 'true'))",
    "expire": "CALL lake.system.expire_snapshots(table => 'shop.{name}', older_than => now(), retain_last => 1)",
    "add column": "ALTER TABLE {table} ADD COLUMNS (more INT)",
    "set property": "ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')",
}


@dataclass
class Shop:
    """Tables of one test."""

    warehouse: Warehouse
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> LakeTable:
        return self.warehouse.lakehouse.table("shop", self.name, TableOptions(**self.options))

    def sql(self, statement: str) -> None:
        self.warehouse.session().sql(statement.format(table=f"lake.shop.`{self.name}`", name=self.name)).collect()

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """All rows as Spark and PyIceberg read them, by id."""
        columns = ", ".join(ITEM.names)
        by_spark = self.warehouse.sql(f"SELECT {columns} FROM lake.shop.`{self.name}`").to_pylist()
        by_pyiceberg = self.warehouse.read("shop", self.name).select(ITEM.names).to_pylist()
        rows = {row["id"]: (row["name"], row["note"], row["qty"]) for row in by_spark}
        assert len(rows) == len(by_spark) == len(by_pyiceberg)
        assert rows == {row["id"]: (row["name"], row["note"], row["qty"]) for row in by_pyiceberg}
        return rows

    def rows_by_other_readers(self) -> dict[str, dict[int, tuple[Any, ...]]]:
        """All rows by id, as each reader of requirements/readers.txt reads them."""
        polars = pytest.importorskip("polars", reason="make soak installs requirements/readers.txt")
        duckdb = pytest.importorskip("duckdb", reason="make soak installs requirements/readers.txt")
        from duckdb_extensions import import_extension

        table = self.warehouse.static_table("shop", self.name)
        by_polars = polars.scan_iceberg(table).select(ITEM.names).collect().rows()
        with duckdb.connect() as connection:
            for name in ("avro", "iceberg"):
                import_extension(name, con=connection)
            # Otherwise 1.5.5 may take one vector of a Puffin file for another: duckdb/duckdb-iceberg#1182.
            connection.execute("SET enable_external_file_cache = false")
            columns = ", ".join(ITEM.names)
            query = f"SELECT {columns} FROM iceberg_scan('{table.metadata_location}')"
            by_duckdb = connection.execute(query).fetchall()
        rows = {"Polars": {row[0]: row[1:] for row in by_polars}, "DuckDB": {row[0]: row[1:] for row in by_duckdb}}
        assert len(rows["Polars"]) == len(by_polars)
        assert len(rows["DuckDB"]) == len(by_duckdb)
        return rows

    def row_ids(self) -> dict[int, int]:
        rows = self.warehouse.sql(f"SELECT id, _row_id FROM lake.shop.`{self.name}`").to_pylist()
        assert len({row["_row_id"] for row in rows}) == len(rows)
        return {row["id"]: row["_row_id"] for row in rows}


@pytest.fixture
def shop(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Shop:
    """Tables with deletion vectors, however small they are, or small ones where the test asks for them."""
    monkeypatch.setattr(warehouse.lakehouse.indexes, "limit", 2**20)
    if getattr(request, "param", VECTORS) == VECTORS:
        monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
    return Shop(warehouse, unique("direct"))


EITHER_WAY = pytest.mark.parametrize("shop", [VECTORS, SMALL], indirect=True)


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


@EITHER_WAY
def test_cells_that_only_spark_reads_are_kept_by_a_merge(shop: Shop, commits: Commits) -> None:
    """A struct from before it got another member."""
    narrow, wide = (
        pa.schema([("id", pa.int64()), ("name", pa.string()), ("s", pa.struct([(name, pa.int64()) for name in names]))])
        for names in ("a", "ab")
    )
    table = shop.open()
    table.evolve(narrow, ["id"])
    table.merge(actions(narrow, [Row({"id": 1, "name": "n", "s": {"a": 1}}, position=1)]), commit())
    table.evolve(wide, ["id"])
    table.merge(actions(wide, [Row({"id": 1, "name": "new", "s": KEEP}, position=2)]), commit())
    table.merge(actions(wide, [Row({"id": 1, "name": "newer", "s": KEEP}, position=3)]), commit())
    [row] = shop.warehouse.read("shop", shop.name).select(wide.names).to_pylist()
    assert row == {"id": 1, "name": "newer", "s": {"a": 1, "b": None}}
    assert commits.count == 2


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


@EITHER_WAY
@pytest.mark.parametrize("other", OTHERS)
def test_a_commit_before_which_somebody_else_commits(shop: Shop, commits: Commits, other: str) -> None:
    """Nothing is doubled or lost: the batch is applied to what the other has written."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, "one", position=10), item(2, "two", position=10), item(3, "three", position=10))
    apply(table, item(3, "three", position=11))
    commits.meanwhile = lambda: shop.sql(OTHERS[other])
    ours = [item(1, "ours", position=20), item(4, "ours", position=20), delete({"id": 2}, position=20)]
    assert apply(table, *ours) == (2, 1)
    theirs = {9: ("theirs", None, None)} if other == "insert" else {}
    assert shop.rows() == {1: ("ours", "o", 1), 3: ("three", "o", 1), 4: ("ours", "o", 1), **theirs}


@EITHER_WAY
def test_a_commit_whose_answer_is_lost_counts_once(shop: Shop, commits: Commits) -> None:
    """The commit is found by its write id, and the index learns of it."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, position=10) for key in (1, 2, 4)))
    before, commits.lost = shop.row_ids(), True
    lost = [item(1, "ours", position=20), item(3, "ours", position=20), delete({"id": 4}, position=20)]
    assert apply(table, *lost) == (2, 1)
    assert apply(table, item(3, "again", position=30), delete({"id": 1}, position=30)) == (1, 1)
    assert shop.rows() == {2: ("n", "o", 1), 3: ("again", "o", 1)}
    assert shop.row_ids()[2] == before[2]


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


@pytest.mark.parametrize(
    "java_class", ["headrace.Missing", "org.apache.iceberg.hadoop.HadoopCatalog$Missing"], ids=["jar", "class"]
)
def test_without_the_java_class_batches_are_merged(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch, java_class: str
) -> None:
    """An operator's jars may lack it."""
    monkeypatch.setattr(direct_table, "_JAVA_CLASS", java_class)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    assert apply(table, item(1, position=10)) == (1, 0)
    assert apply(table, item(1, "one", position=20)) == (1, 0)
    assert (commits.count, shop.rows()) == (0, {1: ("one", "o", 1)})


def test_without_memory_for_indexes_batches_are_merged(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an operator may choose."""
    monkeypatch.setattr(shop.warehouse.lakehouse.indexes, "limit", 0)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    apply(table, item(1, "one", position=20))
    assert (commits.count, shop.rows()) == (0, {1: ("one", "o", 1)})


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
    commits.meanwhile = lambda: shop.sql(OTHERS["insert"])
    apply(table, item(1, "one", position=11), delete({"id": 2}, position=12))
    assert shop.rows() == {1: ("one", "o", 1), 9: ("theirs", None, None)}
    assert [file.exists() for file in files] == [False] * 3


@pytest.mark.parametrize(("limit", "value"), [("MOST_ROWS", 2), ("MOST_BYTES", 10_000)])
def test_large_batches_are_merged(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Of rows or of bytes: Spark divides them."""
    monkeypatch.setattr(direct_writer, limit, value)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10), item(2, position=10))
    apply(table, *(item(key, "n" * 10_000, position=20) for key in (1, 3, 4)))
    assert commits.count == 1
    assert {key: len(row[0]) for key, row in shop.rows().items()} == {1: 10_000, 2: 1, 3: 10_000, 4: 10_000}


def test_a_large_batch_is_freed_when_it_is_written(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search for cycles, which a worker does after hundreds of batches."""
    monkeypatch.setattr(direct_writer, "MOST_ROWS", 1)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    table.merge(actions(ITEM, [item(1, position=10)]), commit())
    gc.collect()
    gc.disable()
    try:
        batch = actions(ITEM, [item(1, position=20), item(2, position=20)])
        freed = weakref.ref(batch.key)
        table.merge(batch, commit())
        del batch
        assert freed() is None
    finally:
        gc.enable()


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


def test_a_ledger_is_merged_while_entries_are_added(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock excludes these. An entry that another writer removes meanwhile is a conflict."""
    monkeypatch.setattr(upkeep, "LEDGER_COMMITS_UNTIL_COMPACTION", 8)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    table.ledger()

    def delete_key(key: str) -> None:
        table.record_tombstones({key: RowVersion(b"1", "t", 0, 1, 0)}, NOW)

    for number in range(10):
        delete_key(f"early {number}")
    commits.meanwhile = lambda: delete_key("meanwhile")
    table.maintain(NOW, 7 * DAY)
    ledger = f"lake.shop.`{shop.name}{SUFFIX}`"
    assert commits.meanwhile is None
    assert len(shop.warehouse.sql(f"SELECT * FROM {ledger}.files")) == 2
    assert len(shop.open().ledger()) == 11

    for number in range(10):
        delete_key(f"late {number}")
    commits.meanwhile = lambda: shop.warehouse.sql(f"DELETE FROM {ledger} WHERE key = 'early 3'")
    table.maintain(NOW, 7 * DAY)
    assert commits.meanwhile is None
    assert len(shop.warehouse.sql(f"SELECT * FROM {ledger}.files")) > 2
    assert len(shop.open().ledger()) == 20


@EITHER_WAY
def test_a_table_with_two_rows_of_one_key_is_merged(shop: Shop, commits: Commits) -> None:
    """An index could change only one of them; a MERGE changes both."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    shop.sql("INSERT INTO {table} (id, name) VALUES (1, 'twice')")
    assert apply(table, item(1, "ours", position=20)) == (2, 0)
    assert commits.count == 1


def test_indexes_share_their_memory(shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index that was not used for the longest time is dropped, and read again; a table that is too large merges."""
    shops = [Shop(shop.warehouse, f"{shop.name}_{number}") for number in range(2)]
    tables = [each.open() for each in shops]
    monkeypatch.setattr(shop.warehouse.lakehouse.indexes, "limit", 4_000)
    for table in tables:
        table.evolve(ITEM, ["id"])
        apply(table, *(item(key, position=10) for key in range(20)))
    for position in (20, 30):
        for table in tables:
            assert apply(
                table, item(1, "new", position=position), delete({"id": position // 10}, position=position)
            ) == (
                1,
                1,
            )
    assert commits.count == 6
    apply(tables[0], *(item(key, position=40) for key in range(100, 400)))
    assert apply(tables[0], item(101, "merged", position=50)) == (1, 0)
    assert commits.count == 7
    assert shops[0].rows()[101] == ("merged", "o", 1)


@pytest.mark.parametrize("row_group", [small_files.ROW_GROUP_BYTES, 1], ids=["", "row groups"])
@pytest.mark.parametrize("added", [None, "ALTER TABLE {table} ADD COLUMNS (more STRUCT<a: INT>)"], ids=["", "column"])
def test_small_files_are_merged_without_a_job(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch, added: str | None, row_group: int
) -> None:
    """Rows, ids and the numbers of their last changes stay; deleted rows and their vectors are gone.

    Spark reads each row group in a task of its own, which begins where the manifest says.
    """
    monkeypatch.setattr(small_files, "ROW_GROUP_BYTES", row_group)
    monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 3)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, position=10) for key in range(6)))
    apply(table, item(1, "new", position=11), item(7, "new", position=11), delete({"id": 2}, position=11))
    if added is not None:
        shop.sql(added)
        table = shop.open()
    lineage = f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.shop.`{shop.name}` ORDER BY id"
    shop.sql("ALTER TABLE {table} SET TBLPROPERTIES ('read.split.target-size' = '1')")
    apply(table, item(3, "newer", position=12))
    rows, before = shop.rows(), shop.warehouse.sql(lineage).to_pylist()
    monkeypatch.setattr(IcebergCompaction, "rewrite", None)
    table.maintain(NOW, 7 * DAY)
    assert shop.rows() == rows
    assert shop.warehouse.sql(lineage).to_pylist() == before
    files = f"SELECT file_size_in_bytes, split_offsets FROM lake.shop.`{shop.name}`.files"
    [file] = shop.warehouse.sql(files).to_pylist()  # without the size, Iceberg counts the offsets as invalid
    assert (len(file["split_offsets"]) > 1) == (row_group == 1)
    assert table.reached("connect-sink") == {}
    assert apply(table, item(3, "last", position=13), delete({"id": 1}, position=13)) == (1, 1)
    assert shop.rows() == {**{key: rows[key] for key in rows if key not in (1, 3)}, 3: ("last", "o", 1)}
    # Again, with deleted rows in the file that has been merged.
    apply(table, item(4, "last", position=14))
    apply(table, item(9, "new", position=15), delete({"id": 7}, position=15))
    rows, before = shop.rows(), shop.warehouse.sql(lineage).to_pylist()
    table.maintain(NOW, 7 * DAY)
    assert shop.rows() == rows
    assert shop.warehouse.sql(lineage).to_pylist() == before
    assert len(shop.warehouse.sql(f"SELECT * FROM lake.shop.`{shop.name}`.files")) == 1


def test_files_that_are_large_in_memory_are_left_to_spark(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small they are compressed."""
    monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 3)
    monkeypatch.setattr(small_files, "MOST_UNPACKED", 10_000)
    table = shop.open()
    table.evolve(ITEM, ["id"])
    for number in range(3):
        apply(table, item(number, f"{number}" * 15_000, position=10 + number))
    rewritten = []
    rewrite = IcebergCompaction.rewrite

    def observed(self: IcebergCompaction, *arguments: Any) -> Any:
        rewritten.append(arguments)
        return rewrite(self, *arguments)

    monkeypatch.setattr(IcebergCompaction, "rewrite", observed)
    rows = shop.rows()
    table.maintain(NOW, 7 * DAY)
    assert rewritten
    assert shop.rows() == rows


@pytest.mark.parametrize(
    ("shop", "partition"),
    [(VECTORS, ""), (SMALL, ""), (VECTORS, "bucket(3, id), name")],
    indirect=["shop"],
    ids=["", "small", "partitions"],
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_mixed_commits_of_two_handles_and_others(
    shop: Shop, commits: Commits, monkeypatch: pytest.MonkeyPatch, seed: int, partition: str
) -> None:
    """Direct commits, merges, compactions, rollbacks and statements of others in any order: rows, counts, row ids."""
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 3)
    monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
    chance, limit = random.Random(seed), shop.warehouse.lakehouse.indexes.limit
    few = {iceberg.MAX_SNAPSHOTS: "1", "history.expire.min-snapshots-to-keep": "1"}
    shop.options = {"layout": table_layout("iceberg", partition, ""), "properties": few}
    handles = [shop.open(), shop.open()]
    handles[0].evolve(ITEM, ["id"])
    apply(handles[0], *(item(key, position=1) for key in KEYS))
    model: dict[int, tuple[Any, ...]] = dict.fromkeys(KEYS, ("n", "o", 1))
    ids, kept = shop.row_ids(), None
    for position in range(2, 32):
        step = chance.choice(["ours"] * 6 + ["merge", "others", "compact", "expire", "our expiry", "roll back"])
        born: set[int] = set()  # keys whose row may be another one
        if step in ("ours", "merge"):
            chosen = chance.sample(KEYS, 4)
            batch, expected = [], dict(model)
            deleted = 0
            for key in chosen:
                if chance.random() < 0.3:
                    batch.append(delete({"id": key}, position=position))
                    deleted += expected.pop(key, None) is not None
                else:
                    name, keeps = f"{position % 3}", key in model and chance.random() < 0.4
                    batch.append(item(key, name, position=position, note=KEEP if keeps else "o"))
                    expected[key] = (name, model[key][1] if keeps else "o", 1)
            upserted = sum(not row.delete for row in batch)
            with monkeypatch.context() as patch:
                patch.setattr(shop.warehouse.lakehouse.indexes, "limit", 0 if step == "merge" else limit)
                assert apply(chance.choice(handles), *batch) == (upserted, deleted), (seed, position)
            born, model = set(expected) - set(model), expected
        elif step == "others":
            key = chance.choice(KEYS)
            if key in model:
                shop.sql(f"UPDATE {{table}} SET note = 'theirs' WHERE id = {key}")
                model = {**model, key: (model[key][0], "theirs", model[key][2])}
            else:
                shop.sql(f"INSERT INTO {{table}} (id, name) VALUES ({key}, 'theirs')")
                model, born = {**model, key: ("theirs", None, None)}, {key}
        elif step == "compact":
            chance.choice(handles).maintain(NOW + position * DAY, 7 * DAY)
        elif step == "expire":
            shop.sql(OTHERS["expire"])
            kept = None
        elif step == "our expiry":
            with monkeypatch.context() as patch:
                patch.setattr(iceberg, "_RECENT_MS", 0)
                for hour in range(2):  # the second one deletes the files
                    handles[0].maintain(NOW + position * DAY + (1 + 2 * hour) * HOUR, 7 * DAY)
            kept = None
        else:
            newest = f"SELECT snapshot_id FROM lake.shop.`{shop.name}`.history ORDER BY made_current_at DESC LIMIT 1"
            [snapshot] = shop.warehouse.sql(newest)["snapshot_id"].to_pylist()
            if kept is None:
                kept = (snapshot, model, ids)
            else:
                shop.sql(f"CALL lake.system.set_current_snapshot('shop.{{name}}', {kept[0]})")
                _, model, ids = kept
                kept = None
        assert shop.rows() == model, (seed, position, step)
        now = shop.row_ids()
        assert {key: now[key] for key in now if key not in born} == {key: ids[key] for key in now if key not in born}
        ids = now
    assert commits.count > 10


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Call to to_vector:DeprecationWarning")  # of PyIceberg, by Polars
@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # by PyIceberg, which Polars calls slower than its own
@pytest.mark.parametrize(
    ("shop", "partition"),
    [(VECTORS, ""), (SMALL, ""), (VECTORS, "bucket(4, id)")],
    indirect=["shop"],
    ids=["", "small", "partitions"],
)
def test_every_reader_after_a_thousand_commits(shop: Shop, commits: Commits, partition: str) -> None:
    """Batches of all sizes, one of 16 by MERGE, with upkeep: each reader gets the rows, which have kept their ids."""
    chance, indexes = random.Random(17), shop.warehouse.lakehouse.indexes
    keys, limit = range(1, 2_001 if row_index.SMALL_BYTES == 0 else 301), indexes.limit
    shop.options = {"layout": table_layout("iceberg", partition, "")}
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, position=1) for key in keys))
    model: dict[int, tuple[Any, ...]] = dict.fromkeys(keys, ("n", "o", 1))
    ids = shop.row_ids()
    for position in range(2, 1_002):
        batch = []
        for key in chance.sample(keys, chance.choice([1, 4, 30, 300])):
            if chance.random() < 0.1:
                batch.append(delete({"id": key}, position=position))
                model.pop(key, None)
                ids.pop(key, None)
            else:
                keeps = key in model and chance.random() < 0.2
                batch.append(item(key, f"{position}", note=KEEP if keeps else "o", qty=position, position=position))
                model[key] = (f"{position}", model[key][1] if keeps else "o", position)
        indexes.limit = 0 if position % 16 == 0 else limit
        apply(table, *batch)
        table.maintain(NOW + position * HOUR, DAY)
        if position % 250 == 0:
            assert shop.rows() == model
            assert shop.rows_by_other_readers() == {"Polars": model, "DuckDB": model}
            assert {key: row_id for key, row_id in shop.row_ids().items() if key in ids} == ids
    assert commits.count > 900
