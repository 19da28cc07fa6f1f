"""Feeds without Kafka: topics, groups and rebalances in memory, for tests of the code behind a feed.

One ``MemoryBroker`` represents the cluster. Its feeds implement ``headrace.ports.Feed``: chunks are numbered per
assignment, a topic belongs to one member, a rebalance waits for the batch in flight, and uncommitted records are read
again.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeVar

from headrace.config.framework import TopicSettings
from headrace.config.kafka import KafkaSettings
from headrace.core.batch.offsets import LogPosition, ReadLogs, with_log_position
from headrace.core.connect.work import assign_topics
from headrace.core.decode.json_converter import Document, document_bytes
from headrace.core.model.errors import ConfigError, Fatal, Fenced
from headrace.ports import (
    Chunk,
    DeadLetterQueue,
    Divide,
    FeedListener,
    Messages,
    OffsetNote,
    QueuedRecords,
    Record,
    TopicPartition,
)
from headrace.runtime.task.asyncio_agent import AsyncioAgent
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue

CHUNK_RECORDS = 1_000
_Message = TypeVar("_Message")


@dataclass(slots=True)
class MemoryRecord:
    """A record of a ``MemoryBroker``. It is mutable only because the ``Record`` protocol declares plain attributes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class _Group:
    """The members of a group by name, and its committed offsets."""

    members: dict[str, MemoryFeed] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    notes: dict[TopicPartition, OffsetNote] = field(default_factory=dict)

    def noted(self, partition: TopicPartition) -> OffsetNote:
        """Return the committed offsets; an offset that was set by other means has no note."""
        offset, noted = self.committed.get(partition, 0), self.notes.get(partition, OffsetNote(0, ""))
        return noted if noted.offset == offset else OffsetNote(offset, "")


class MemoryBroker:
    """The topics and groups. Everything runs on one event loop.

    ``commit_arrives`` is awaited before a commit of offsets takes effect: a test may delay commits, or let one overtake
    another.
    """

    def __init__(self) -> None:
        self.commit_arrives: Callable[[Mapping[TopicPartition, int]], Awaitable[None]] = _at_once
        self._logs: dict[TopicPartition, list[Record]] = {}
        self._removed: defaultdict[TopicPartition, int] = defaultdict(int)
        self._groups: defaultdict[str, _Group] = defaultdict(_Group)
        self._rebalancing = asyncio.Lock()
        self._created = 0
        self.topic_ids: dict[str, str] = {}

    async def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and rebalance the groups whose pattern matches it."""
        self._logs.update({TopicPartition(topic, number): [] for number in range(partitions)})
        self._created += 1
        self.topic_ids[topic] = f"id-{self._created}"
        for group in self._groups.values():
            await self.rebalance(group)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records and the offsets of groups, and rebalance."""
        del self.topic_ids[topic]
        for partition in [each for each in self._logs if each.topic == topic]:
            del self._logs[partition]
            self._removed.pop(partition, None)
            for group in self._groups.values():
                group.committed.pop(partition, None)
        for group in self._groups.values():
            await self.rebalance(group)

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Sequence[tuple[str, bytes]] = (),
        timestamp: int = 0,
    ) -> int:
        """Write a record and return its offset."""
        log = self._logs[TopicPartition(topic, partition)]
        log.append(MemoryRecord(topic, partition, len(log), timestamp, key, value, headers))
        for group in self._groups.values():
            for member in group.members.values():
                member.wake()
        return len(log) - 1

    def remove(self, partition: TopicPartition, before: int) -> None:
        """Remove the records before an offset, as a topic's retention does."""
        self._removed[partition] = before

    def cut(self, partition: TopicPartition, end: int) -> None:
        """Lose the records from an offset on, as a broker may that had not flushed them."""
        del self._logs[partition][end:]

    def position(self, partition: TopicPartition, offset: int) -> LogPosition | None:
        """Return the position of a record, None if there is none at the offset."""
        log = self._logs.get(partition, [])
        if not self._removed[partition] <= offset < len(log):
            return None
        record = log[offset]
        checksum = zlib.crc32(document_bytes(record.value) or b"", zlib.crc32(record.key or b""))
        return LogPosition(offset, record.timestamp, checksum, topic_id=self.topic_ids[partition.topic])

    def read(self, partition: TopicPartition, start: int, most: int) -> Sequence[Record]:
        """Return at most ``most`` records from offset ``start``, or from the first that still exists."""
        start = max(start, self._removed[partition])
        return self._logs.get(partition, [])[start : start + most]

    def topics(self) -> set[str]:
        """Return the topics that exist."""
        return {each.topic for each in self._logs}

    def end(self, partition: TopicPartition) -> int:
        """Return the offset behind the last record; 0 for a deleted partition."""
        return len(self._logs.get(partition, []))

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the group's offsets."""
        return dict(self._groups[group].committed)

    def group(self, name: str) -> _Group:
        """Return the group called ``name``."""
        return self._groups[name]

    async def rebalance(self, group: _Group) -> None:
        """Revoke all partitions from all members, then assign them again."""
        async with self._rebalancing:
            members = dict(group.members)
            held = {name: {each.topic for each in member.positions} for name, member in members.items()}
            for member in members.values():
                await member.revoke()
            topics = self.topics()
            wanted = {name: set(filter(member.pattern.fullmatch, topics)) for name, member in members.items()}
            for name, mine in assign_topics(wanted, held).items():
                partitions = sorted(each for each in self._logs if each.topic in mine)
                await members[name].assign({each: group.committed.get(each, 0) for each in partitions})

    async def rewind(self, group: _Group, member: MemoryFeed) -> None:
        """Revoke a member's partitions, and assign them to it again."""
        async with self._rebalancing:
            partitions = list(member.positions)
            await member.revoke()
            if partitions:
                await member.assign({each: group.committed.get(each, 0) for each in partitions})


class MemoryFeed:
    """A ``headrace.ports.Feed`` over a ``MemoryBroker``."""

    def __init__(
        self,
        broker: MemoryBroker,
        group: str,
        name: str,
        topics: TopicSettings,
        divide: Divide | None = None,
    ) -> None:
        self.pattern = re.compile(topics.pattern or "|".join(map(re.escape, topics.names)))
        self._topics = topics
        self._divide = divide
        self.positions: dict[TopicPartition, int] = {}
        self._broker = broker
        self._group = broker.group(group)
        self._name = name
        self._begun: Mapping[TopicPartition, OffsetNote] = {}
        self._logs = ReadLogs()
        self._topic_ids: Mapping[str, str] = {}
        self._failed_topics: set[str] = set()
        self._notes: dict[TopicPartition, str] = {}
        self._epoch = 0
        self._sequence = 0
        self._paused = False
        self._failed = False
        self._throttled: frozenset[str] = frozenset()
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()
        self._putting: set[TopicPartition] = set()
        self._run: asyncio.Task[None] | None = None
        self._rewinding: asyncio.Task[None] | None = None

    async def start(self, listener: FeedListener) -> None:
        """Join the group and begin to fetch."""
        self._listener = listener
        self._group.members[self._name] = self
        await self._broker.rebalance(self._group)
        self._run = asyncio.create_task(self._fetch())

    async def stop(self) -> None:
        """Leave the group. Idempotent; no chunk is put afterwards."""
        run, self._run = self._run, None
        if run is not None:
            run.cancel()
            await asyncio.wait({run})
        self.positions = {}
        if self._group.members.get(self._name) is self:
            del self._group.members[self._name]
            await self._broker.rebalance(self._group)

    def pause(self) -> None:
        """Stop fetching but stay in the group."""
        self._paused = True

    def resume(self) -> None:
        """Resume fetching."""
        self._paused = False
        self.wake()

    def rewind(self) -> None:
        """Begin the assignment again at the group's offsets."""
        self._rewinding = asyncio.create_task(self._broker.rewind(self._group, self))

    def throttle(self, topics: Collection[str]) -> None:
        """Do not fetch from these topics until the next call without them."""
        self._throttled = frozenset(topics)
        self.wake()

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets. Raises Fenced if a partition is not assigned to this feed."""
        await self._broker.commit_arrives(offsets)
        foreign = offsets.keys() - self.positions.keys()
        if foreign:
            raise Fenced(f"partitions of another member: {sorted(foreign)}")
        self._group.committed.update(offsets)
        for partition, offset in offsets.items():
            note = with_log_position(self._notes[partition], self._logs.before(partition, offset), offset)
            self._group.notes[partition] = OffsetNote(offset, note)

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """Return the offsets that the group had committed when the assignment began."""
        return self._begun

    def topic_ids(self) -> Mapping[str, str]:
        """Return the ids that the topics had when the assignment began."""
        return self._topic_ids

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        """Set the note for commits of these partitions' offsets."""
        self._notes |= notes

    def last_caught_up(self) -> Mapping[TopicPartition, float]:
        """Return the present time for each partition all of whose records were put."""
        ends = {each: self._broker.end(each) for each in self.positions}
        return {
            each: time.monotonic() if at >= ends[each] and each not in self._putting else -inf
            for each, at in self.positions.items()
        }

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return the number of records between the group's offset and the end."""
        committed = self._group.committed
        return {each: max(0, self._broker.end(each) - committed.get(each, 0)) for each in self.positions}

    def absent(self) -> Sequence[str] | None:
        """Return the topics that do not exist."""
        return self._topics.absent(list(filter(self.pattern.fullmatch, self._broker.topics()))) if self._epoch else None

    def wake(self) -> None:
        """Wake the feed: there may be records to fetch."""
        self._wake.set()

    async def revoke(self) -> None:
        """Revoke all partitions."""
        async with self._turn:
            if self.positions and not self._failed:
                await self._listener.on_partitions_revoked(list(self.positions))
            self.positions = {}

    async def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Assign partitions, each with the offset to begin at."""
        async with self._turn:
            self._epoch, self._sequence = self._epoch + 1, 0
            self._begun = {each: self._group.noted(each) for each in positions}
            self._notes = {each: committed.note for each, committed in self._begun.items()}
            self._logs = ReadLogs(self._begun.items())
            self._topic_ids = {each.topic: self._broker.topic_ids[each.topic] for each in positions}
            self._failed_topics.clear()
            await self._listener.on_partitions_assigned(self._epoch, list(positions))
            for partition in positions:
                await self._check_log(partition)
            self.positions = dict(positions)
            self.wake()

    async def _check_log(self, partition: TopicPartition) -> bool:
        """Report the topic if its log does not contain the last record that was read. Return whether it does."""
        topic, last = partition.topic, self._logs.last(partition)
        if topic in self._failed_topics:
            return False
        if last is None:
            return True
        found = self._broker.position(partition, last.offset)
        if found is None and self._broker.end(partition) > last.offset:
            return True  # retention has removed it
        if found is not None and found == last:
            return True
        self._failed_topics.add(topic)
        error = Fatal(f"{topic}-{partition.partition}: the log does not contain what was read at offset {last.offset}")
        await self._listener.on_topic_failure(topic, error)
        return False

    async def _fetch(self) -> None:
        while not self._failed:
            self._wake.clear()
            async with self._turn:
                await self._poll()
            if not self._wake.is_set():
                await self._wake.wait()

    async def _poll(self) -> None:
        """Put the next chunk of each partition."""
        polled = [each for each in sorted(self.positions) if not self._paused and each.topic not in self._throttled]
        for partition in polled:  # before the first chunk: none of a topic follows its failure
            await self._check_log(partition)
        readable = [each for each in polled if each.topic not in self._failed_topics]
        chunks = [chunk for each in readable if (chunk := self._next_chunk(each)) is not None]
        if not chunks:
            return
        self.wake()
        self._putting = {chunk.partition for chunk in chunks}
        try:
            await self._listener.put(chunks)
        except Exception as error:
            self._failed = True
            self._listener.on_failure(error)
        self._putting = set()

    def _next_chunk(self, partition: TopicPartition) -> Chunk | None:
        begin = self.positions[partition]
        records = self._broker.read(partition, begin, CHUNK_RECORDS)
        if not records:
            return None
        last = self._broker.position(partition, records[-1].offset)
        if last is not None:
            self._logs.read(partition, last, records[-1].offset + 1)
        if self._divide is not None:
            records = [_divided(record, self._divide) for record in records]
        end = self.positions[partition] = records[-1].offset + 1
        behind = self._broker.end(partition) - end
        gone = records[0].offset > begin
        chunk = Chunk(self._epoch, self._sequence, partition, records, begin, end, behind, gone)
        self._sequence += 1
        return chunk


async def _at_once(offsets: Mapping[TopicPartition, int]) -> None:
    pass


def _divided(record: Record, divide: Divide) -> Record:
    return MemoryRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        divide(document_bytes(record.value)),
        record.headers,
    )


class MemoryFeeds:
    """The feeds that a worker opens at a ``MemoryBroker``."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.queues: dict[str, MemoryDeadLetterQueue] = {}

    async def start(self, worker: str = "") -> None:
        """Do nothing."""

    def beat(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` at once."""
        callback()

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Raise ConfigError if the configuration contains no topic."""
        self.open(connector, 0, settings)

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> MemoryFeed:
        """Open the feed of one task; ``divide`` makes the values."""
        if not settings.topics.names and not settings.topics.regex:
            raise ConfigError("exactly one of topics and topics.regex must be set", "topics")
        group = settings.consumer.get("group.id", f"connect-{connector}")
        return MemoryFeed(self._broker, group, f"{connector}-{task}", settings.topics, divide)

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> AsyncioAgent[_Message]:
        """Open the agent of a table."""
        return AsyncioAgent(name, body)

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> Callable[[str], bool]:
        """Return that no topic is compacted."""
        return lambda topic: False

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        """Return the queue of that topic, which outlives its tasks; None if none is configured."""
        topic = settings.dead_letters.topic
        queue = MemoryDeadLetterQueue(connector, task, with_context=settings.dead_letters.context_headers)
        return self.queues.setdefault(topic, queue) if topic else None

    async def dead_letters(
        self, connector: str, settings: KafkaSettings, newest: int | None = None
    ) -> AsyncGenerator[QueuedRecords, None]:
        """Read the connector's dead letter queue up to its current end."""
        topic = settings.dead_letters.topic
        letters = self.queues[topic].letters if topic in self.queues else []
        skipped = 0 if newest is None else max(0, len(letters) - newest)
        records = [
            MemoryRecord(topic, 0, number, each.timestamp, each.key, each.value, each.headers)  # type: ignore[arg-type]
            for number, each in enumerate(letters)
        ]
        yield QueuedRecords(records[skipped:], skipped)

    async def close(self) -> None:
        """Do nothing."""
