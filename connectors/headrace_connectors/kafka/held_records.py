"""Records that wait a moment in a member, so that a chunk of each of many partitions has more than one record.

To decode a chunk and to send it to its table costs one to two milliseconds, however few records it has. With 400
changes a second in 50 tables that is more than half of all CPU time. So the records of several polls become one chunk.
Those of a single partition do not wait. The time is a part of ``batch.linger.ms``, which begins when the first record
is polled. ``fetch.max.wait.ms`` limits it.

Tests: ``tests/unit/kafka/test_held_records.py``, ``tests/contracts/test_kafka_feed.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf

from headrace.ports import TopicPartition
from headrace_connectors.kafka.records import FetchedRecord

SECONDS_A_PARTITION = 0.01
"""How long records wait for each other partition that has some: a hundred chunks a second take up to 0.2 cores."""

TICK_SECONDS = 0.1
"""How far apart deliveries are: each costs about as much as a chunk. The records of different partitions are due at
different times, so that their tables are not all written at once."""

_RECENT_SECONDS = 1.0  # a partition has records if it has had some lately

_LARGE_CHUNK = 32
"""Records with which a chunk costs no more than its records."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Consecutive records of one partition; ``end`` is the fetch position after them.

    ``behind`` is how many offsets follow in Kafka. ``since`` is when the first of them were polled, and ``at`` when the
    last ones were fetched (monotonic seconds).
    """

    partition: TopicPartition
    records: Sequence[FetchedRecord]
    end: int
    behind: int
    since: float
    at: float


class HeldRecords:
    """The records of one assignment that were polled and are not delivered, for ``most_seconds`` at most.

    ``clock`` returns monotonic seconds.
    """

    def __init__(self, most_seconds: float, clock: Callable[[], float]) -> None:
        self._most_seconds = most_seconds
        self._clock = clock
        self._recent: dict[TopicPartition, float] = {}  # when records of a partition came, the earliest first
        self.clear()

    def clear(self) -> None:
        """Discard the records, which will be read again."""
        self._held: dict[TopicPartition, list[Fetched]] = {}  # several if there is a gap, which no chunk contains
        self._due: dict[TopicPartition, float] = {}
        self._records = 0

    def hold(self, fetched: Fetched) -> None:
        """Hold records behind those of their partition."""
        partition, now = fetched.partition, self._clock()
        self._recent.pop(partition, None)
        self._recent[partition] = now
        while next(iter(self._recent.values())) < now - _RECENT_SECONDS:
            del self._recent[next(iter(self._recent))]
        held = self._held.setdefault(partition, [])
        if not held:
            self._due[partition] = now + min(self._most_seconds, SECONDS_A_PARTITION * (len(self._recent) - 1))
        if held and held[-1].end == fetched.records[0].offset:
            before = held.pop()
            fetched = replace(fetched, records=[*before.records, *fetched.records], since=before.since)
            self._records -= len(before.records)
        held.append(fetched)
        if len(held) > 1 or len(held[0].records) >= _LARGE_CHUNK:
            self._due[partition] = now
        self._records += len(fetched.records)

    def seconds_left(self, most_records: int) -> float:
        """Return when the first records are due: in 0 seconds or less if now, infinity if there are none.

        They are also due with ``most_records`` of all partitions.
        """
        if not self._held:
            return inf
        return min(self._due.values()) - self._clock() if self._records < most_records else 0.0

    def take(self, most_records: int) -> Sequence[Fetched]:
        """Return the records that are due now or soon. Those behind a gap are due when those before it are taken."""
        until = self._clock() + TICK_SECONDS / 2 if self._records < most_records else inf
        taken = [held.pop(0) for partition, held in self._held.items() if self._due[partition] <= until]
        for fetched in taken:
            self._records -= len(fetched.records)
            if not self._held[fetched.partition]:
                del self._held[fetched.partition], self._due[fetched.partition]
        return taken

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions with records that are held."""
        return self._held.keys()
