"""Key changes on their way through a sink task: whose cells the row under the new key has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from envelopes import PLACEHOLDER, change, key
from fix_asyncio import eventually
from unit.runtime.sink_task_harness import GROUP, TOPIC, Harness, running

from headrace.ports import TopicPartition
from headrace_connectors.memory import MemoryLakehouse
from headrace_connectors.memory.feed import MemoryBroker

pytestmark = pytest.mark.anyio

SECOND = TopicPartition(TOPIC, 1)
COLUMNS = {"id": 1, "name": ""}


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """A harness with one topic of two partitions."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC, 2)
    with ThreadPoolExecutor(4) as executor:
        yield Harness(broker, MemoryLakehouse(), executor)


def insert(harness: Harness, number: int, lsn: int, name: str) -> None:
    harness.broker.append(TOPIC, change("c", {"id": number, "name": name}, lsn), key({"id": number}))


def read(harness: Harness, number: int, name: str) -> None:
    row = change("r", {"id": number, "name": name}, 900, snapshot="true")
    harness.broker.append(TOPIC, row, key({"id": number}))


def delete(harness: Harness, number: int, lsn: int, new: int | None = None) -> None:
    headers = [] if new is None else [("__debezium.newkey", key({"id": new}))]
    gone = change("d", None, lsn, columns=COLUMNS)
    harness.broker.append(TOPIC, gone, key({"id": number}), headers=headers)
    harness.broker.append(TOPIC, None, key({"id": number}), headers=headers)


def moved_in(harness: Harness, number: int, lsn: int, old: int, partition: int = 0, name: str = PLACEHOLDER) -> None:
    row = change("c", {"id": number, "name": name}, lsn)
    headers = [("__debezium.oldkey", key({"id": old}))]
    harness.broker.append(TOPIC, row, key({"id": number}), partition, headers)


def names(harness: Harness) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in harness.rows().values()}


async def test_a_row_keeps_its_own_value_when_its_old_key_is_used_again(harness: Harness) -> None:
    """The second half lies in another partition and arrives behind the next row of the old key."""
    insert(harness, 117, 100, "FIRST")
    delete(harness, 117, 200, new=158)
    insert(harness, 117, 300, "SECOND")
    delete(harness, 117, 400)
    moved_in(harness, 158, 200, old=117, partition=1)
    async with running(harness.task(linger=0.2)):
        await eventually(lambda: harness.broker.committed(GROUP).get(SECOND, 0) == 1 or bool(harness.failures))
        await eventually(lambda: harness.offset() == 6 or bool(harness.failures))
    assert not harness.failures
    assert names(harness) == {158: "FIRST"}


async def test_a_snapshot_that_reads_ahead_supplies_nothing_to_a_key_change(harness: Harness) -> None:
    """Nothing supplies the value without a database: the task stops rather than take that of the new row 1."""
    read(harness, 1, "new")
    read(harness, 2, "old")
    delete(harness, 1, 100, new=2)
    moved_in(harness, 2, 100, old=1)
    insert(harness, 1, 200, "new")
    async with running(harness.task(linger=0.2)):
        await eventually(lambda: bool(harness.failures) or harness.offset() == 6)
    assert "leaves out column(s) name" in str(harness.failures[0])
