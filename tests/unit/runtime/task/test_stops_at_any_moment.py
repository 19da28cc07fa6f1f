"""A task that is deleted at any moment of its work or of its failure leaves nothing behind.

Executors call their functions at once, so that a number of turns of the event loop is a moment that each run repeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import key
from support.task.sink_task_harness import GROUP, TOPIC, Harness

from headrace.core.connect.lifecycle import Event, State
from headrace.ports import ErrantRecord, TopicPartition
from headrace.runtime.task.flow_control import MemoryBudget
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.worker.worker_task import Supervision, WorkerTask
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryBroker

pytestmark = pytest.mark.anyio
_MOMENTS = range(60)
"""Turns of the event loop after a record; a task has written it, or failed and stopped, in fewer."""


class InlineExecutor(Executor):
    """Calls functions at once, on the event loop."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of a call that has ended."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
async def harness() -> Harness:
    """A harness with one topic, without threads."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC)
    inline = InlineExecutor()
    return Harness(broker, MemoryLakehouse(), WorkerThreads(inline, inline, inline, 4))


async def _running_task(harness: Harness) -> WorkerTask:
    async def create(connector: str, number: int, config: Any, fail: Callable[[BaseException], None]) -> SinkTask:
        return harness.task(on_failure=fail)

    async def typed() -> Any:
        return object()

    task = WorkerTask("items", 0, {}, typed, create, Supervision(), lambda number, state, trace: None)
    await task.run()
    await eventually(lambda: task.state is State.RUNNING)
    return task


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("value", ["good", "bad"])
@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_deleted_task_leaves_nothing_behind(harness: Harness, value: str, cancelled: bool) -> None:
    """A task is deleted at each turn after a record that it writes, or at which it fails.

    No asyncio task and no member of the consumer group is left: the member would keep the topics from other workers,
    and an agent of Faust can keep the process alive. With ``cancelled`` the worker stops during the deletion: it
    cancels the first stop, and stops the task a second time.
    """
    for number, turns in enumerate(_MOMENTS):
        before = asyncio.all_tasks()
        task = await _running_task(harness)
        if value == "good":
            harness.insert(number, 10 + number)
        else:
            harness.broker.append(TOPIC, b"{broken", key({"id": number}))
        await _turns(turns)
        deletion = asyncio.create_task(task.stop(Event.DELETE))
        if cancelled:
            await _turns(2)
            deletion.cancel()
            await asyncio.gather(deletion, return_exceptions=True)
            await task.stop(Event.RELEASE)
        await asyncio.gather(deletion, return_exceptions=True)
        assert not harness.broker.group(GROUP).members, f"a member is left after {turns} turns"
        left = {each.get_name() for each in asyncio.all_tasks() - before if not each.cancelling()}
        assert not left, f"asyncio tasks are left after {turns} turns"
        await eventually(lambda before=before: asyncio.all_tasks() <= before)  # type: ignore[misc]
        if value == "bad":
            await harness.broker.delete_topic(TOPIC)
            await harness.broker.create_topic(TOPIC)


class HeldQueue(MemoryDeadLetterQueue):
    """A dead letter queue whose second report waits for an event."""

    def __init__(self) -> None:
        super().__init__("items", 0)
        self.reported, self.released = asyncio.Event(), asyncio.Event()

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Report the records."""
        if self.letters:
            self.reported.set()
            await self.released.wait()
        await super().report(errant)


async def test_a_chunk_that_arrives_while_the_task_stops_opens_no_table(harness: Harness) -> None:
    """A task stops its tables, then commits, then leaves its feed. A chunk that is decoded in between is discarded.

    Nothing would stop the agent of a table that it opened, and the worker's memory budget would count its changes.
    """
    queue = harness.dead_letters = HeldQueue()
    before = asyncio.all_tasks()
    committing, commits = asyncio.Event(), asyncio.Event()

    async def commit(offsets: Mapping[TopicPartition, int]) -> None:
        committing.set()
        await commits.wait()

    harness.broker.commit_arrives = commit
    harness.memory = MemoryBudget(1_000_000)
    task = harness.task(tolerate=True)
    await task.start()
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))  # its offset moves, and waits for a commit
    await eventually(lambda: len(queue.letters) == 1)
    harness.broker.append(TOPIC, b"{broken", key({"id": 2}))
    harness.insert(3, 30)
    await asyncio.wait_for(queue.reported.wait(), 60)
    stopping = asyncio.create_task(task.stop())
    await asyncio.wait_for(committing.wait(), 60)
    queue.released.set()
    await eventually(lambda: len(queue.letters) == 2)
    await _turns(20)
    commits.set()
    await stopping
    await eventually(lambda: asyncio.all_tasks() <= before)
    assert harness.memory.total == 0
    assert harness.offset() == 1, "the second chunk is read again"
