"""Tests of the events that invalidate the column cache of a sink task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key, whole_change
from support.task.sink_task_harness import (
    FIRST,
    GROUP,
    ITEMS,
    TOPIC,
    Harness,
    cached_reselect,
    flattened,
    running,
)

from headrace.core.reselect.cache.rows import CacheLimits
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task import sink_task
from headrace.transforms.registry import chain
from headrace_connectors.rocksdb import RocksRowStore

pytestmark = pytest.mark.anyio


async def test_n09_lost_record_invalidates_the_cache(harness: Harness) -> None:
    """N9: the update to B cannot be decoded.

    The next event omits the column, and the task reads B, not the cached A.
    """
    harness.insert(1, 10, "A")
    async with running(harness.task(tolerate=True, processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_n09_lost_record_between_two_of_a_batch(harness: Harness) -> None:
    """N9: one batch has the insert of A, a record that cannot be decoded, and an update that omits the column."""
    harness.insert(1, 10, "A")
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
    async with running(harness.task(tolerate=True, processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 3)
        assert harness.rows() == {"=1": {"id": 1, "name": "B"}}
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 40), key({"id": 1}))
        await eventually(lambda: harness.offset() == 4)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}, "A is not cached"


async def test_removed_records_invalidate_the_cache(harness: Harness) -> None:
    """Retention removed the update to B before it was read. The next event omits the column, and the task reads B."""
    harness.insert(1, 10, "A")
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        remove_update_to_b(harness)
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_records_removed_between_two_of_a_batch(harness: Harness) -> None:
    """Retention removes the update to B while the insert of A waits for its batch. The task reads B."""
    harness.insert(1, 10, "A")
    async with running(harness.task(linger=1.0, processor=cached_reselect("B"))) as task:
        await eventually(lambda: task.waiting("shop_public_items") == 1)
        remove_update_to_b(harness)
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


def remove_update_to_b(harness: Harness) -> None:
    harness.insert(1, 20, "B")
    harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
    harness.broker.remove(FIRST, before=2)


@pytest.mark.parametrize("known", [True, False])
async def test_n09_lost_record_between_two_of_a_history(harness: Harness, known: bool) -> None:
    """A history has the database's current value after a lost record, or marks the column as unavailable."""
    harness.insert(1, 10, "A")
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
    processor = cached_reselect("B") if known else None
    async with running(harness.task(tolerate=True, history=True, processor=processor)):
        await eventually(lambda: harness.offset() == 3)
    rows = harness.lakehouse.table("lake", "shop_public_items", TableOptions(history=True)).to_arrow().to_pylist()
    last = ("B", None) if known else (None, ["name"])
    assert [(row["name"], row["__headrace_unavailable"]) for row in rows] == [("A", None), last]


FILTER = {
    "transforms": "f",
    "transforms.f.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.f.predicate": "p",
    "predicates": "p",
    "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.p.name": "skip",
}


def update(name: str, lsn: int) -> bytes:
    """Return an update of row 1 with all fields that transforms read."""
    return whole_change("u", None, {"id": 1, "name": name}, lsn)


@pytest.mark.parametrize("written", [0, 1], ids=["one batch", "two batches"])
async def test_n09_change_that_a_filter_drops(harness: Harness, written: int) -> None:
    """N9: a filter drops the update to B. The next event omits the column, and the task reads B, not A."""
    harness.broker.append(TOPIC, update("A", 10), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"), transforms=chain(FILTER), linger=0.05)):
        await eventually(lambda: (harness.offset() or 0) >= written)
        harness.broker.append(TOPIC, update("B", 20), key({"id": 1}), headers=[("skip", b"1")])
        harness.broker.append(TOPIC, update(PLACEHOLDER, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_a_dropped_tombstone_does_not_invalidate_the_cache(harness: Harness) -> None:
    """A dropped tombstone repeats an applied delete, so the cache entries of other rows stay valid."""
    harness.broker.append(TOPIC, update("A", 10), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"), transforms=chain(FILTER))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, None, key({"id": 2}), headers=[("skip", b"1")])
        harness.broker.append(TOPIC, update(PLACEHOLDER, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "A"}}


@pytest.mark.parametrize(("metadata", "name"), [({"__op": "u", "__lsn": 30}, "B"), ({"__op": "u"}, "A"), ({}, "A")])
async def test_flattened_records_are_reselected_only_with_metadata(
    harness: Harness, metadata: dict[str, Any], name: str
) -> None:
    """A flattened record is reselected only with op, position and table. Otherwise the stored cell is kept."""
    source = {"__name": ITEMS.name, "__db": ITEMS.database, "__schema": ITEMS.schema, "__table": ITEMS.table}
    harness.insert(1, 10, "A")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    harness.broker.append(TOPIC, flattened({"id": 1, "name": PLACEHOLDER} | source | metadata), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 2)
    assert harness.rows() == {"=1": {"id": 1, "name": name}}


async def test_s17_snapshot_invalidates_the_cache(harness: Harness) -> None:
    """S17: after a snapshot begins, an event omits the column of row 1, and the task does not use the cached value."""
    harness.insert(1, 10, "A")
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        begin = change("r", {"id": 2, "name": "x"}, 20, snapshot="first_in_data_collection")
        harness.broker.append(TOPIC, begin, key({"id": 2}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows()["=1"] == {"id": 1, "name": "B"}


async def test_a_schema_change_invalidates_the_cache(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task commits the schema change, and reads cells of the changed table again instead of using the cache."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)
    await harness.broker.create_topic("shop.changes")
    harness.insert(1, 10, "A")
    source = {"connector": "oracle", "name": ITEMS.name, "snapshot": "false"}
    altered = [{"type": "ALTER", "id": '"shop"."public"."items"', "table": {"columns": []}}]
    payload = {"source": source, "databaseName": "shop", "schemaName": "public", "ddl": "", "tableChanges": altered}
    schema = {"type": "struct", "name": "io.debezium.connector.oracle.SchemaChangeValue", "fields": []}
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append("shop.changes", json.dumps({"schema": schema, "payload": payload}).encode(), None)
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition("shop.changes", 0)) == 1)
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 2)
    assert harness.failures == []
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_an_update_of_an_absent_row_is_a_contradiction(harness: Harness) -> None:
    """An update that omits a cell of an absent row fails the task. A metric counts these rows.

    The verification of the task receives the table.
    """
    metrics = Metrics()
    reported: list[tuple[str, str, str]] = []
    processor = Reselect(
        ReselectOptions(),
        metrics=metrics.reselects("items", 0),
        on_contradiction=lambda topic, table, kind: reported.append((topic, table.table, kind)),
    )
    harness.insert(1, 1)
    for number in (1, 2, 3):
        row = {"id": number, "name": PLACEHOLDER}
        harness.broker.append(TOPIC, change("u", row, 10 + number), key({"id": number}))
    async with running(harness.task(processor=processor)):
        await eventually(lambda: harness.failures)
    assert "not in the table" in str(harness.failures[0])
    labels = {"connector": "items", "task": "0", "table": "public.items", "kind": "update_without_create"}
    assert metrics.registry.get_sample_value("reselect_contradictions_total", labels) == 2
    assert reported == [(TOPIC, "items", "update_without_create")]


async def test_a_cache_on_disk_is_used_after_a_restart(harness: Harness, tmp_path: Path) -> None:
    """A task that continues at its last offset uses its cache. After another task's writes it reads again (S9)."""

    async def run(processor: Reselect, until: int) -> None:
        async with running(harness.task(processor=processor)):
            await eventually(lambda: harness.offset() == until)

    def on_disk() -> Reselect:
        return cached_reselect("now", RocksRowStore(tmp_path / "rows", CacheLimits()))

    def update(name: str, lsn: int) -> None:
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": name}, lsn), key({"id": 1}))

    harness.insert(1, 10, "A")
    await run(on_disk(), until=1)
    update(PLACEHOLDER, 20)
    await run(on_disk(), until=2)
    assert harness.rows() == {"=1": {"id": 1, "name": "A"}}
    update("B", 30)
    await run(cached_reselect("now"), until=3)
    update(PLACEHOLDER, 40)
    await run(on_disk(), until=4)
    assert harness.rows() == {"=1": {"id": 1, "name": "now"}}
