"""Tests of sink tasks that are paused or throttled, also during a rebalance."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import TOPIC, Harness, reselect, running

from headrace.converters.conversion import Conversion, Headers
from headrace.core.decode.json_converter import JsonData
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import Retriable
from headrace.ports import Commit, TableOptions
from headrace_dev.memory import feed

pytestmark = pytest.mark.anyio

TABLE = "shop_public_items"


async def test_a_paused_task_reads_nothing_until_it_is_resumed(harness: Harness) -> None:
    """A pause writes and commits the records that were read. The task reads later records after resume."""
    async with running(harness.task(linger=30.0)) as task:
        harness.insert(1, 10)
        await eventually(lambda: task.waiting("shop_public_items") == 1)
        await task.pause()
        assert harness.offset() == 1
        harness.insert(2, 20)
        assert set(harness.rows()) == {"=1"}
        await task.resume()
        await eventually(lambda: task.waiting("shop_public_items") == 1)


async def test_a_chunk_decoded_after_a_pause_waits_for_resume(harness: Harness) -> None:
    """A chunk that was fetched before the pause and decoded after it is written after resume, not while PAUSED."""
    slow = Waiting()
    async with running(harness.task(conversion=Conversion(value=slow))) as task:
        harness.insert(1, 10)
        await eventually(slow.began.is_set)
        await task.pause()
        slow.go.set()
        await eventually(lambda: task.waiting(TABLE) == 1)
        await asyncio.sleep(0)  # its writer has run
        assert (harness.rows(), harness.offset()) == ({}, 0)
        await task.resume()
        await eventually(lambda: harness.offset() == 1)
    assert set(harness.rows()) == {"=1"}


async def test_a_rebalance_does_not_block_a_pause(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance discards the batch that waits behind the one in flight. The task reads it again after resume."""
    merge = Waiting()
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    monkeypatch.setattr(table, "merge", merge.before(table.merge))
    async with running(harness.task()) as task:
        harness.insert(1, 10)
        await eventually(merge.began.is_set)
        harness.insert(2, 20)
        await eventually(lambda: task.waiting(TABLE) == 1)
        pausing = asyncio.create_task(task.pause())
        rebalancing = asyncio.create_task(harness.broker.create_topic("shop.public.notes"))
        await asyncio.sleep(0)  # both have begun
        merge.go.set()
        await rebalancing
        async with asyncio.timeout(60):
            await pausing
        assert set(harness.rows()) == {"=1"}
        await task.resume()
        await eventually(lambda: harness.offset() == 2)
    assert set(harness.rows()) == {"=1", "=2"}


async def test_a_rebalance_ends_the_throttling_of_a_full_queue(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebalance discards the queue of a throttled topic, and the task fetches the topic again."""
    merge = Waiting()
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    monkeypatch.setattr(table, "merge", merge.before(table.merge))
    monkeypatch.setattr(feed, "CHUNK_RECORDS", 1)
    async with running(harness.task(max_records=1)) as task:
        for number in range(1, 8):
            harness.insert(number, 10 * number)
        await eventually(lambda: merge.began.is_set() and task.waiting(TABLE) > 0)
        waiting = task.waiting(TABLE)
        rebalancing = asyncio.create_task(harness.broker.create_topic("shop.public.notes"))
        await asyncio.sleep(0)  # it has begun
        assert task.waiting(TABLE) == waiting < 6, "the topic is throttled"
        merge.go.set()
        await rebalancing
        await eventually(lambda: harness.offset() == 7)
    assert len(harness.rows()) == 7


async def test_a_task_that_leaves_does_not_commit_its_last_write(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task whose ``stop`` timed out leaves the group before its write ends, and commits no offsets."""
    merge = Waiting()
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    monkeypatch.setattr(table, "merge", merge.before(table.merge))
    old, new = harness.task(0), harness.task(1)
    await old.start()
    harness.insert(1, 10)
    await eventually(merge.began.is_set)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await old.stop()
    leaving = asyncio.create_task(old.leave())
    monkeypatch.setattr(table, "merge", table.merge)
    async with running(new):
        await eventually(lambda: new.epoch > 0)
        assert not leaving.done()
        merge.go.set()
        await leaving
        await eventually(lambda: harness.offset() == 1)
    assert set(harness.rows()) == {"=1"}
    assert harness.failures == []


async def test_a_task_that_leaves_ends_retries_without_end(harness: Harness) -> None:
    """With ``errors.retry.timeout=-1`` a task that leaves ends a write that retries an unavailable database."""
    processor: Any = reselect(["now"], errors_retry_timeout_ms=-1, errors_retry_delay_max_ms=1)
    source = processor._source._source  # the database below the retries
    task = harness.task(processor=processor)
    await task.start()
    source.failures = [Retriable("the database is away")] * 10_000
    placeholder = {"id": 1, "name": "__debezium_unavailable_value"}
    harness.broker.append(TOPIC, change("u", placeholder, 10), key({"id": 1}))
    await eventually(lambda: len(source.failures) < 9_999)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await task.stop()
    async with asyncio.timeout(60):
        await task.leave()


class Waiting:
    """A step (a merge or a converter) that begins, and continues when the test sets ``go``."""

    def __init__(self) -> None:
        self.began, self.go = Event(), Event()
        self._json = JsonData(True)

    def wait(self) -> None:
        self.began.set()
        assert self.go.wait(10)

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        self.wait()
        return self._json.to_connect_data(document)

    def before(self, merge: Any) -> Any:
        """Return a merge that waits first."""

        def waiting(table: Any, actions: Any, commit: Commit) -> Any:
            self.wait()
            return merge(table, actions, commit)

        return waiting
