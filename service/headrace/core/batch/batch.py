"""A batch: what a lane writes to its lake table with one commit; and the source time that the table then contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from headrace.core.batch.offsets import Origin
from headrace.core.model.events import Changes, Content, Operation, TopicPartition, Truncate


class Trigger(StrEnum):
    """Why a batch was closed (a metric label)."""

    ROWS = "rows"
    BYTES = "bytes"
    AGE = "age"
    BARRIER = "barrier"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class TableValues:
    """A value for all tables of a connector, except for those in ``tables``."""

    default: float
    tables: Mapping[str, float] = field(default_factory=dict)

    def of(self, table: str) -> float:
        return self.tables.get(table, self.default)


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch closes: at so many events or bytes, or when the scheduler takes it (``commit_scheduler.py``).

    ``linger`` is the shortest time in seconds that its oldest event waits for that. ``freshness`` are the targets in
    seconds, ``commits_per_hour`` the most commits of a table; 0 is no limit.
    """

    max_records: int = 500_000
    max_bytes: int = 64 * 1024 * 1024
    linger: float = 1.0
    freshness: TableValues = TableValues(10.0)
    commits_per_hour: TableValues = TableValues(0)

    def target(self, table: str) -> float:
        """Return the freshness target of a table in seconds: at least twice the linger, which uses a part of it."""
        return max(self.freshness.of(table), 2 * self.linger)

    def interval(self, table: str) -> float:
        """Return the shortest time in seconds between the beginnings of two commits of a table."""
        commits = self.commits_per_hour.of(table)
        return 3600 / commits if commits else 0.0


@dataclass(frozen=True, slots=True)
class Batch:
    """The changes of many chunks as one, or a single truncate or new column.

    ``id`` counts the batches of a table. ``offsets`` are the next offsets by partition that the batch reaches;
    ``origins`` has a chunk once for each of its parts in the batch. ``size`` is in bytes. ``opened_at`` is when its
    oldest part was read (monotonic seconds), ``source_time`` that part's newest commit time at the source.
    """

    id: int
    table: str
    content: Content
    offsets: Mapping[TopicPartition, int]
    trigger: Trigger
    opened_at: float
    origins: tuple[Origin, ...]
    size: int = 0
    source_time: int = 0


def late_events(batch: Batch, target: float, waited: float, now: int) -> int:
    """Return how many events of a batch are visible at ``now`` (microseconds) later than ``target`` seconds allow.

    The time counts from their commit at the source. Of events whose time is unknown it counts from the read of the
    batch's oldest event, which was ``waited`` seconds ago.
    """
    content, earliest, has_waited = batch.content, now - target * 1_000_000, waited > target
    times = np.atleast_1d(content.version.source_time)
    late = np.where(times > 0, times < earliest, has_waited)
    return int(late.sum()) if len(late) == len(content) else len(content) * int(late.any())


def operations(content: Content) -> Mapping[Operation, int]:
    """Return the number of events by operation; none for content whose events have no operation."""
    if isinstance(content, Truncate):
        return {Operation.TRUNCATE: 1}
    if not isinstance(content, Changes):
        return {}
    counts = np.bincount(content.operation)
    return {Operation(number): int(counts[number]) for number in np.flatnonzero(counts).tolist()}


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The oldest changes of a table that are not durable.

    ``since`` is when they were read (seconds, monotonic), ``source_time`` the newest commit time at the source among
    them (microseconds since the epoch, 0: unknown).
    """

    since: float
    source_time: int


# -- watermarks --------------------------------------------------------------------------------------------------------


class Watermarks:
    """The newest source time by table and partition in one assignment.

    ``topics`` contains each topic once for each of its assigned partitions.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._partitions = Counter(topics)
        self._newest: dict[str, dict[TopicPartition, int]] = {}

    def advance(self, batch: Batch) -> int:
        """Return the watermark that a table has after this batch, in microseconds.

        -1 while it is unknown: a partition of a topic of the table has brought no change yet.
        """
        newest = self._newest.setdefault(batch.table, {})
        for partition, time in batch.content.source_times():
            newest[partition] = max(time, newest.get(partition, time))
        feeding = sum(self._partitions[topic] for topic in {topic for topic, _ in newest})
        return min(newest.values()) if newest and len(newest) >= feeding else -1
