"""What voids the column cache of a sink task, and what its rows are read again for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from envelopes import PLACEHOLDER, change, key, whole_change
from fix_asyncio import eventually
from unit.runtime.sink_task_harness import (
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


async def test_n09_lost_record_voids_the_cache(harness: Harness) -> None:
    """N9: the update to B cannot be decoded; the next event leaves the column out, and finds B, not the cached A."""
    harness.insert(1, 10, "A")
    async with running(harness.task(tolerate=True, processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_n09_lost_record_between_two_of_a_batch(harness: Harness) -> None:
    """N9: the insert of A, an update that cannot be decoded, and one that leaves the column out are written as one."""
    harness.insert(1, 10, "A")
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
    async with running(harness.task(tolerate=True, processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 3)
        assert harness.rows() == {"=1": {"id": 1, "name": "B"}}
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 40), key({"id": 1}))
        await eventually(lambda: harness.offset() == 4)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}, "nor is A what was cached"


async def test_records_that_are_gone_void_the_cache(harness: Harness) -> None:
    """Retention removed the update to B before it was read; the next event leaves the column out, and finds B."""
    harness.insert(1, 10, "A")
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        remove_update_to_b(harness)
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_records_that_are_gone_between_two_of_a_batch(harness: Harness) -> None:
    """The insert of A waits for its batch while retention removes the update to B."""
    harness.insert(1, 10, "A")
    async with running(harness.task(linger=0.3, processor=cached_reselect("B"))) as task:
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
    """The event behind it shows what the database has now, or without a database that nobody knows."""
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
    """Of row 1, with all that transforms go by."""
    return whole_change("u", None, {"id": 1, "name": name}, lsn)


@pytest.mark.parametrize("written", [0, 1], ids=["one batch", "two batches"])
async def test_n09_change_that_a_filter_drops(harness: Harness, written: int) -> None:
    """N9: the update to B is not applied; the next event leaves the column out, and finds B, not A."""
    harness.broker.append(TOPIC, update("A", 10), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"), transforms=chain(FILTER), linger=0.05)):
        await eventually(lambda: (harness.offset() or 0) >= written)
        harness.broker.append(TOPIC, update("B", 20), key({"id": 1}), headers=[("skip", b"1")])
        harness.broker.append(TOPIC, update(PLACEHOLDER, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_a_tombstone_that_is_dropped_voids_no_cache(harness: Harness) -> None:
    """It repeats a delete, which has been applied: what is cached of other rows goes on to count."""
    harness.broker.append(TOPIC, update("A", 10), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"), transforms=chain(FILTER))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, None, key({"id": 2}), headers=[("skip", b"1")])
        harness.broker.append(TOPIC, update(PLACEHOLDER, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows() == {"=1": {"id": 1, "name": "A"}}


@pytest.mark.parametrize(("told", "name"), [({"__op": "u", "__lsn": 30}, "B"), ({"__op": "u"}, "A"), ({}, "A")])
async def test_flattened_records_are_reselected_only_if_they_tell_enough(
    harness: Harness, told: dict[str, Any], name: str
) -> None:
    """Op, position and table; otherwise a column that is left out keeps what the table has."""
    source = {"__name": ITEMS.name, "__db": ITEMS.database, "__schema": ITEMS.schema, "__table": ITEMS.table}
    harness.insert(1, 10, "A")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    harness.broker.append(TOPIC, flattened({"id": 1, "name": PLACEHOLDER} | source | told), key({"id": 1}))
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 2)
    assert harness.rows() == {"=1": {"id": 1, "name": name}}


async def test_s17_snapshot_voids_the_cache(harness: Harness) -> None:
    """S17: a snapshot begins, and row 1 is not in it yet when an event leaves its column out."""
    harness.insert(1, 10, "A")
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        begin = change("r", {"id": 2, "name": "x"}, 20, snapshot="first_in_data_collection")
        harness.broker.append(TOPIC, begin, key({"id": 2}))
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 3)
    assert harness.rows()["=1"] == {"id": 1, "name": "B"}


async def test_a_schema_change_voids_the_cache(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic holds no rows and its offset moves; what was cached of the table it names is read again."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.05)
    await harness.broker.create_topic("shop.changes")
    harness.insert(1, 10, "A")
    source = {"connector": "oracle", "name": ITEMS.name, "snapshot": "false"}
    altered = [{"type": "ALTER", "id": '"shop"."public"."items"', "table": {"columns": []}}]
    told = {"source": source, "databaseName": "shop", "schemaName": "public", "ddl": "", "tableChanges": altered}
    schema = {"type": "struct", "name": "io.debezium.connector.oracle.SchemaChangeValue", "fields": []}
    async with running(harness.task(processor=cached_reselect("B"))):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append("shop.changes", json.dumps({"schema": schema, "payload": told}).encode(), None)
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition("shop.changes", 0)) == 1)
        harness.broker.append(TOPIC, change("u", {"id": 1, "name": PLACEHOLDER}, 30), key({"id": 1}))
        await eventually(lambda: harness.offset() == 2)
    assert harness.failures == []
    assert harness.rows() == {"=1": {"id": 1, "name": "B"}}


async def test_an_update_of_a_row_that_is_not_there_is_a_contradiction(harness: Harness) -> None:
    """It leaves out what only the table could have: the task stops, and a metric says of how many rows."""
    metrics = Metrics()
    processor = Reselect(ReselectOptions(), metrics=metrics.reselects("items", 0))
    harness.insert(1, 1)
    for number in (1, 2, 3):
        row = {"id": number, "name": PLACEHOLDER}
        harness.broker.append(TOPIC, change("u", row, 10 + number), key({"id": number}))
    async with running(harness.task(processor=processor)):
        await eventually(lambda: harness.failures)
    assert "not in the table" in str(harness.failures[0])
    labels = {"connector": "items", "task": "0", "table": "public.items", "kind": "update_without_create"}
    assert metrics.registry.get_sample_value("reselect_contradictions_total", labels) == 2


async def test_a_cache_on_disk_serves_after_a_restart(harness: Harness, tmp_path: Path) -> None:
    """A task that goes on where it stopped asks for nothing; after another one has gone on meanwhile it asks (S9)."""

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
