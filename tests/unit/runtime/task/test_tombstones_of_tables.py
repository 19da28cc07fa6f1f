"""Tests of tombstones in a topic with two tables: a tombstone deletes no row of the other table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.task import sink_task
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds

pytestmark = pytest.mark.anyio
TOPIC = "shop.all"
JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFIG = {
    "name": "items",
    "connector.class": "LakehouseSink",
    "topics": TOPIC,
    "key.converter": JSON,
    "value.converter": JSON,
    "batch.linger.ms": "0",
    "collection.name.format": "${source.table}",
}
ROW = {"id": 1, "name": "a"}
Event = tuple[int, bytes | None]


def event(op: str, table: str, number: int, lsn: int) -> bytes:
    row = {"id": number, "name": table}
    return change(op, None if op == "d" else row, lsn, columns=ROW, table=table)


CREATED = ((0, event("c", "a", 1, 1)), (0, event("c", "b", 1, 2)), (0, event("d", "a", 1, 3)))
OTHERS: dict[str, Sequence[Sequence[Event]]] = {
    "another partition": [[(1, event("c", "b", 2, 4))], [(0, None)]],
    "another event behind it": [[(0, None), (0, event("c", "b", 2, 4))]],
    "another event before it": [[(0, event("c", "b", 2, 4)), (0, None)]],
}


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("shown", sorted(OTHERS))
async def test_the_row_of_another_table_stays(shown: str, restarted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tombstone after a delete removes no row of the other table, also after a restart and other events."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.02)
    broker, lakehouse, failures = MemoryBroker(), MemoryLakehouse(), list[BaseException]()
    await broker.create_topic(TOPIC, 2)
    ends = [0, 0]

    async def started() -> Any:
        factory = SinkTaskFactory(
            MemoryFeeds(broker),
            lakehouse,
            lambda database, options: MemoryRowSource(),
            threads,
            unlimited(),
            sources={},
        )
        task = await factory("items", 0, sink_connector_config(CONFIG, WorkerDefaults({}, "1.0")), failures.append)
        await task.start()
        return task

    async def brought(events: Sequence[Event]) -> None:
        for partition, value in events:
            number = 2 if value == event("c", "b", 2, 4) else 1
            broker.append(TOPIC, value, key({"id": number}), partition)
            ends[partition] += 1
        places = {TopicPartition(TOPIC, partition): end for partition, end in enumerate(ends) if end}
        await eventually(lambda: bool(failures) or broker.committed("connect-items").items() >= places.items())

    with WorkerThreads.start(2) as threads:
        task = await started()
        await brought(CREATED)
        if restarted:
            await task.stop()
            task = await started()
        for events in OTHERS[shown]:
            await brought(events)
        await task.stop()
    assert failures == []
    rows = {table: sorted(lakehouse.table("headrace", table, TableOptions()).rows()) for table in ("a", "b")}
    assert rows == {"a": [], "b": ["=1", "=2"]}
