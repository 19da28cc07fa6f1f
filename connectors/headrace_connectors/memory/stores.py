"""Memory versions of what a worker stores: for standalone mode and for tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from headrace.core.errors import Fatal, Fenced, Retriable
from headrace.ports import LogRecord, TopicPartition


class MemoryLog:
    """A compacted log that lives as long as the object. Two workers that share one see each other's records."""

    def __init__(self) -> None:
        self._records: dict[str, bytes | None] = {}
        self._listeners: list[Callable[[str, bytes | None], None]] = []
        self.outage: str | None = None
        """Set it to a reason, and appends fail as if the brokers were gone."""

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        """Replay what is there and listen."""
        for key, value in self._records.items():
            applied(key, value)
        self._listeners.append(applied)

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Keep the records, the last of each key at its own place as compaction does, and tell all listeners."""
        if self.outage is not None:
            raise Retriable(self.outage)
        for key, value in records:
            self._records.pop(key, None)
            self._records[key] = value
            for applied in self._listeners:
                applied(key, value)

    async def close(self) -> None:
        """Stop telling; the records stay, for a worker that starts again on the same object."""
        self._listeners.clear()


class MemoryGroupOffsets:
    """Committed offsets of groups, as a test set them or a request altered them."""

    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        self.offsets = {group: dict(partitions) for group, partitions in (offsets or {}).items()}
        self.outage: str | None = None
        self.active: set[str] = set()
        """Groups with members: their offsets cannot be changed."""
        self.partitions: Mapping[str, int] = {}
        """How many partitions the topics have."""

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """What is set for the group."""
        if self.outage is not None:
            raise Retriable(self.outage)
        return dict(self.offsets.get(group, {}))

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set and remove."""
        self._may_change(group)
        kept = self.offsets.setdefault(group, {})
        for place, offset in offsets.items():
            if not 0 <= place.partition < self.partitions.get(place.topic, 0):
                raise Fatal(f"there is no partition {place.topic}-{place.partition}")
            if offset is None:
                kept.pop(place, None)
            else:
                kept[place] = offset

    async def reset(self, group: str) -> None:
        """Forget the group."""
        self._may_change(group)
        self.offsets.pop(group, None)

    def _may_change(self, group: str) -> None:
        if self.outage is not None:
            raise Retriable(self.outage)
        if group in self.active:
            raise Fenced(f"group {group} has members")


class MemoryTopicOffsets:
    """Ends of topics as a test set them."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}

    async def ends(self, pattern: str) -> Mapping[TopicPartition, int]:
        """What is set for the topics that match."""
        return {place: end for place, end in self.offsets.items() if re.fullmatch(pattern, place.topic)}


class MemoryStores:
    """All stores of a worker in memory. They outlive ``close``, as Kafka's topics would."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.configs = MemoryLog()
        self.statuses = MemoryLog()
        self.group_offsets = MemoryGroupOffsets()
        self.topic_offsets = MemoryTopicOffsets()

    async def start(self) -> None:
        """Nothing to connect to."""

    async def cluster_id(self) -> str | None:
        """There is no cluster."""
        return None

    async def close(self) -> None:
        """Nothing to let go of."""
