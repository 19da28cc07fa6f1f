"""Which batches of Iceberg tables remain for MERGE, and the memory of those that do not."""

from __future__ import annotations

import gc
import weakref

import pyarrow as pa
import pytest
from support.fix_direct_commits import EITHER_WAY, Commits, Shop
from support.lake.lake_actions import KEEP, Row, actions, commit, delete
from support.lake.lake_harness import ITEM, apply, item

from headrace_connectors.lakehouse.direct import direct_table, direct_writer

pytestmark = pytest.mark.spark


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


@EITHER_WAY
def test_a_table_with_two_rows_of_one_key_is_merged(shop: Shop, commits: Commits) -> None:
    """An index could change only one of them; a MERGE changes both."""
    table = shop.open()
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    shop.sql("INSERT INTO {table} (id, name) VALUES (1, 'twice')")
    assert apply(table, item(1, "ours", position=20)) == (2, 0)
    assert commits.count == 1


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
