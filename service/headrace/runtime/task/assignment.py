"""What belongs to one assignment of partitions to a task: lanes, chunks that are not durable, offsets to commit.

A rebalance makes a new ``Assignment`` and drops this one with all that it has, so that a late result (a batch that was
being written, a commit on its way) reaches an object that nobody listens to.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from headrace.core.batch.batch import Unwritten, Watermarks
from headrace.core.batch.event_pairs import resumable
from headrace.core.batch.held_halves import Progress
from headrace.core.batch.offsets import ChunkSequence, OffsetTracker
from headrace.core.batch.table_queue import Backlog
from headrace.core.decode.records import Errant
from headrace.core.model.errors import Stage
from headrace.core.model.events import Content
from headrace.ports import Chunk, Messages, OffsetNote, TopicPartition
from headrace.runtime.task.arrived_records import Arrived
from headrace.runtime.task.committed_offsets import CommittedOffsets
from headrace.runtime.task.errant_reporter import UncommittedRecords
from headrace.runtime.task.flow_control import WriteGate
from headrace.runtime.task.table_lane import (
    BatchDurable,
    Fail,
    LaneContext,
    LaneEvent,
    Message,
    Signal,
    TableFailed,
    TableLane,
    TaskFailed,
)
from headrace.runtime.task.task_parts import SinkTaskParts
from headrace.runtime.task.write_checks import WrittenTables
from headrace.runtime.threads import run_in


class Addressed(NamedTuple):
    """Content for a table, and the topic that is paused while the table cannot accept more."""

    table: str
    topic: str
    content: Content


class Assignment:
    """All methods run on the worker's event loop. ``commit_turn`` orders the commits of all assignments of a task."""

    def __init__(
        self,
        epoch: int,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, OffsetNote],
        task: SinkTaskParts,
        commit_turn: asyncio.Lock,
        on_failure: Callable[[BaseException], None],
        decode: Callable[[Sequence[Arrived], Assignment], Awaitable[None]],
        *,
        paused: bool = False,
    ) -> None:
        options = task.options
        self.epoch = epoch
        self.partitions = Counter(partition.topic for partition in partitions)
        """How many partitions of each topic; a task has all of a topic's."""
        self.lanes: dict[str, TableLane] = {}
        self.is_over = False
        self.gate = WriteGate(held=paused)
        in_thread = partial(run_in, task.resources.threads.decoding)
        self.offsets = CommittedOffsets(
            *(options.connector, task.feed, task.reselect.cache.mark_durable, task.observer, in_thread, commit_turn)
        )
        self._task, self._on_failure = task, on_failure
        self._sequence, self._chunks = ChunkSequence(), OffsetTracker()
        self._records = UncommittedRecords(options.dead_letters_unresolved)
        self._backlog = Backlog(self._progress)
        self._context = LaneContext(
            task,
            self.gate,
            self._backlog,
            self.offsets,
            WrittenTables(options.connector, options.group, committed, recreate=options.tables.recreate),
            Watermarks(partition.topic for partition in committed),
            # A lane that is stopped must not release the decoders while a thread uses them.
            lambda arrived: asyncio.shield(decode(arrived, self)),
        )
        self._only_lanes: dict[str, TableLane | None] = {}  # by topic; None for one that may have several tables
        self._holders: dict[TopicPartition, TableLane] = {}  # the lane that may have undecoded records of a partition
        self._late: dict[TopicPartition, float] = {}  # partitions whose records are decoded now, since when they came
        self._crowded: set[str] = set()
        self._is_flushing = False
        self._idle = asyncio.Event()

    async def revoke(self) -> None:
        """Finish and commit the writes in progress. Their new owner reads the rest again."""
        self.close()
        await self.gate.quiet()
        await self.commit()
        await self.end()

    def close(self) -> None:
        self.gate.close()
        self._wake_flush()

    def drop(self) -> None:
        """Ignore what comes of the writes in progress: a rebalance did not wait for them."""
        self.is_over = True
        self.gate.drop()
        self._wake_flush()

    async def end(self) -> None:
        """Discard everything when the writes in progress have ended. Idempotent."""
        self.close()
        await self.gate.quiet()
        await self.offsets.quiet()  # a commit that is cancelled on its way may arrive behind the last one
        self.is_over = True
        lanes, self.lanes = self.lanes, {}
        for lane in lanes.values():
            self._task.resources.memory.hold(lane, 0)
        await asyncio.gather(*(lane.stop() for lane in lanes.values()))

    # -- chunks --------------------------------------------------------------------------------------------------------

    def admit(self, chunk: Chunk) -> bool:
        """Return whether the chunk belongs to this assignment. Raises Fatal if one is missing before it."""
        if self.is_over or chunk.epoch != self.epoch:
            return False
        self._sequence.admit(chunk.sequence, chunk.partition, chunk.begin, chunk.end)
        return True

    def arrive(self, chunk: Chunk) -> list[Arrived]:
        """Return what is to be decoded now: an admitted chunk, behind the records of its partition that wait undecoded.

        Nothing if it waits as well. To decode one record takes nearly as long as to decode twelve, so the few records
        of a table that has changes for its next batch already are decoded when that batch is closed.
        """
        partition, since = chunk.partition, min(time.monotonic(), chunk.since)
        lane, holder = self._only_lanes.get(partition.topic), self._holders.pop(partition, None)
        before = None if holder is None else holder.undecoded.pop(partition, None)
        if before is not None and not chunk.gone:
            now = [before.with_later(chunk)]
        else:
            arrived = Arrived.of(chunk, self._chunks.begin(partition, chunk.end, since, chunk.behind))
            now = [arrived] if before is None else [before, arrived]  # lost records belong between them
        if lane is not None and lane.has_changes and len(now) == 1 and now[0].is_small:
            lane.undecoded[partition] = replace(now[0], waited=True)
            self._holders[partition] = lane
            if not lane.is_full:
                self._backlog.read(partition, chunk.behind, time.monotonic())
                self._throttle_after(lane)
                return []
            now = lane.take_undecoded()  # the batch need not wait for its linger, which only the queue knows
        self._late |= {each.chunk.partition: each.origin.since for each in now}
        return now

    async def put(self, arrived: Arrived, contents: Sequence[Addressed]) -> None:
        """Send the contents of a chunk to the lanes of their tables."""
        chunk, origin, now = arrived.chunk, arrived.origin, time.monotonic()
        self._records.keep(chunk)
        if arrived.waited:  # proven: waits-from-decoding
            origin.since = now  # the half of a key change waits for the other one from now on
        origin.end = resumable(chunk.end, [content for _, _, content in contents], chunk.behind)
        lanes = [lane for table, topic, _ in contents if (lane := await self._lane(table, topic)) is not None]
        if self.is_over:  # while an agent started; what a stopped lane is sent would count in the memory budget
            return
        is_crowded, memory = False, self._task.resources.memory
        for lane, (_, topic, content) in zip(lanes, contents, strict=True):
            # The half of a key change must not wait with records of another table. A topic with the name of its table,
            # as Debezium chooses it, has no other table.
            only = (
                lane if topic.rpartition(".")[2] == content.table.table and not self._task.options.transforms else None
            )
            if self._only_lanes.setdefault(topic, only) is not only:
                self._only_lanes[topic] = None
            lane.put(content, origin)
            memory.hold(lane, lane.memory)
            is_crowded |= lane.is_full
        self._backlog.read(chunk.partition, chunk.behind, now)
        self._late.pop(chunk.partition, None)
        origin.missing -= 1  # its distribution to tables
        # Other lanes have not changed, and with 200 of them the question takes longer than the chunk.
        is_paused = chunk.partition.topic in self._task.tables.paused_topics  # perhaps since this chunk
        if is_crowded or memory.is_scarce or is_paused:
            self.throttle()

    async def fail_topic(self, topic: str, tables: Collection[str], error: Exception) -> None:
        for name in tables:
            if (lane := await self._lane(name, topic)) is not None:
                lane.send(Fail(error))

    async def _lane(self, name: str, topic: str) -> TableLane | None:
        """Return the lane of a table; its first changes start it. Return None if the assignment has ended."""
        if self.is_over:
            return None
        table = self._task.tables.open(name, topic)
        if name not in self.lanes:
            lane = self.lanes[name] = TableLane(table, self._context)
            agent_name = f"{self._task.options.connector} {name}"
            try:
                await lane.start(self._task.resources.open_agent(agent_name, partial(self._follow, lane)))
            except BaseException:  # also a cancelled chunk, which is read again: the next one must not find this lane
                self.lanes.pop(name, None)
                raise
        return self.lanes.get(name)

    def throttle(self) -> None:
        """Pause the topics of tables that have failed, are paused, have a full batch, or exceed their share of memory.

        A table above its share writes at once, because its batch does not fill any further.
        """
        memory, crowded = self._task.resources.memory, set()
        for lane in self.lanes.values():
            memory.hold(lane, lane.memory)
        for name, lane in self.lanes.items():
            is_above_share = memory.is_exceeded_by(lane)
            if is_above_share or self._is_flushing:
                lane.flush(drain=self._is_flushing)
            if is_above_share or lane.is_full:
                crowded.add(name)
        self._crowded = crowded
        tables = self._task.tables
        self._task.feed.throttle(tables.topics_of(crowded) | tables.failed_topics | tables.paused_topics)

    def _throttle_after(self, lane: TableLane) -> None:
        """Throttle after a change of one lane. With hundreds of them, asking all takes longer than a batch."""
        memory = self._task.resources.memory
        memory.hold(lane, lane.memory)
        if memory.is_scarce or self._is_flushing or lane.is_full != (lane.table.name in self._crowded):
            self.throttle()

    def _progress(self) -> Progress:
        """Return how far the partitions are read: the feed counts records that are not decoded yet as read."""
        caught_up = dict(self._task.feed.last_caught_up())
        for partition, since in self._late.items():  # proven: decoded-later
            caught_up[partition] = min(caught_up.get(partition, since), since)
        stopped = self._task.tables.failed_topics | self._task.tables.paused_topics
        return Progress(caught_up, {partition for partition in caught_up if partition.topic in stopped})

    # -- what the lanes return -----------------------------------------------------------------------------------------

    async def _follow(self, lane: TableLane, messages: Messages[Message]) -> None:
        """Run a lane: the body of a table's agent. Raises nothing, because Faust would start it again."""
        task = self._task
        try:
            async with aclosing(lane.run(messages)) as results:
                async for result in results:
                    # proven: late-results
                    if self.is_over:  # the next assignment has lanes of its own for these tables, or another task
                        continue
                    match result:
                        case LaneEvent.BATCH_CLOSED:
                            self._throttle_after(lane)
                        case BatchDurable(batch, omitted):
                            task.tables.on_batch_durable(lane.table)
                            self._throttle_after(lane)
                            # Omitted changes are bad records, which are reported before their offsets are committed.
                            for change in omitted:
                                partition = TopicPartition(change.version.topic, change.version.partition)
                                record = self._records.record(partition, change.version.offset)
                                await task.errants.report([record], [Errant(0, Stage.TASK_PUT, change.error)])
                                task.reselect.cache.lose(*partition, change.version.offset)
                            for origin in batch.origins:
                                origin.missing -= 1
                            await self.commit()
                            await task.upkeep.run(batch, lane.table)
                        case TableFailed(error):
                            self.throttle()
                            if task.tables.failed_topics >= self.partitions.keys():
                                self._on_failure(error)
                        case TaskFailed(error):
                            self._on_failure(error)
                        case LaneEvent.WAITING:
                            # proven: crowded-topics
                            if lane.table.name in self._crowded and not lane.is_full:  # halves are held instead
                                self.throttle()
                            self._wake_flush()
        except Exception as error:
            self._on_failure(error)

    async def commit(self) -> None:
        """Commit the offsets over what is durable in every table."""
        offsets = self._chunks.durable()
        self.offsets.on_durable(offsets)
        self._records.discard(offsets)
        await self.offsets.commit()

    # -- pause and resume ----------------------------------------------------------------------------------------------

    async def pause(self) -> None:
        """Write what has arrived without a linger, and commit it; begin no other write. Reading is paused already."""
        self._is_flushing = True
        try:
            while not self._is_idle:
                self._idle.clear()
                self.throttle()
                await self._idle.wait()
        finally:
            self._is_flushing = False
        self.gate.hold()
        await self.gate.quiet()
        await self.commit()

    @property
    def _is_idle(self) -> bool:  # nothing can be written while the gate is closed
        return not self.gate.is_open or all(lane.is_idle for lane in self.lanes.values())

    def _wake_flush(self) -> None:
        if self._is_flushing and self._is_idle:
            self._idle.set()

    def resume(self) -> None:
        self.gate.release()
        for lane in self.lanes.values():
            lane.send(Signal.RESUME)

    def resume_tables(self, names: Collection[str]) -> None:
        """Write these tables again, and read the topics of tables that are not paused."""
        for name in names & self.lanes.keys():
            self.lanes[name].send(Signal.RESUME)
        self.throttle()

    # -- what a status shows -------------------------------------------------------------------------------------------

    def unwritten(self) -> Mapping[str, Unwritten]:
        """Return the oldest events that are not durable, by table."""
        oldest = {name: lane.unwritten for name, lane in self.lanes.items()}
        return {name: unwritten for name, unwritten in oldest.items() if unwritten is not None}
