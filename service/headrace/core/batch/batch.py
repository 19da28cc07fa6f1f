"""A batch: what a lane writes to its lake table with one commit; and the source time that the table then contains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.batch.offsets import Origin
from headrace.core.model.events import Content, TopicPartition


class Trigger(StrEnum):
    """Why a batch was closed (a metric label)."""

    ROWS = "rows"
    BYTES = "bytes"
    AGE = "age"
    BARRIER = "barrier"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch closes: at so many events or bytes, or when its oldest event has waited so long (seconds)."""

    max_records: int = 500_000
    max_bytes: int = 64 * 1024 * 1024
    linger: float = 1.0


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
