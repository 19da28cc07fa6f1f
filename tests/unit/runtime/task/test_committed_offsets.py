"""Tests of offset commits whose steps end in any order, fail or are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.fix_asyncio import eventually
from support.kafka.kafka_settings import settings_of
from support.task.sink_task_harness import FIRST, TOPIC, Harness

from headrace.core.model.errors import Retriable
from headrace.ports import TopicPartition
from headrace.runtime.observation import NO_OBSERVER
from headrace.runtime.task.committed_offsets import CommittedOffsets
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds

PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
GROUP = "connect-orders"


class Steps:
    """Steps that wait until the test lets them end, in an order of its choice."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Begin a step, and wait until the test ends it."""
        step = asyncio.get_running_loop().create_future()
        self.waiting.append(step)
        await step

    def end(self, index: int, error: Exception | None = None) -> None:
        """End a step that waits, or fail it with the error."""
        step = self.waiting.pop(index % len(self.waiting))
        if step.done():  # its caller was cancelled
            return
        step.set_result(None) if error is None else step.set_exception(error)


class NullListener:
    """A listener for a feed that only commits."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        return self._ignore

    async def _ignore(self, *args: Any) -> None:
        pass


class World:
    """The committed offsets of one task over a broker in memory."""

    def __init__(self) -> None:
        self.threads, self.network = Steps(), Steps()
        self._turn = asyncio.Lock()
        self.broker = MemoryBroker()
        self.broker.commit_arrives = self._arrives
        self.seen: list[Mapping[TopicPartition, int]] = []
        self.moved = dict.fromkeys(PARTITIONS, 0)
        self.commits: list[asyncio.Task[None]] = []
        self.settled: list[Mapping[TopicPartition, int]] = []

    async def open(self) -> None:
        await self.broker.create_topic("orders", 2)
        self.feed = MemoryFeeds(self.broker).open("orders", 0, settings_of({"topics": "orders"}))
        await self.feed.start(NullListener())  # type: ignore[arg-type]  # it has every method
        self.assign()

    def assign(self) -> None:
        """Begin an assignment."""
        settled, in_thread = self.settled.append, self._in_thread
        self.offsets = CommittedOffsets("orders", self.feed, settled, NO_OBSERVER, in_thread, self._turn)
        for place in PARTITIONS:
            self.offsets.begins(place, 0)

    def move(self, number: int) -> None:
        self.moved[PARTITIONS[number]] += 1
        self.offsets.on_durable({PARTITIONS[number]: self.moved[PARTITIONS[number]]})

    def begin(self, work: Awaitable[None]) -> None:
        self.commits.append(asyncio.ensure_future(work))

    async def rest(self) -> None:
        """Run the event loop until no step can continue, and record the group's offsets."""
        for _ in range(8):
            await asyncio.sleep(0)
        self.seen.append(self.broker.committed(GROUP))

    async def finish(self) -> None:
        """Commit once more, and end all steps, the last one first."""
        self.begin(self.offsets.commit())
        await self.rest()
        while self.threads.waiting or self.network.waiting:
            (self.network if self.network.waiting else self.threads).end(-1)
            await self.rest()
        await asyncio.gather(*self.commits, return_exceptions=True)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        await self.threads.wait()
        return function(*args)

    async def _arrives(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self.network.wait()


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["move", "move", "commit", "commit", "confirm", "thread", "network", "fail", "cancel"]),
        st.integers(0, 5),
    ),
    min_size=4,
    max_size=30,
)


@settings(max_examples=400)
@given(ACTIONS)
def test_offsets_of_the_group_increase_to_the_durable_ones(actions: list[tuple[str, int]]) -> None:
    """The group's offsets never decrease in any order of steps, and reach all durable offsets at the end."""

    async def run_actions() -> World:
        world = World()
        await world.open()
        for action, number in actions:
            if action == "move":
                world.move(number % 2)
            elif action == "commit":
                world.begin(world.offsets.commit())
            elif action == "confirm":
                world.begin(world.offsets.confirm(dict.fromkeys(PARTITIONS, 0)))
            elif action == "thread" and world.threads.waiting:
                world.threads.end(number)
            elif action in ("network", "fail") and world.network.waiting:
                world.network.end(number, Retriable("the broker is away") if action == "fail" else None)
            elif action == "cancel" and world.commits:
                world.commits[number % len(world.commits)].cancel()
            await world.rest()
        await world.finish()
        return world

    world = asyncio.run(run_actions())
    for place in PARTITIONS:
        offsets = [committed.get(place, 0) for committed in world.seen]
        assert offsets == sorted(offsets), f"the group's offset of {place} went back"
        settled = [each[place] for each in world.settled if place in each]
        assert settled == sorted(settled), f"what is said to be settled of {place} went back"
    assert {place: offset for place, offset in world.moved.items() if offset} == {
        place: offset for place, offset in world.broker.committed(GROUP).items() if offset
    }


@pytest.mark.anyio
async def test_failed_commit_of_an_ended_assignment_is_not_retried() -> None:
    """A task does not retry a commit after its assignment ended: another worker may have committed later offsets."""
    world = World()
    await world.open()
    world.move(0)
    world.begin(world.offsets.commit())
    await world.rest()
    world.threads.end(0)
    await world.rest()
    world.assign()
    world.network.end(0, Retriable("the broker is away"))
    await world.finish()
    assert world.broker.committed(GROUP) == {}


@pytest.mark.anyio
@pytest.mark.parametrize("ends", ["stop", "revoked", "pause"])
async def test_commit_in_flight_is_awaited(harness: Harness, ends: str) -> None:
    """Revocation, stop and pause wait for a commit in flight, so that no commit reaches the broker afterwards."""
    arrives = asyncio.Event()
    commits = Counting(arrives)
    harness.broker.commit_arrives = commits
    task = harness.task()
    await task.start()
    harness.insert(1, 10)
    await eventually(lambda: commits.begun == 1)
    ending = asyncio.ensure_future(task.on_partitions_revoked([FIRST]) if ends == "revoked" else getattr(task, ends)())
    await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done(), "the commit is still on its way"
    arrives.set()
    await asyncio.wait_for(ending, 60)
    assert (commits.begun, commits.done) == (1, 1)
    assert harness.broker.committed("connect-items") == {TopicPartition(TOPIC, 0): 1}
    await task.stop()


@pytest.mark.anyio
async def test_regular_commit_in_flight_is_awaited_by_stop(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not cancel the retry of a failed commit, which could then arrive after the last commit."""
    monkeypatch.setattr("headrace.runtime.task.sink_task.COMMIT_INTERVAL", 0.01)
    arrives = asyncio.Event()
    commits = Counting(arrives, failing=1)
    harness.broker.commit_arrives = commits
    task = harness.task()
    await task.start()
    harness.insert(1, 10)
    await eventually(lambda: commits.begun == 2)
    ending = asyncio.ensure_future(task.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    arrives.set()
    await asyncio.wait_for(ending, 60)
    assert (commits.begun, commits.done) == (2, 1)
    assert harness.broker.committed("connect-items") == {TopicPartition(TOPIC, 0): 1}


class Counting:
    """Commits that wait for an event. The first ``failing`` ones fail at once. Commits of offset 0 are not counted."""

    def __init__(self, arrives: asyncio.Event, failing: int = 0) -> None:
        self._arrives = arrives
        self._failing = failing
        self.begun = self.done = 0

    async def __call__(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not any(offsets.values()):
            return
        self.begun += 1
        if self.begun <= self._failing:
            raise Retriable("the broker is away")
        await self._arrives.wait()
        self.done += 1
