"""Delta tables that Spark writes and delta-rs reads pass the contract of lake tables."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from contracts.lake_table_suite import LakeTableSuite
from deltalake.exceptions import DeltaProtocolError
from support.fix_spark import Warehouse
from support.lake.delta_tables import delta_table
from support.lake.lake_actions import delete
from support.lake.lake_harness import ITEM, apply, item
from support.lake.spark_harness import DeltaHarness, with_two_commits

from headrace.core.model.errors import Fatal
from headrace.core.tables.table_layout import table_layout
from headrace.ports import TopicPartition
from headrace_connectors.lakehouse.ledger import SUFFIX

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(warehouse: Warehouse) -> DeltaHarness:
    return DeltaHarness(warehouse)


class TestDeltaTable(LakeTableSuite):
    """Delta tables pass the suite.

    The short form has one test of each kind of statement, and those of what only ``delta.py`` does: properties of a
    commit, wider types, column mapping, versions, ledgers and upkeep. Iceberg tables run the complete suite.
    """

    SHORT_FORM = (
        # CREATE, and tables of others
        "test_first_rows_are_all_there",
        "test_a_table_of_others_is_adopted",
        "test_a_table_of_others_is_refused",
        "test_a_table_that_does_not_exist",
        "test_a_table_that_is_not_there_has_no_rows",
        "test_a_layout_with_a_column_that_the_table_does_not_have",
        "test_the_creation_of_a_table_stores_its_source",
        # ALTER: columns, members, wider types, names and types
        "test_new_columns_are_added",
        "test_members_are_added_to_structs",
        "test_types_get_wider",
        "test_names_and_keys_of_any_kind",
        "test_every_type_comes_back_as_it_went",
        "test_other_types_are_refused",
        "test_a_column_that_another_writer_added",
        # MERGE and DELETE, and their counts
        "test_a_batch_of_every_kind_is_counted",
        "test_deletes",
        "test_kept_cells_stay",
        "test_truncate_of_a_table_without_rows",
        # SELECT
        "test_reading_by_key_brings_rows_with_their_versions",
        # properties of commits and of the table
        "test_a_commit_contains_its_metadata",
        # the ledger, which Delta keeps under CREATE OR REPLACE
        "test_tombstones_are_there_after_a_restart",
        "test_a_ledger_that_is_gone_is_no_empty_one",
        "test_a_ledger_that_others_add_to_has_moved",
        # other writers, older versions
        "test_a_table_that_another_handle_has_created_is_not_written",
        "test_an_older_copy_is_noticed_at_once",
        "test_an_older_copy_with_a_foreign_commit_is_detected",
        # OPTIMIZE and VACUUM
        "test_upkeep_changes_no_row",
    )

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


def test_a_table_is_created_where_a_vacuum_left_a_folder(
    delta: DeltaHarness, warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """VACUUM creates the folder of the log again if the table or its ledger is dropped meanwhile."""
    name = unique("vacuumed")
    for folder in (name, name + SUFFIX):
        (warehouse.path / "delta_shop" / folder / "_delta_log" / "_staged_commits").mkdir(parents=True)
    table = delta.open(name)
    assert table.schema() is None
    table.evolve(ITEM, ["id"])
    assert apply(table, item(1, position=10)) == (1, 0)
    assert delta.read(name)["id"].to_pylist() == [1]


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


@pytest.mark.long
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


@pytest.mark.long
def test_plain_delta_tables_refuse_names_that_parquet_cannot_hold(
    delta: DeltaHarness, unique: Callable[[str], str]
) -> None:
    """A column may have any name only with column mapping."""
    table = delta.open(unique("named"), properties=PLAIN_DELTA)
    with pytest.raises(Fatal, match=r"requires table\.properties\.delta\.columnMapping\.mode=name"):
        table.evolve(pa.schema([("id", pa.int64()), ("unit price", pa.string())]), ["id"])
