"""Delta tables that Spark writes and delta-rs reads pass the contract of lake tables."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from contracts.lake_actions import delete
from contracts.lake_harness import ITEM, apply, item
from contracts.lake_table_suite import LakeTableSuite
from contracts.spark_harness import DeltaHarness, with_two_commits
from delta_tables import delta_table
from deltalake.exceptions import DeltaProtocolError
from fix_spark import Warehouse

from headrace.core.model.errors import Fatal
from headrace.core.tables.table_layout import table_layout
from headrace.ports import TopicPartition

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(warehouse: Warehouse) -> DeltaHarness:
    return DeltaHarness(warehouse)


class TestDeltaTable(LakeTableSuite):
    """Delta tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


def test_the_layout_of_delta_tables(delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """The table has the configured partitions or clustering, and properties."""
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


def test_what_a_restore_has_undone_is_not_in_a_delta_table(
    delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """The history after a RESTORE still lists the undone commits; the offsets are those of the restored version."""
    name, table = with_two_commits(delta, unique)
    warehouse.sql(f"RESTORE TABLE {delta.sql_name(name)} TO VERSION AS OF 1")
    for each in (table, delta.open(name)):
        assert each.reached("connect-sink") == {TopicPartition("first", 0): 1}
    apply(table, item(5, position=5))
    assert delta.open(name).reached("connect-sink") == {TopicPartition("first", 0): 1}


PLAIN_DELTA = {"delta.enableDeletionVectors": "false", "delta.columnMapping.mode": "none"}
"""``table.properties.*`` for readers that know neither feature (docs/operations.md)."""


def test_plain_delta_tables_are_read_by_every_method_of_delta_rs(
    delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """delta-rs's ``to_pyarrow_table`` reads all rows of a table without the features of the default properties."""
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
    """A column may have any name only with column mapping."""
    table = delta.open(unique("named"), properties=PLAIN_DELTA)
    with pytest.raises(Fatal, match=r"requires table\.properties\.delta\.columnMapping\.mode=name"):
        table.evolve(pa.schema([("id", pa.int64()), ("unit price", pa.string())]), ["id"])
