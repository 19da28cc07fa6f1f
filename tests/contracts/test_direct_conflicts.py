"""Commits to Iceberg tables without a Spark job while somebody else commits, or without an answer."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.fix_direct_commits import EITHER_WAY, SMALL, VECTORS, Commits, Shop
from support.lake.lake_actions import KEEP, delete
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item

from headrace.core.model.events import RowVersion
from headrace.core.tables.table_layout import table_layout
from headrace_connectors.lakehouse import compaction_plan, iceberg, upkeep
from headrace_connectors.lakehouse.direct import row_index
from headrace_connectors.lakehouse.ledger import SUFFIX

pytestmark = pytest.mark.spark

KEYS = range(1, 13)
HOUR = DAY // 24
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
