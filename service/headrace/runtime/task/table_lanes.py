"""The lanes of one task: open them, pause the topics of tables that cannot accept more, and handle failures."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from headrace.core.batch.batch import Batch, BatchPolicy, Content, Unwritten
from headrace.core.batch.held_halves import Progress
from headrace.core.batch.offsets import Origin
from headrace.core.batch.table_queue import Backlog, TableQueue
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.table_status import TableReport, TableStatus, report_of
from headrace.core.model.errors import remedy
from headrace.core.reselect.unresolved import OmittedChange
from headrace.core.tables.table_topics import TableTopics
from headrace.ports import Feed
from headrace.runtime.observation import Observer
from headrace.runtime.task.batch_writer import BatchWriter
from headrace.runtime.task.resources import TaskResources
from headrace.runtime.task.table_lane import LaneParts, TableLane
from headrace.runtime.task.write_gate import WriteGate


class LaneOwner(Protocol):
    """The task of the lanes."""

    async def written(self, batch: Batch, origins: Sequence[Origin], omitted: Sequence[OmittedChange]) -> None:
        """Handle a durable batch of the current assignment; ``origins`` are the chunks of its parts."""

    async def maintain(self, batch: Batch) -> None:
        """Maintain the table of a batch that is durable and complete. Raises nothing."""

    def failed(self, error: BaseException) -> None:
        """Handle an error after which the task cannot continue."""


class Addressed(NamedTuple):
    """Content for a table, and the topic that is paused while the table cannot accept more."""

    table: str
    topic: str
    content: Content


class TableLanes:
    """The lanes of one task (``table_lane.LaneListener``). All methods run on the worker's event loop.

    With ``isolation`` a table that fails stops alone, until no topic of the task is left to read. ``holds_halves`` is
    False where both halves of a key change need not be in one batch.

    ``blocked`` are the tables that did not run in an earlier run of the task. What they lack is read and written again,
    and nobody knows yet whether that succeeds. So they are shown as RETRYING, with the cause of that run, until they
    have a durable batch, fail again, or nothing of their topics is left to read.
    """

    def __init__(
        self,
        connector: str,
        policy: BatchPolicy,
        owner: LaneOwner,
        feed: Feed,
        writer: BatchWriter,
        gate: WriteGate,
        resources: TaskResources,
        observer: Observer,
        *,
        isolation: bool,
        holds_halves: bool,
        blocked: Sequence[TableStatus] = (),
    ) -> None:
        self._policy = policy
        self._owner = owner
        self._feed = feed
        self._budget = resources.memory
        self._observer = observer
        self._isolation = isolation
        self._holds_halves = holds_halves
        self._parts = LaneParts(connector, isolation, writer, gate, resources.slots, resources.open_agent, self)
        self._slots = resources.slots
        self._connector = connector
        self._lanes: dict[str, TableLane] = {}
        self._topics = TableTopics()
        self._assigned: Collection[str] = ()
        self._backlog = Backlog(self._progress)
        self._paused = self._flushing = False
        self._to_restart: set[str] = set()
        self._recovering = {each.table: _recovering(each) for each in blocked}
        self._idle = asyncio.Event()
        self._started = self._stopped = False

    def start(self) -> None:
        """Register with the worker's write slots and memory budget."""
        self._started = True
        self._slots.join(self._connector)
        self._budget.subscribe(self.throttle)
        self._observer.unwritten(self.unwritten)
        self.moved()

    async def stop(self) -> None:
        """Stop all lanes. No write is in progress. A chunk that arrives later is discarded, and read again."""
        self._stopped = True
        oldest = self.unwritten()  # shown until the next run of the task has an assignment
        self._observer.unwritten(lambda: oldest)
        self._budget.unsubscribe(self.throttle)
        self.clear()
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.stop() for lane in lanes.values()))
        if self._started:
            self._started = False
            self._slots.leave(self._connector)

    async def assigned(self, topics: Collection[str]) -> None:
        """Begin an assignment with empty queues. Stop the lanes of tables whose topics another task has."""
        self.clear()
        self._assigned = topics
        restarted, self._to_restart = self._to_restart, set()
        for table in restarted & self._lanes.keys():
            if (status := self._lanes[table].status) is not None:
                self._recovering[table] = _recovering(self._with_topics(status))
            self._lanes[table].restart()
            if self._paused:
                self._lanes[table].pause()
        left = self._topics.keep(topics)
        self._recovering = {
            table: each for table, each in self._recovering.items() if not set(topics).isdisjoint(each.topics)
        }
        self._observer.left(left)
        await asyncio.gather(*(self._lanes.pop(table).stop() for table in left if table in self._lanes))
        self.moved()
        self.throttle()

    def clear(self) -> None:
        """Discard the queues of all lanes. Failed tables stay failed."""
        for lane in self._lanes.values():
            lane.clear()
            self._budget.hold(lane, 0)
        self._backlog.clear()
        self.throttle()
        self.idle()

    # -- what the task reads -------------------------------------------------------------------------------------------

    async def put(self, contents: Sequence[Addressed], origin: Origin) -> None:
        """Put the contents of a chunk into the queues of their tables."""
        self._backlog.read(origin.partition, origin.behind, origin.since)
        crowded = False
        for table, topic, content in contents:
            lane = await self._lane(table, topic)
            if lane is None:
                return
            lane.put(content, origin)
            self._budget.hold(lane, lane.queue.memory)
            crowded |= lane.queue.is_full
        # Other lanes have not changed, and with 200 of them the question takes longer than the chunk.
        if crowded or self._budget.is_scarce:
            self.throttle()

    async def _lane(self, table: str, topic: str) -> TableLane | None:
        """Return the lane of a table; the first changes of a table open it. Return None if the lanes have stopped.

        The task stops its lanes before its feed, so a chunk may arrive between the two: nothing would stop a lane that
        it opened.
        """
        if self._stopped:
            return None
        self._topics.add(table, topic)
        if table not in self._lanes:
            queue = TableQueue(table, self._policy, self._backlog, holds_halves=self._holds_halves)
            lane = self._lanes[table] = TableLane(table, queue, self._parts)
            if self._paused:
                lane.pause()
            lane.hurry(self._flushing)
            try:
                await lane.start()
            except BaseException:  # also a cancelled chunk, which is read again: the next one must not find this lane
                self._lanes.pop(table, None)
                raise
        return self._lanes.get(table)

    def throttle(self) -> None:
        """Pause the topics of tables that have failed, have a full batch in the queue, or exceed their share of memory.

        A table above its share writes at once, because its batch does not fill any further.
        """
        crowded = set()
        for lane in self._lanes.values():
            self._budget.hold(lane, lane.queue.memory)
        for name, lane in self._lanes.items():
            over = self._budget.is_exceeded_by(lane)
            lane.hurry(over or self._flushing)
            if over or lane.queue.is_full:
                crowded.add(name)
        self._feed.throttle(self._topics.of(crowded) | self.failed_topics)

    @property
    def failed_topics(self) -> set[str]:
        """The topics of failed tables. Their records cannot be written."""
        return self._topics.of(name for name, lane in self._lanes.items() if lane.state is TableState.FAILED)

    def _progress(self) -> Progress:
        """How far the assigned partitions were read."""
        caught_up, failed = self._feed.last_caught_up(), self.failed_topics
        return Progress(caught_up, {each for each in caught_up if each.topic in failed})

    # -- pause and resume ----------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write the queues without a linger, and return when they are empty. Reading is paused."""
        self._flushing = True
        try:
            while not self._is_idle:
                self.throttle()
                self._idle.clear()
                await self._idle.wait()
        finally:
            self._flushing = False
            self.throttle()

    def pause(self) -> None:
        """Set the state PAUSED."""
        self._paused = True
        for lane in self._lanes.values():
            lane.pause()

    def resume(self) -> None:
        """End the state PAUSED, and continue with the queues."""
        self._paused = False
        for lane in self._lanes.values():
            lane.resume()

    @property
    def _is_idle(self) -> bool:
        """Whether nothing waits that could be written; nothing can while the gate is closed."""
        return not self._parts.gate.is_open or all(lane.is_idle for lane in self._lanes.values())

    # -- what a table's status says ------------------------------------------------------------------------------------

    def statuses(self) -> Sequence[TableStatus]:
        """The tables that are retried or have failed."""
        found = dict(self._recovering)
        for name, lane in self._lanes.items():
            if lane.status is not None:
                found[name] = self._with_topics(lane.status)
        return list(found.values())

    def reports(self) -> Sequence[TableReport]:
        """Return a report on each table, by name."""
        found = {name: report_of(each) for name, each in self._recovering.items()}
        for name, lane in self._lanes.items():
            report = lane.report(sorted(self._topics.of([name])))
            if (earlier := self._recovering.get(name)) is not None and lane.state is TableState.RUNNING:
                report = replace(report, state=earlier.state, last_error=earlier)
            found[name] = report
        return [report for _, report in sorted(found.items())]

    def _with_topics(self, status: TableStatus) -> TableStatus:
        return replace(status, topics=tuple(sorted(self._topics.of([status.table]))))

    def unwritten(self) -> Mapping[str, Unwritten]:
        """Return the oldest events that are not durable, by table."""
        oldest = {name: lane.queue.unwritten for name, lane in self._lanes.items()}
        return {name: each for name, each in oldest.items() if each is not None}

    def restart(self, table: str) -> bool:
        """Restart a table when the next assignment begins. Return False for a table without a lane.

        Not at once: records that are read now must not be written before the earlier ones are read again.
        """
        if table in self._lanes:
            self._to_restart.add(table)
        return table in self._lanes or table in self._recovering

    def caught_up(self, topics: Collection[str]) -> None:
        """Show tables as RUNNING that had failed before, if all of their ``topics`` are read and committed to the end.

        The task that had failed may have ended after the commit of the table and before it wrote its status, or the
        broker has removed the records that the table lacks.
        """
        for name, status in list(self._recovering.items()):
            assigned = set(status.topics) & set(self._assigned)  # none before the first assignment
            if assigned and assigned <= set(topics):
                del self._recovering[name]
                self.moved()

    def waiting(self, table: str) -> int:
        """Return the number of events in a table's queue."""
        return self._lanes[table].queue.records if table in self._lanes else 0

    def moved(self) -> None:
        """Report the states of the lanes (``LaneListener``)."""
        for name, lane in self._lanes.items():
            if lane.status is not None:  # its own attempt has failed
                self._recovering.pop(name, None)
        self._observer.tables(self.statuses())

    # -- failures ------------------------------------------------------------------------------------------------------

    async def fail_topic(self, topic: str, table: str, error: Exception) -> None:
        """Fail the tables of a topic whose records cannot be used; ``table`` if it has contained no change yet."""
        earlier = [name for name, each in self._recovering.items() if topic in each.topics]
        for name in self._topics.tables(topic) or earlier or [table]:
            if (lane := await self._lane(name, topic)) is not None:
                self.failed(lane, error)

    def failed(self, lane: TableLane, error: Exception) -> None:
        """Fail a table; also the task if no topic is left to read, or with ``errors.isolation=task``."""
        if not self._isolation or remedy(error).retry:
            self._owner.failed(error)
            return
        lane.fail(error)
        self.throttle()
        self.idle()
        if self.failed_topics >= set(self._assigned):
            self._owner.failed(error)

    # -- what a lane reports -------------------------------------------------------------------------------------------

    def closed(self, lane: TableLane) -> None:
        """Read the topics again for which a closed batch has made room (``LaneListener``)."""
        self.throttle()

    async def written(self, lane: TableLane, batch: Batch, omitted: Sequence[OmittedChange]) -> None:
        """Complete a durable batch (``LaneListener``). An error fails the task."""
        try:
            if self._recovering.pop(lane.table, None) is not None:
                self.moved()
            origins = lane.queue.complete(batch)
            self.throttle()
            await self._owner.written(batch, origins, omitted)
        except Exception as error:
            self._owner.failed(error)
            return
        await self._owner.maintain(batch)

    def idle(self) -> None:
        """Wake a flush if all lanes are idle (``LaneListener``)."""
        if self._is_idle:
            self._idle.set()


def _recovering(status: TableStatus) -> TableStatus:
    return replace(status, state=TableState.RETRYING, next_attempt=None)
