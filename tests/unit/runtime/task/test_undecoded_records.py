"""The few records of a table that has changes already are decoded together, when its next batch is closed."""

from __future__ import annotations

import json

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.ports import Chunk, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.task import arrived_records
from headrace.runtime.task.sink_task import SinkTask
from headrace_dev.memory.feed import MemoryRecord

pytestmark = pytest.mark.anyio

ITEMS = "shop_public_items"
LATER = 1000.0
"""A linger that does not end during a test: only ``pause`` closes a batch."""


class Decoded(Observer):
    """How many records each chunk had that was decoded."""

    def __init__(self) -> None:
        self.records: list[int] = []

    def on_chunk_decoded(self, partition: TopicPartition, records: int, skipped: int) -> None:
        self.records.append(records)


async def insert(harness: Harness, task: SinkTask, *numbers: int) -> None:
    """Insert rows, and wait until the task has each before the next one."""
    for number in numbers:
        waiting = task.waiting(ITEMS)
        harness.insert(number, 10 * number, f"name {number}")
        await eventually(lambda before=waiting: task.waiting(ITEMS) == before + 1)


async def test_records_of_a_waiting_table_are_decoded_with_its_batch(harness: Harness) -> None:
    """All of them are in the batch, which a pause closes, and the offsets pass them."""
    decoded = Decoded()
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        await insert(harness, task, 1, 2, 3, 4, 5)
        assert decoded.records == [1]
        await task.pause()
        assert decoded.records == [1, 4]
        assert (len(harness.rows()), harness.offset(), harness.failures) == (5, 5, [])


async def test_the_next_batch_begins_with_a_record_that_is_decoded(harness: Harness) -> None:
    """Its source time decides how urgent the table is."""
    decoded = Decoded()
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        await insert(harness, task, 1, 2)
        await task.pause()
        await task.resume()
        await insert(harness, task, 3, 4)
        assert decoded.records == [1, 1, 1]


async def test_many_records_are_decoded_at_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch would have to wait for them. Those before them are decoded first."""
    monkeypatch.setattr(arrived_records, "SMALL_RECORDS", 2)
    decoded = Decoded()
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        await insert(harness, task, 1, 2, 3, 4)
        assert decoded.records == [1, 3]
        await task.pause()
        assert harness.rows()["=4"] == {"id": 4, "name": "name 4"}


async def test_large_records_are_decoded_at_once(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrived_records, "SMALL_BYTES", 1)
    decoded = Decoded()
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        await insert(harness, task, 1, 2)
        assert decoded.records == [1, 1]


async def test_undecoded_records_fill_a_batch(harness: Harness) -> None:
    """They count for the limits of a batch, and so for what is read ahead."""
    async with running(harness.task(linger=LATER, max_records=3)) as task:
        await insert(harness, task, 1, 2)
        harness.insert(3, 30)
        await eventually(lambda: harness.offset() == 3)


async def test_records_of_a_topic_of_several_tables_are_decoded_at_once(harness: Harness) -> None:
    """Half of a key change would wait in the lane of another table. Such a topic has not the name of its table."""
    topic, decoded = "shop.public.all", Decoded()
    await harness.broker.create_topic(topic)
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        for number in (1, 2):
            row = {"id": number, "name": "new"}
            harness.broker.append(topic, change("c", row, number), key({"id": number}))
            await eventually(lambda sent=number: task.waiting("shop_public_all") == sent)
        assert decoded.records == [1, 1]


async def test_records_behind_lost_ones_are_decoded_apart(harness: Harness) -> None:
    """What the loss invalidates lies between them."""
    decoded = Decoded()
    async with running(harness.task(linger=LATER, observer=decoded)) as task:
        await insert(harness, task, 1, 2)
        record = MemoryRecord(TOPIC, 0, 9, 0, key({"id": 9}), change("c", {"id": 9, "name": "new"}, 90))
        await task.put([Chunk(task.epoch, 2, FIRST, [record], 2, 10, gone=True)])
        assert decoded.records == [1, 1, 1]


async def test_records_behind_a_tombstone_are_not_forgotten(harness: Harness) -> None:
    """The tombstone of the delete before it is no change, so the next record waits for a batch that has none."""
    harness.insert(1, 10)
    harness.broker.append(TOPIC, change("d", None, 20, columns={"id": 1, "name": ""}), key({"id": 1}))
    async with running(harness.task(linger=0.01)) as task:
        await eventually(lambda: harness.offset() == 2)
        tombstone = MemoryRecord(TOPIC, 0, 2, 0, key({"id": 1}), None)
        record = MemoryRecord(TOPIC, 0, 3, 0, key({"id": 9}), change("c", {"id": 9, "name": "new"}, 90))
        await task.put([Chunk(task.epoch, 1, FIRST, [tombstone], 2, 3)])
        await task.put([Chunk(task.epoch, 2, FIRST, [record], 3, 4)])
        await eventually(lambda: harness.offset() == 4)
        assert harness.rows() == {"=9": {"id": 9, "name": "new"}}


async def test_a_bad_record_fails_its_table_with_the_batch(harness: Harness) -> None:
    """No offset passes it, nor the changes that waited before it."""
    async with running(harness.task(linger=LATER, isolated=True)) as task:
        await insert(harness, task, 1)
        harness.broker.append(TOPIC, b"{broken", json.dumps({"id": 2}).encode())
        await eventually(lambda: task.waiting(ITEMS) == 2)
        await task.pause()
        [status] = task.tables()
        assert status.state is TableState.FAILED
        assert "at offset 1" in status.trace
        assert harness.offset() == 0
