"""Iceberg tables that Spark writes and PyIceberg reads pass the contract of lake tables."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from contracts.history_suite import HistorySuite
from contracts.lake_table_suite import LakeTableSuite
from contracts.soft_delete_suite import SoftDeleteSuite
from support.fix_spark import Warehouse
from support.lake.lake_actions import Row, actions, commit, delete
from support.lake.lake_harness import ITEM, apply, item
from support.lake.spark_harness import IcebergHarness, with_two_commits

from headrace.core.model.errors import Retriable
from headrace.core.model.table_files import TableFiles
from headrace.core.tables.table_layout import table_layout
from headrace.ports import TopicPartition
from headrace_connectors.lakehouse.direct import row_index

pytestmark = pytest.mark.spark


@pytest.fixture
def iceberg(warehouse: Warehouse) -> IcebergHarness:
    return IcebergHarness(warehouse)


class TestIcebergTable(LakeTableSuite):
    """Iceberg tables whose batches are written without a Spark job pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
        return IcebergHarness(warehouse)


class TestSmallIcebergTable(LakeTableSuite):
    """Iceberg tables with one file, which each commit replaces, pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)


class TestMergedIcebergTable(LakeTableSuite):
    """Iceberg tables that exceed the memory for indexes pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(warehouse.lakehouse.indexes, "limit", 0)
        return IcebergHarness(warehouse)


class TestIcebergSoftDeletes(SoftDeleteSuite):
    """Iceberg tables with soft deletes pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
        return IcebergHarness(warehouse)


class TestSmallIcebergSoftDeletes(SoftDeleteSuite):
    """Iceberg tables with soft deletes and one file, which each commit replaces, pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)


class TestMergedIcebergSoftDeletes(SoftDeleteSuite):
    """Iceberg tables with soft deletes that exceed the memory for indexes pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(warehouse.lakehouse.indexes, "limit", 0)
        return IcebergHarness(warehouse)


class TestIcebergHistory(HistorySuite):
    """Iceberg histories pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)


def test_no_statement_is_logged(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """Statements contain the key range of a batch, which is data: no log has a statement, even after an error."""
    name, schema = unique("logged"), pa.schema([("id", pa.string())])
    table = iceberg.open(name)
    table.evolve(schema, ["id"])
    table.merge(actions(schema, [Row({"id": "secret-41"})]), commit())
    warehouse.sql(f"DROP TABLE lake.shop.`{name}`")
    with pytest.raises(Retriable):
        table.merge(actions(schema, [Row({"id": "secret-42"})]), commit())
    assert "secret-42" not in caplog.text


def test_another_format_version_than_configured_is_noted(iceberg: IcebergHarness, unique: Callable[[str], str]) -> None:
    """A catalog may choose it, or the table may be older than the option."""
    name = unique("versioned")
    notes = []
    for version in (2, 3):
        table = iceberg.open(name, format_version=version)
        table.evolve(ITEM, ["id"])
        for position in (1, 2):
            apply(table, item(1, name=f"n{position}", position=10 * version + position))
        notes.append(list(table.upkeep().notes))
    assert notes[0] == []
    assert [note.partition(":")[0] for note in notes[1]] == [
        "the table has version 2 of Iceberg's format, not 3 as configured (table.format.version, lake.readers)"
    ]


@pytest.mark.parametrize("format_version", [3, 2])
def test_the_reported_files_are_those_of_the_table(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str], format_version: int
) -> None:
    """After each commit, of a batch without a Spark job (version 3) and of a MERGE, without a look at the table."""
    name = unique("counted")
    table = iceberg.open(name, format_version=format_version)
    table.evolve(ITEM, ["id"])
    assert table.upkeep().files is None
    batches = [
        [item(key, position=1) for key in range(20)],
        [delete({"id": 3}, position=2), item(4, name="new", position=2)],
        [item(40, position=3), delete({"id": 5}, position=3)],
    ]
    for batch in batches:
        apply(table, *batch)
        files = warehouse.sql(f"SELECT * FROM lake.shop.`{name}`.files").to_pylist()
        data, deletes = ([file for file in files if (file["content"] > 0) is is_delete] for is_delete in (False, True))
        assert table.upkeep().files == TableFiles(
            len(data),
            len(deletes),
            sum(file["content_size_in_bytes"] or file["file_size_in_bytes"] for file in files),
            sum(file["record_count"] for file in data),
            sum(file["record_count"] for file in deletes),
        )
    assert table.upkeep().compacted is None


def test_the_layout_of_iceberg_tables(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """The table has the configured partitions, sort order and properties, and merges continue."""
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


def test_what_a_rollback_has_undone_is_not_in_an_iceberg_table(
    iceberg: IcebergHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """The offsets are those of the current snapshot after a rollback, although the later snapshot is still listed."""
    name, table = with_two_commits(iceberg, unique)
    query = f"SELECT snapshot_id FROM lake.shop.`{name}`.snapshots ORDER BY committed_at"
    first = warehouse.sql(query)["snapshot_id"][0]
    warehouse.sql(f"CALL lake.system.rollback_to_snapshot('shop.`{name}`', {first})")
    for each in (table, iceberg.open(name)):
        assert each.reached("connect-sink") == {TopicPartition("first", 0): 1}
