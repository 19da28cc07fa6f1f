"""One consumer group member on the consumer thread: polls, numbers chunks, follows rebalances, commits.

The rules come from ``kafka-client.md`` sections 2.3 to 2.7 and 2.10 and were measured on a real broker:

- Records, their epoch and the fetch position after them are read in one step of the event loop. ``getmany`` is never
  wrapped in a task or a timeout, because a cancelled call has already moved the position.
- aiokafka stops returning records in the step in which it calls ``on_partitions_revoked``, so an epoch begins there:
  all later records belong to the next assignment, even before ``on_partitions_assigned`` is called.
- Polling continues during a pause: a poll of a partition that is never assigned returns nothing, but raises the errors
  of the coordinator.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil, inf
from typing import Protocol

import aiokafka
from aiokafka.errors import KafkaError, OffsetMetadataTooLargeError
from mode import Service

from headrace.core.batch.offsets import with_log_position
from headrace.core.model.errors import Fatal, Retriable
from headrace.ports import Chunk, OffsetNote, TopicPartition
from headrace_connectors.kafka.aiokafka_patches import (
    check_alive,
    committed_offsets,
    pace_requests,
    raise_group_errors,
    refresh_all_topics,
    separate_fetches,
    stop_client,
)
from headrace_connectors.kafka.assignor import topic_assignor
from headrace_connectors.kafka.errors import FENCED, headrace_error
from headrace_connectors.kafka.held_records import TICK_SECONDS, Fetched, HeldRecords
from headrace_connectors.kafka.lag import GroupLag
from headrace_connectors.kafka.log_truncation import LogTruncation
from headrace_connectors.kafka.predecessors import WorkerProcess, remove_predecessors
from headrace_connectors.kafka.records import ChunkNumbering, PollSize, use_fetched_records
from headrace_connectors.kafka.settings import ConsumerSettings

log = logging.getLogger(__name__)

POLL_MS = 500
GATE_SECONDS = 1.0
WATCH_SECONDS = 2.0
STALL_SECONDS = 180.0
REBALANCE_REQUESTS = 3
"""The time limit of a rebalance, in request timeouts: a lost request, then the next, which waits for all members."""
COMMIT_SLICE_SECONDS = 5.0
COMMIT_SECONDS = 60.0
_NOT_THE_LOG = (
    "{log}: the log is not the one that group {group} has read: {problem}; nothing more of the topic is read, because "
    "records behind the last one that was read may be missing. Stop the connector, set the topic's offsets (PATCH "
    "/connectors/NAME/offsets) to 0 to read it from its beginning, or to their current values to continue, and resume; "
    "headrace verify --repair then adds what is missing. See docs/guarantees.md, 'A log that was cut'"
)
_CREATED_AGAIN = (
    "{topic}: the topic was deleted and created again since group {group} has read it; nothing more of it is read, "
    "because its snapshot reads would count as older than the rows of the former topic. Stop the connector, drop the "
    "table, remove the topic's offsets (DELETE /connectors/NAME/offsets), and resume. See docs/guarantees.md, 'A log "
    "that was cut'"
)
_NO_NOTES = (
    "Offsets are committed without metadata, because the brokers' limit is too low: a missing table, or one behind the "
    "group, will not be detected after a restart; raise offset.metadata.max.bytes on the brokers"
)
NOWHERE = aiokafka.TopicPartition("__headrace_nowhere", 0)
"""A partition that is never assigned."""


class MemberListener(Protocol):
    """The listener of a member. It is called on the consumer thread, one call at a time, and must not raise."""

    async def deliver(self, chunks: Sequence[Chunk]) -> None:
        """Accept the chunks of a poll. The member does not poll until this returns."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish requests in flight, within a time limit."""

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Receive an assignment, whose chunks have this ``epoch``."""

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        """Receive the failure of a topic. No chunk of the topic follows in this assignment."""

    def on_failure(self, error: BaseException) -> None:
        """The member has stopped polling."""


class GroupMember(Service):
    """Owns one AIOKafkaConsumer. All methods are called on the consumer thread. Any thread may read public values."""

    def __init__(
        self,
        settings: ConsumerSettings,
        listener: MemberListener,
        process: WorkerProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._lag = GroupLag()
        self.committed: Mapping[TopicPartition, OffsetNote] = {}
        self.absent: Sequence[str] | None = None
        """The topics that do not exist (``ports.Feed.absent``)."""
        self.caught_up: dict[TopicPartition, float] = {}
        """When (monotonic) each assigned partition was last at its end, with all of its records delivered."""
        self._delivering: set[TopicPartition] = set()
        self._notes: dict[TopicPartition, str] = {}
        self._may_note = True
        self._settings = settings
        self._listener = listener
        self._process = process
        self._clock = clock
        self._numbering = ChunkNumbering()
        self._size = PollSize(settings.arguments["max_poll_records"])
        self._held = HeldRecords(settings.arguments["fetch_max_wait_ms"] / 1000, clock)
        self._assigned = asyncio.Event()
        self._gate_moved = asyncio.Event()
        self._paused = False
        self._throttled: frozenset[str] = frozenset()
        self._failed_topics: set[str] = set()
        self._failing: dict[str, str] = {}  # topics that the next poll reports as failed, with the reason
        self._idle = True
        self._rewinds = False
        self._rebalancing = asyncio.Lock()
        self._last_fetch = (0, 0.0)
        self._rebalance_seconds = REBALANCE_REQUESTS * settings.arguments["request_timeout_ms"] / 1000
        self._unassigned_since = clock()

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """The records that are not committed, by partition, as last measured."""
        return self._lag.now()

    @property
    def topic_ids(self) -> Mapping[str, str]:
        return self._logs.topic_ids

    async def on_start(self) -> None:
        """Connect and join the group, without waiting for the assignment. Raises aiokafka's errors."""
        use_fetched_records()
        self._consumer = aiokafka.AIOKafkaConsumer(
            **self._settings.arguments, partition_assignment_strategy=(topic_assignor(self._process),)
        )
        refresh_all_topics(self._consumer)
        separate_fetches(self._consumer)
        pace_requests(self._consumer)
        self._logs = LogTruncation(self._consumer._client)
        try:
            await self._consumer.start()
            raise_group_errors(self._consumer._coordinator)
            await remove_predecessors(self._consumer, self._process.is_predecessor)
            self._consumer.subscribe(pattern=self._settings.pattern, listener=_Rebalances(self))
        except BaseException:
            await stop_client(self._consumer)
            raise
        self._work = [
            self.add_future(self._repeat(self._poll, self._deliver)),
            self.add_future(self._repeat(self._watch)),
        ]

    async def on_stop(self) -> None:
        """Stop polling and leave the group, within a time limit if brokers are down."""
        for task in getattr(self, "_work", ()):
            task.cancel()
        if hasattr(self, "_consumer"):
            await stop_client(self._consumer)

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._gate_moved.set()

    def rewind(self) -> None:
        """Begin the assignment again at the committed offsets before the next poll."""
        self._rewinds = True
        self._gate_moved.set()

    def throttle(self, topics: frozenset[str]) -> None:
        self._throttled = topics
        self._gate_moved.set()

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        self._notes |= {partition: note for partition, note in notes.items() if partition in self._notes}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets, with their notes. A deleted topic is omitted: aiokafka would retry it forever."""
        wanted = {aiokafka.TopicPartition(*partition): offset for partition, offset in offsets.items()}
        deadline = self._clock() + COMMIT_SECONDS
        while wanted:
            try:
                async with asyncio.timeout(COMMIT_SLICE_SECONDS):
                    await self._commit_now(wanted)
                self._lag.on_commit(offsets)
                return
            except TimeoutError:
                if self._clock() > deadline:
                    raise Retriable(f"Kafka did not confirm offsets within {COMMIT_SECONDS:g} s") from None
            with suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(COMMIT_SLICE_SECONDS):
                    topics = await self._consumer.topics()
                deleted = sorted({partition.topic for partition in wanted} - topics)
                if deleted:
                    log.warning("Offsets of deleted topics are not committed: %s", deleted)
                wanted = {partition: offset for partition, offset in wanted.items() if partition.topic in topics}

    async def _commit_now(self, wanted: Mapping[aiokafka.TopicPartition, int]) -> None:
        noted = {}
        for client_partition, offset in wanted.items():
            partition, note = TopicPartition(*client_partition), ""
            if self._may_note:
                position = self._logs.before(partition, offset)
                note = with_log_position(self._notes.get(partition, ""), position, offset)
            noted[client_partition] = offset, note
        try:
            await self._consumer.commit(noted)
        except OffsetMetadataTooLargeError:
            log.warning(_NO_NOTES)
            self._may_note = False
            await self._commit_now(wanted)
        except KafkaError as error:
            raise headrace_error(error, "committing offsets") from error

    async def _repeat(self, *steps: Callable[[], Awaitable[None]]) -> None:
        try:
            while not self.should_stop:
                for step in steps:
                    await step()
        except Exception as error:
            self._fail(error, "fetching")

    def _fail(self, error: BaseException, doing: str) -> None:
        failure = headrace_error(error, doing)
        failure.__cause__ = error
        self._listener.on_failure(failure)

    async def _poll(self) -> None:
        if self._rewinds:
            await self._restart_assignment()
        while self._failing and self._assigned.is_set():  # ``_watch`` may add topics while the listener is called
            topic, reason = self._failing.popitem()
            self._failed_topics.add(topic)
            await self._listener.on_topic_failure(topic, Fatal(reason))

        partitions = self._fetchable()
        if partitions == (NOWHERE,):
            self._gate_moved.clear()
            await self._consumer.getmany(NOWHERE, timeout_ms=0)
            with suppress(TimeoutError):
                async with asyncio.timeout(GATE_SECONDS):
                    await self._gate_moved.wait()
            return

        epoch = self._numbering.epoch
        wait = min(POLL_MS, 1000 * max(0.0, self._held.seconds_left(self._size.records)))
        polled = await self._consumer.getmany(*partitions, timeout_ms=ceil(wait), max_records=self._size.records)
        if epoch != self._numbering.epoch:  # of an assignment whose first positions are not decided yet
            for client_partition in polled.keys() & self._consumer.assignment():
                self._consumer.seek(client_partition, polled[client_partition][0].offset)
            return

        # No step between the poll and its positions: both are valid, so ``position`` returns without waiting.
        fetched = []
        for client_partition, records in polled.items():
            partition, end = TopicPartition(*client_partition), await self._consumer.position(client_partition)
            # The highwater is that of the newest fetch; offsets of transaction markers before it have no records.
            behind = max(0, (self._consumer.highwater(client_partition) or 0) - end)
            at = self._fetched_at(client_partition)
            fetched.append(Fetched(partition, records, end, behind, self._clock(), at))
        self._idle = not fetched

        for of_partition in fetched:
            self._size.observe(of_partition.records)
            self._lag.read(of_partition.partition, of_partition.records[0].offset, of_partition.end)
            self._held.hold(of_partition)

    async def _deliver(self) -> None:
        """Deliver the records that are due, as a chunk of each partition. If others are not, wait a moment for more."""
        while not self._paused and (left := self._held.seconds_left(self._size.records)) < inf:
            if left > 0:
                await asyncio.sleep(min(left, TICK_SECONDS))  # a poll returns with the first record
                return
            epoch, fetched = self._numbering.epoch, self._held.take(self._size.records)
            self._delivering = {of_partition.partition for of_partition in fetched}
            chunks, caught_up = [], {}
            for of_partition in fetched:
                topic = of_partition.partition.topic
                if topic in self._failed_topics or topic in self._failing:
                    continue
                chunk = await self._next_chunk(of_partition)
                if epoch != self._numbering.epoch:
                    break
                if chunk is not None:
                    chunks.append(chunk)
                if not of_partition.behind:
                    caught_up[of_partition.partition] = of_partition.at
            if chunks and epoch == self._numbering.epoch:
                await self._listener.deliver(chunks)
            if epoch == self._numbering.epoch:
                self.caught_up |= caught_up
            self._delivering = set()

    async def _next_chunk(self, fetched: Fetched) -> Chunk | None:
        """Return a chunk of fetched records that belong to the log that was read before, or None without any.

        If the log is another one, the next poll reports the topic as failed.
        """
        epoch, partition, end = self._numbering.epoch, fetched.partition, fetched.end
        records, problem = await self._logs.check(partition, fetched.records)
        if epoch != self._numbering.epoch:
            return None
        if problem is not None:
            await self._find_topics_created_again([partition.topic])  # whose log is another one as well
            if epoch != self._numbering.epoch:
                return None
            log_name = f"{partition.topic}-{partition.partition}"
            reason = _NOT_THE_LOG.format(log=log_name, problem=problem, group=self._settings.group)
            self._failing.setdefault(partition.topic, reason)
        if not records:
            return None
        chunk = self._numbering.chunk(partition, records, end, fetched.behind, fetched.since)
        self._logs.read(partition, records[-1], end)
        if chunk.records[0].offset > chunk.begin:
            # The client skips lost records without an error, like transaction markers. The log must report them: they
            # count as lost if Kafka does not answer.
            first = await self._first_offsets([partition])
            _log_gone({partition: chunk.begin}, first)
            chunk = replace(chunk, gone=chunk.begin < first.get(partition, chunk.begin + 1))
        return chunk

    def _fetchable(self) -> tuple[aiokafka.TopicPartition, ...]:
        """Return the partitions to poll: NOWHERE for none, an empty tuple for all assigned, or those not excluded.

        Before the positions of an assignment are decided, a poll would move them.
        """
        if self._paused or not self._assigned.is_set():
            return (NOWHERE,)
        excluded = self._throttled | self._failed_topics
        if not excluded:
            return ()
        assigned = self._consumer.assignment()
        return tuple(partition for partition in assigned if partition.topic not in excluded) or (NOWHERE,)

    def _fetched_at(self, partition: aiokafka.TopicPartition) -> float:
        """Return when (monotonic) the newest fetch of a partition was answered; aiokafka has the time of day."""
        return self._clock() - max(0.0, time.time() - (self._consumer.last_poll_timestamp(partition) or 0) / 1000)

    async def _restart_assignment(self) -> None:
        """End the assignment and begin it once more. A rebalance that is under way does the same."""
        self._rewinds = False
        async with self._rebalancing:
            if not self._assigned.is_set():
                return
            partitions = [TopicPartition(*partition) for partition in self._consumer.assignment()]
            await self._end_assignment(partitions)
            try:
                await self._begin_assignment(partitions, rewinds=True)
            except FENCED as error:  # the group moves: its next assignment begins at the committed offsets as well
                log.info("The assignment is not begun again, because the group rebalances: %s", error)

    async def _end_assignment(self, partitions: Collection[TopicPartition]) -> None:
        self._numbering.next_epoch()  # before the first await, as the module's docstring explains
        self._held.clear()
        self._assigned.clear()
        self._unassigned_since = self._clock()
        self._lag.end()
        if partitions:
            await self._listener.on_partitions_revoked(partitions)

    async def _begin_assignment(self, partitions: Collection[TopicPartition], *, rewinds: bool = False) -> None:
        stored = await committed_offsets(self._consumer, map(_aiokafka, partitions))
        committed = {TopicPartition(*key): OffsetNote(offset, note or "") for key, (offset, note) in stored.items()}
        if self._settings.reset == "latest":
            # Without a commit, ``latest`` would skip the records until the first commit at the next start.
            without_offset = [_aiokafka(partition) for partition in partitions if partition not in committed]
            new = {partition: await self._consumer.position(partition) for partition in without_offset}
            if new:
                await self._consumer.commit(new)
        offsets = {partition: offset for partition, (offset, _) in committed.items()}
        self._logs.begin(committed)
        self._failing.clear()
        await self._find_topics_created_again({partition.topic for partition in partitions})
        first = await self._first_offsets(offsets)
        _log_gone(offsets, first)
        again = self._logs.begins_at(first)
        begin = {**offsets, **again}
        for partition in partitions if rewinds else again:
            if partition in begin:
                self._consumer.seek(_aiokafka(partition), begin[partition])
            else:  # where its first assignment began
                await self._consumer.seek_to_beginning(_aiokafka(partition))
        self._lag.begin(offsets)
        self.committed = {partition: committed.get(partition, OffsetNote(0, "")) for partition in partitions}
        self._notes = {partition: note for partition, (_, note) in self.committed.items()}
        self.caught_up = dict.fromkeys(partitions, -inf)
        self._failed_topics.clear()
        await self._listener.on_partitions_assigned(self._numbering.epoch, partitions)
        self._last_fetch = (0, self._clock())
        self._assigned.set()
        self._gate_moved.set()

    async def _first_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the offsets of the first records that Kafka keeps, none if it does not answer."""
        try:
            async with asyncio.timeout(COMMIT_SLICE_SECONDS):
                client_partitions = [_aiokafka(partition) for partition in partitions]
                first = await self._consumer.beginning_offsets(client_partitions) if client_partitions else {}
        except (KafkaError, TimeoutError):
            return {}
        return {TopicPartition(*partition): offset for partition, offset in first.items()}

    async def _find_topics_created_again(self, topics: Collection[str]) -> None:
        """Compare the ids of topics. If Kafka does not answer, the next call compares them."""
        epoch = self._numbering.epoch
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(COMMIT_SLICE_SECONDS):
                created_again = await self._logs.created_again(topics)
            if epoch == self._numbering.epoch:
                for topic in created_again:
                    if topic not in self._failed_topics:
                        self._failing[topic] = _CREATED_AGAIN.format(topic=topic, group=self._settings.group)

    async def _watch(self) -> None:
        """Refresh the lag; fail if the client has stopped fetching, or the group does not stabilize."""
        await asyncio.sleep(WATCH_SECONDS if self.lag else WATCH_SECONDS / 8)
        check_alive(self._consumer)
        if self._assigned.is_set():
            self.absent = self._settings.topics.absent(self._consumer.subscription())
            await self._observe_ends(self._consumer.assignment())
            await self._refresh_lag(self._consumer.assignment())
            topics = {partition.topic for partition in self._consumer.assignment()}
            await self._find_topics_created_again(topics)
            assigned = self._consumer.assignment()
            polled = max((self._consumer.last_poll_timestamp(partition) or 0 for partition in assigned), default=0)
            latest, since = self._last_fetch
            # A task that is busy or paused does not fetch.
            if polled != latest or not assigned or not self._idle or self._fetchable() == (NOWHERE,):
                self._last_fetch = (polled, self._clock())
            elif self._clock() - since > STALL_SECONDS:
                raise Retriable(f"no fetch was answered for {STALL_SECONDS:g} s; check the brokers")
        elif self._clock() - self._unassigned_since > self._rebalance_seconds:
            raise Retriable(f"the group has assigned nothing for {self._rebalance_seconds:g} s; check the brokers")

    async def _observe_ends(self, assigned: Collection[aiokafka.TopicPartition]) -> None:
        """Note when each partition was last at its end.

        A partition at its end is fetched all the time, and each answer contains the highwater. A partition without
        leader is not fetched, so that its last time remains.
        """
        epoch = self._numbering.epoch
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                for client_partition in assigned:
                    if (highwater := self._consumer.highwater(client_partition)) is None:
                        continue
                    end = await self._consumer.position(client_partition)  # waits only while an offset is out of range
                    if epoch != self._numbering.epoch:
                        return
                    partition = TopicPartition(*client_partition)
                    is_delivered = partition not in self._held.partitions and partition not in self._delivering
                    if end >= highwater and is_delivered:
                        self.caught_up[partition] = self._fetched_at(client_partition)

    async def _refresh_lag(self, assigned: Collection[aiokafka.TopicPartition]) -> None:
        epoch = self._numbering.epoch
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                ends = await self._consumer.end_offsets(assigned) if assigned else {}
                positions = {TopicPartition(*partition): await self._consumer.position(partition) for partition in ends}
            if epoch == self._numbering.epoch:
                self._lag.set_ends({TopicPartition(*partition): end for partition, end in ends.items()}, positions)


class _Rebalances(aiokafka.ConsumerRebalanceListener):
    """aiokafka's listener. The coordinator awaits its methods."""

    def __init__(self, member: GroupMember) -> None:
        self._member = member

    async def on_partitions_revoked(self, revoked: Collection[aiokafka.TopicPartition]) -> None:
        async with self._member._rebalancing:
            await self._member._end_assignment([TopicPartition(*partition) for partition in revoked])

    async def on_partitions_assigned(self, assigned: Collection[aiokafka.TopicPartition]) -> None:
        """Handle an assignment. aiokafka only logs the errors of its listener, and callers would wait forever."""
        try:
            async with self._member._rebalancing:
                await self._member._begin_assignment([TopicPartition(*partition) for partition in assigned])
        except FENCED:
            raise  # the group moves again
        except Exception as error:
            self._member._fail(error, "taking an assignment")


def _log_gone(offsets: Mapping[TopicPartition, int], first: Mapping[TopicPartition, int]) -> None:
    for partition, offset in offsets.items():
        if offset < first.get(partition, offset):
            log.warning("%s-%d: records %d to %d are gone from the topic", *partition, offset, first[partition] - 1)


def _aiokafka(partition: TopicPartition) -> aiokafka.TopicPartition:
    return aiokafka.TopicPartition(*partition)
