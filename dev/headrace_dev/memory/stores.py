"""The stores of one worker, or of several workers in one process, in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from headrace.config.kafka import KafkaSettings
from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.topics import ClusterState, TopicDescription
from headrace.core.doctor.versions import KAFKA, TESTED
from headrace.core.model.errors import Fatal, Fenced, Retriable
from headrace.ports import LogRecord, TopicPartition
from headrace_dev.memory.group import MemoryGroup, MemoryMember


class _Storage:
    """The state that several logs share: records, their total number, listeners, and the number of the last term."""

    def __init__(self) -> None:
        self.records: dict[str, bytes | None] = {}
        self.appended = 0
        self.listeners: list[Callable[[str, bytes | None], None]] = []
        self.term = 0


class MemoryLog:
    """A compacted log that lives as long as its storage, which it may share with another log."""

    def __init__(self, shared: MemoryLog | None = None) -> None:
        self._storage: _Storage = shared._storage if shared else _Storage()
        self._listeners: list[Callable[[str, bytes | None], None]] = []
        self._term = 0
        self.outage: str | None = None
        """If set to a reason, appends fail as if no broker answered."""

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        """Replay the records and listen."""
        for key, value in self._storage.records.items():
            applied(key, value)
        self._listeners.append(applied)
        self._storage.listeners.append(applied)

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Store the records, the last of each key at its own position as compaction does, and notify all listeners."""
        if self.outage is not None:
            raise Retriable(self.outage)
        if self._term != self._storage.term:
            raise Fenced("another worker leads now")
        for key, value in records:
            self._storage.appended += 1
            self._storage.records.pop(key, None)
            self._storage.records[key] = value
            for applied in self._storage.listeners:
                applied(key, value)

    def position(self) -> int:
        """Return the number of records that were ever appended."""
        return self._storage.appended

    async def lead(self) -> None:
        """Fence the other logs on this storage."""
        self._storage.term += 1
        self._term = self._storage.term

    async def refresh(self) -> None:
        """Do nothing: listeners are called with every record at once."""

    async def close(self) -> None:
        """Stop the notifications; the records stay for a worker that starts again on the same object."""
        for applied in self._listeners:
            self._storage.listeners.remove(applied)
        self._listeners.clear()


class MemoryGroupOffsets:
    """Committed offsets of groups, as set by a test or altered by a request."""

    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        self.offsets = {group: dict(partitions) for group, partitions in (offsets or {}).items()}
        self.outage: str | None = None
        self.active: set[str] = set()
        """Groups with members: their offsets cannot be changed."""
        self.partitions: Mapping[str, int] = {}
        """The number of partitions of the topics."""

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the offsets of the group."""
        if self.outage is not None:
            raise Retriable(self.outage)
        return dict(self.offsets.get(group, {}))

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set and remove offsets."""
        self._may_change(group)
        kept = self.offsets.setdefault(group, {})
        for partition, offset in offsets.items():
            if not 0 <= partition.partition < self.partitions.get(partition.topic, 0):
                raise Fatal(f"the partition {partition.topic}-{partition.partition} does not exist")
            if offset is None:
                kept.pop(partition, None)
            else:
                kept[partition] = offset

    async def reset(self, group: str) -> None:
        """Remove the group."""
        self._may_change(group)
        self.offsets.pop(group, None)

    def _may_change(self, group: str) -> None:
        if self.outage is not None:
            raise Retriable(self.outage)
        if group in self.active:
            raise Fenced(f"group {group} has members")


class MemoryTopicOffsets:
    """Ends of topics, as set by a test. ``outage`` is why the brokers do not answer, None if they do.

    ``release`` is that of the brokers, ``no_clock`` why they report no time, empty if they do.
    """

    def __init__(self) -> None:
        self.release: str | None = TESTED[KAFKA][0]
        self.no_clock = ""
        self.offsets: dict[TopicPartition, int] = {}
        self.outage: str | None = None

    async def ends(self, pattern: str) -> Mapping[TopicPartition, int]:
        """Return the ends of the topics that match. Raises Retriable during an outage."""
        if self.outage is not None:
            raise Retriable(self.outage)
        return {partition: end for partition, end in self.offsets.items() if re.fullmatch(pattern, partition.topic)}

    async def describe(self, pattern: str) -> Sequence[TopicDescription]:
        """Return the topics that match: complete ones of a cluster with one broker."""
        found: dict[str, dict[int, int]] = {}
        for topic, partition in await self.ends(pattern):
            found.setdefault(topic, {})[partition] = 0
        return [TopicDescription(topic, begins, 1, "delete", 1) for topic, begins in sorted(found.items())]

    async def cluster(self, now: Callable[[], float]) -> ClusterState:
        """Return a cluster of a tested release, with the same clock. Raises Retriable during an outage."""
        if self.outage is not None:
            raise Retriable(self.outage)
        clock = None if self.no_clock else ClockReading("Kafka", now(), now(), now())
        return ClusterState(self.release, clock, self.no_clock)


class MemoryStores:
    """All stores of a worker in memory. They outlive ``close``, as Kafka's topics would.

    The stores of several workers of a cluster are created with those of the first one as ``shared``.
    """

    def __init__(self, properties: Mapping[str, str] | None = None, shared: MemoryStores | None = None) -> None:
        self.configs: MemoryLog = MemoryLog(shared.configs if shared else None)
        self.statuses: MemoryLog = MemoryLog(shared.statuses if shared else None)
        self.groups: MemoryGroupOffsets = shared.groups if shared else MemoryGroupOffsets()
        self.topics: MemoryTopicOffsets = shared.topics if shared else MemoryTopicOffsets()
        self.group: MemoryGroup = shared.group if shared else MemoryGroup()

    def member(self, worker: str) -> MemoryMember:
        """Return a membership in the one group of these stores."""
        return MemoryMember(self.group, worker)

    def group_offsets(self, connector: str, settings: KafkaSettings) -> MemoryGroupOffsets:
        """Return the same store for every connector."""
        return self.groups

    def topic_offsets(self, connector: str, settings: KafkaSettings) -> MemoryTopicOffsets:
        """Return the same store for every connector."""
        return self.topics

    async def start(self) -> None:
        """Do nothing."""

    async def cluster_id(self) -> str | None:
        """Return None: there is no cluster."""
        return None

    async def close(self) -> None:
        """Do nothing."""
