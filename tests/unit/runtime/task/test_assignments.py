"""What remains of an assignment that a rebalance has dropped: nothing that the next one could meet."""

from __future__ import annotations

import asyncio
from threading import Event
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, TOPIC, Harness

from headrace.core.model.errors import Fatal
from headrace.ports import Chunk, Commit, TableOptions
from headrace.runtime.threads import WorkerThreads, run_in
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker, MemoryRecord

pytestmark = pytest.mark.anyio


class SlowMerge:
    """Merges of a table that wait until the test lets them end; ``most`` is how many ran at the same time.

    The first one raises ``error`` at its end, if there is one.
    """

    def __init__(self, table: Any, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.began, self.go = Event(), Event()
        self.most = self.count = 0
        merge, running = table.merge, [0]

        def wait(table: Any, actions: Any, commit: Commit) -> Any:
            running[0] += 1
            self.count += 1
            self.most = max(self.most, running[0])
            self.began.set()
            assert self.go.wait(10)
            running[0] -= 1
            if error is not None and self.count == 1:
                raise error
            return merge(table, actions, commit)

        monkeypatch.setattr(table, "merge", wait)


def chunk(epoch: int, offset: int) -> Chunk:
    """Return the first chunk of an assignment, with an insert."""
    row = {"id": offset, "name": "new"}
    record = MemoryRecord(TOPIC, 0, offset, 0, key({"id": offset}), change("c", row, 10 + offset))
    return Chunk(epoch, 0, FIRST, [record], offset, offset + 1)


async def test_a_write_that_a_rebalance_did_not_wait_for(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rebalance drops a write after its timeout, while Spark still works on it.

    The next assignment writes the table after that one has ended, and its late result moves no offset.
    """
    merge = SlowMerge(type(harness.lakehouse.table("lake", "x", TableOptions())), monkeypatch)
    task = harness.task()
    await task.start()
    try:
        harness.insert(1, 10)
        await eventually(merge.began.is_set)
        revoking = asyncio.create_task(task.on_partitions_revoked([FIRST]))
        await asyncio.sleep(0)
        revoking.cancel()
        await asyncio.gather(revoking, return_exceptions=True)
        await task.on_partitions_assigned(task.epoch + 1, [FIRST])
        commits: list[Any] = []
        harness.broker.commit_arrives = lambda offsets: _append(commits, dict(offsets))
        await task.put([chunk(task.epoch, 7)])
        for _ in range(50):  # more steps than a lane takes on these threads before a merge
            await run_in(harness.threads.writing, lambda: None)
        assert merge.count == 1, "the table is still written"
        merge.go.set()
        await eventually(lambda: {FIRST: 8} in commits)
    finally:
        merge.go.set()
        await task.stop()
    assert merge.most == 1
    assert {FIRST: 1} not in commits, "the late result of the first assignment"
    assert not harness.failures


@pytest.mark.parametrize("isolated", [False, True])
async def test_an_error_of_a_write_that_a_rebalance_did_not_wait_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    """It fails neither the table nor the task: the next assignment writes the table again, and finds out for itself."""
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    merge = SlowMerge(table, monkeypatch, Fatal("the type changed"))
    task = harness.task(isolated=isolated)
    await task.start()
    try:
        harness.insert(1, 10)
        await eventually(merge.began.is_set)
        await task.on_partitions_assigned(task.epoch + 1, [FIRST])
        merge.go.set()
        await task.put([chunk(task.epoch, 7)])
        await eventually(lambda: bool(harness.failures or task.tables()) or harness.offset() == 8)
    finally:
        merge.go.set()
        await task.stop()
    assert harness.offset() == 8
    assert not harness.failures
    assert merge.count == 2


async def test_a_batch_contains_what_arrives_until_a_thread_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table waits for the only writing thread, which writes another table. Its batch has what arrived meanwhile.

    So the other half of a key change is in the queue when a batch is closed, and no half is written alone.
    """
    broker = MemoryBroker()
    await broker.create_topic(TOPIC)
    await broker.create_topic("shop.public.orders")
    with WorkerThreads.start(1) as threads:
        harness = Harness(broker, MemoryLakehouse(), threads)
        merge = SlowMerge(type(harness.lakehouse.table("lake", "x", TableOptions())), monkeypatch)
        task = harness.task()
        await task.start()
        try:
            row = {"id": 1, "name": "first"}
            broker.append("shop.public.orders", change("c", row, 1, table="orders"), key({"id": 1}))
            await eventually(merge.began.is_set)
            harness.insert(1, 10)
            await eventually(lambda: task.waiting("shop_public_items") == 1)
            harness.insert(2, 20)
            await eventually(lambda: task.waiting("shop_public_items") == 2)
            merge.go.set()
            await eventually(lambda: harness.offset() == 2)
        finally:
            merge.go.set()
            await task.stop()
        (items,) = [report for report in task.reports() if report.table == "shop_public_items"]
    assert items.last_batch is not None
    assert items.last_batch.events == 2


async def _append(commits: list[Any], offsets: Any) -> None:
    commits.append(offsets)
