"""Small files of Iceberg tables are merged without a Spark job."""

from __future__ import annotations

from typing import Any

import pytest
from support.fix_direct_commits import Commits, Shop
from support.lake.lake_actions import delete
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item

from headrace_connectors.lakehouse import compaction_plan, upkeep
from headrace_connectors.lakehouse.direct import small_files
from headrace_connectors.lakehouse.iceberg_compaction import IcebergCompaction

pytestmark = pytest.mark.spark


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
