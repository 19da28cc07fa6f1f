"""The contract of lake tables, kept by the tables that Spark writes, in every format.

PyIceberg and delta-rs read them, so that not only the engine that wrote them agrees.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from contracts.history_suite import HistorySuite
from contracts.lake_actions import Row, actions, commit, delete
from contracts.lake_harness import ITEM, apply, item, items
from contracts.lake_table_suite import LakeTableSuite
from contracts.pipeline_suite import LeftOutSuite, PipelineSuite
from contracts.soft_delete_suite import SoftDeleteSuite
from delta_tables import delta_rows, delta_table
from deltalake.exceptions import DeltaProtocolError
from fix_spark import Warehouse

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.tables.table_layout import table_layout
from headrace.ports import TableOptions, TopicPartition
from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_connectors.lakehouse.schema import column_list
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark


@contextmanager
def moved_away(*folders: Path) -> Iterator[None]:
    """An outage of the storage: the folders are not there for the time of the block."""
    away = [folder.with_name(f"{folder.name}.away") for folder in folders]
    for folder, elsewhere in zip(folders, away, strict=True):
        folder.rename(elsewhere)
    yield
    for folder, elsewhere in zip(folders, away, strict=True):
        elsewhere.rename(folder)


@contextmanager
def copied(*folders: Path) -> Iterator[None]:
    """At the end of the block the folders are replaced by copies from its beginning."""
    copies = [folder.with_name(f"{folder.name}.copy") for folder in folders]
    for folder, copy in zip(folders, copies, strict=True):
        shutil.copytree(folder, copy)
    yield
    for folder, copy in zip(folders, copies, strict=True):
        shutil.rmtree(folder)
        copy.rename(folder)


class IcebergHarness:
    """Tables of the run's warehouse. Reading them does not go through Spark."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str, **options: Any) -> SparkTable:
        return self._warehouse.lakehouse.table("shop", name, TableOptions(**options))

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        self.open(name)  # starts Spark
        self._warehouse.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
        self._warehouse.sql(f"CREATE TABLE lake.shop.`{name}` ({column_list(schema)}) USING iceberg")

    def read(self, name: str) -> pa.Table:
        return self._warehouse.read("shop", name)

    def summary(self, name: str) -> Mapping[str, str]:
        summary = self._warehouse.summary("shop", name)
        return {key: value for key, value in summary.items() if key.startswith("headrace.")}

    def drop(self, name: str) -> None:
        self._warehouse.sql(f"DROP TABLE lake.shop.`{name}`")

    def drop_ledger(self, name: str) -> None:
        self._warehouse.sql(f"DROP TABLE lake.shop.`{name}{SUFFIX}`")

    def hidden(self, name: str) -> AbstractContextManager[None]:
        return moved_away(*(self._warehouse.path / "shop" / each for each in (name, name + SUFFIX)))

    def restored(self, name: str) -> AbstractContextManager[None]:
        return copied(*(self._warehouse.path / "shop" / each for each in (name, name + SUFFIX)))

    def forget_history(self, name: str) -> None:
        self._warehouse.sql(
            f"CALL lake.system.expire_snapshots(table => 'shop.`{name}`', older_than => now(), retain_last => 1)"
        )

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO lake.shop.`{name}` {_row(cells)}")


class DeltaHarness:
    """The same with Delta tables; delta-rs does not know the type widening of those that have it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str, **options: Any) -> SparkTable:
        return self._warehouse.lakehouse.table("delta_shop", name, TableOptions("delta", **options))

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        self.open(name)  # starts Spark
        self._warehouse.sql(f"CREATE TABLE {self.sql_name(name)} ({column_list(schema)}) USING delta")

    def read(self, name: str) -> pa.Table:
        table = self._table(name)
        if "typeWidening" in (table.protocol().reader_features or ()):
            return self._warehouse.sql(f"SELECT * FROM {self.sql_name(name)}")
        return delta_rows(table)

    def summary(self, name: str) -> Mapping[str, str]:
        told = [entry["userMetadata"] for entry in self._table(name).history() if "userMetadata" in entry]
        return dict(json.loads(told[0])) if told else {}

    def drop(self, name: str) -> None:
        shutil.rmtree(self._warehouse.path / "delta_shop" / name)

    def drop_ledger(self, name: str) -> None:
        self.drop(name + SUFFIX)

    def hidden(self, name: str) -> AbstractContextManager[None]:
        return moved_away(*(self._warehouse.path / "delta_shop" / each for each in (name, name + SUFFIX)))

    def restored(self, name: str) -> AbstractContextManager[None]:
        return copied(*(self._warehouse.path / "delta_shop" / each for each in (name, name + SUFFIX)))

    def forget_history(self, name: str) -> None:
        """Delta's log says more than the newest commit for as long as its retention."""

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO {self.sql_name(name)} {_row(cells)}")

    def _table(self, name: str) -> Any:
        return delta_table(self._warehouse.path / "delta_shop" / name)

    def sql_name(self, name: str) -> str:
        path = str(self._warehouse.path / "delta_shop" / name).replace("`", "``")
        return f"delta.`{path}`"


def _row(cells: Mapping[str, Any]) -> str:
    return f"({', '.join(cells)}) VALUES ({', '.join(repr(cell) for cell in cells.values())})"


@pytest.fixture
def iceberg(warehouse: Warehouse) -> IcebergHarness:
    return IcebergHarness(warehouse)


@pytest.fixture
def delta(warehouse: Warehouse) -> DeltaHarness:
    return DeltaHarness(warehouse)


class TestIcebergTable(LakeTableSuite):
    """Iceberg tables pass the suite."""

    @pytest.fixture
    def lake(self, iceberg: IcebergHarness) -> IcebergHarness:
        return iceberg


class TestIcebergPipeline(PipelineSuite, LeftOutSuite):
    """So do pipelines that write them."""

    @pytest.fixture
    def lake(self, iceberg: IcebergHarness) -> IcebergHarness:
        return iceberg


class TestIcebergPipelineWithoutJvm(PipelineSuite):
    """And where Spark's JVM cannot be talked to, as under Spark Connect."""

    @pytest.fixture
    def lake(self, iceberg: IcebergHarness, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(TableSession, "java", None)
        return iceberg


class TestIcebergSoftDeletes(SoftDeleteSuite):
    """So do tables that mark deleted rows."""

    @pytest.fixture
    def lake(self, iceberg: IcebergHarness) -> IcebergHarness:
        return iceberg


class TestIcebergHistory(HistorySuite):
    """So do histories."""

    @pytest.fixture
    def lake(self, iceberg: IcebergHarness) -> IcebergHarness:
        return iceberg


class TestDeltaTable(LakeTableSuite):
    """Delta tables pass the suite."""

    @pytest.fixture
    def lake(self, delta: DeltaHarness) -> DeltaHarness:
        return delta


class TestDeltaPipeline(PipelineSuite):
    """So do pipelines that write them."""

    @pytest.fixture
    def lake(self, delta: DeltaHarness) -> DeltaHarness:
        return delta


class TestDeltaSoftDeletes(SoftDeleteSuite):
    """So do tables that mark deleted rows."""

    @pytest.fixture
    def lake(self, delta: DeltaHarness) -> DeltaHarness:
        return delta


class TestDeltaHistory(HistorySuite):
    """So do histories."""

    @pytest.fixture
    def lake(self, delta: DeltaHarness) -> DeltaHarness:
        return delta


def test_no_statement_is_logged(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """Statements hold the range of a batch's keys, which are data: not even that of an error gets into a log."""
    name, schema = unique("logged"), pa.schema([("id", pa.string())])
    table = iceberg.open(name)
    table.evolve(schema, ["id"])
    table.merge(actions(schema, [Row({"id": "secret-41"})]), commit())
    warehouse.sql(f"DROP TABLE lake.shop.`{name}`")
    with pytest.raises(Retriable):
        table.merge(actions(schema, [Row({"id": "secret-42"})]), commit())
    assert "secret-42" not in caplog.text


def test_the_layout_of_iceberg_tables(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """Partitions, sort order and properties are those that the connector wants, and merges go on as ever."""
    name = unique("laid_out")
    layout = table_layout("iceberg", "bucket(2, id), name", "note, qty desc")
    table = iceberg.open(name, layout=layout, properties={"write.target-file-size-bytes": "1000000"})
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, name=f"n{key % 2}", position=1) for key in range(4)))
    assert apply(table, item(1, name="n0", position=2), delete({"id": 2}, position=2)) == (1, 1)
    assert sorted((row["id"], row["name"]) for row in iceberg.read(name).to_pylist()) == [
        (0, "n0"),
        (1, "n0"),
        (3, "n1"),
    ]
    ddl = warehouse.sql(f"SHOW CREATE TABLE lake.shop.`{name}`")[0][0].as_py()
    assert "PARTITIONED BY (bucket(2, id), name)" in ddl
    assert "'sort-order' = 'note ASC NULLS FIRST, qty DESC NULLS LAST'" in ddl
    assert "'write.target-file-size-bytes' = '1000000'" in ddl


def test_the_layout_of_delta_tables(delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """Partitions or clusters, and properties."""
    parted, clustered = unique("parted"), unique("clustered")
    for name, layout in ((parted, table_layout("delta", "name", "")), (clustered, table_layout("delta", "", "note"))):
        table = delta.open(name, layout=layout, properties={"delta.checkpointInterval": "7"})
        table.evolve(ITEM, ["id"])
        apply(table, *(item(key, name=f"n{key % 2}", position=1) for key in range(4)))
        assert apply(table, item(1, name="n0", position=2), delete({"id": 2}, position=2)) == (1, 1)
        found = sorted((row["id"], row["name"]) for row in delta.read(name).to_pylist())
        assert found == [(0, "n0"), (1, "n0"), (3, "n1")]
    details = [warehouse.sql(f"DESCRIBE DETAIL {delta.sql_name(name)}").to_pylist()[0] for name in (parted, clustered)]
    assert [(each["partitionColumns"], each["clusteringColumns"]) for each in details] == [
        (["name"], []),
        ([], ["note"]),
    ]
    assert dict(details[0]["properties"])["delta.checkpointInterval"] == "7"


@pytest.mark.parametrize("with_jvm", [True, False])
def test_what_a_rollback_has_undone_is_not_in_an_iceberg_table(
    iceberg: IcebergHarness,
    warehouse: Warehouse,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    with_jvm: bool,
) -> None:
    """The offsets are those of the snapshot that the table has gone back to, although the later one is still listed."""
    if not with_jvm:
        monkeypatch.setattr(TableSession, "java", None)
    name, table = _with_two_commits(iceberg, unique)
    query = f"SELECT snapshot_id FROM lake.shop.`{name}`.snapshots ORDER BY committed_at"
    first = warehouse.sql(query)["snapshot_id"][0]
    warehouse.sql(f"CALL lake.system.rollback_to_snapshot('shop.`{name}`', {first})")
    for each in (table, iceberg.open(name)):
        assert each.reached("connect-sink") == {TopicPartition("first", 0): 1}


def test_what_a_restore_has_undone_is_not_in_a_delta_table(
    delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """Its history goes on with a RESTORE, and lists what that has undone."""
    name, table = _with_two_commits(delta, unique)
    warehouse.sql(f"RESTORE TABLE {delta.sql_name(name)} TO VERSION AS OF 1")
    for each in (table, delta.open(name)):
        assert each.reached("connect-sink") == {TopicPartition("first", 0): 1}
    apply(table, item(5, position=5))
    assert delta.open(name).reached("connect-sink") == {TopicPartition("first", 0): 1}


def _with_two_commits(lake: IcebergHarness | DeltaHarness, unique: Callable[[str], str]) -> tuple[str, SparkTable]:
    name = unique("rolled_back")
    table = lake.open(name)
    table.evolve(ITEM, ["id"])
    for number in (1, 2):
        table.merge(items(item(number, position=number)), commit(number, first=number))
    assert table.reached("connect-sink") == {TopicPartition("first", 0): 2}
    return name, table


PLAIN_DELTA = {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "none"}
"""``table.properties.*`` for readers that know neither feature (docs/operations.md)."""


def test_plain_delta_tables_are_read_by_every_method_of_delta_rs(
    delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """Its ``to_pyarrow_table`` refuses the features of the default properties; with others it reads all rows."""
    default, plain = unique("default"), unique("plain")
    for name, properties in ((default, {}), (plain, PLAIN_DELTA)):
        table = delta.open(name, properties=properties)
        table.evolve(ITEM, ["id"])
        apply(table, *(item(key, name=f"n{key}", position=1) for key in range(4)))
        assert apply(table, item(1, name="changed", position=2), delete({"id": 2}, position=2)) == (1, 1)
    folder = warehouse.path / "delta_shop"
    with pytest.raises(DeltaProtocolError, match="deletionVectors"):
        delta_table(folder / default).to_pyarrow_table()
    rows = delta_table(folder / plain).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["name"]) for row in rows) == [(0, "n0"), (1, "changed"), (3, "n3")]


def test_plain_delta_tables_refuse_names_that_parquet_cannot_hold(
    delta: DeltaHarness, unique: Callable[[str], str]
) -> None:
    """Column mapping is what lets a column have any name."""
    table = delta.open(unique("named"), properties=PLAIN_DELTA)
    with pytest.raises(Fatal, match=r"requires table\.properties\.delta\.columnMapping\.mode=name"):
        table.evolve(pa.schema([("id", pa.int64()), ("unit price", pa.string())]), ["id"])
