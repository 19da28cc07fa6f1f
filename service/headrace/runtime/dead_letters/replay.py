"""Sends dead letters through a connector's task again, as the records that they were, where they stood.

The task is a worker's own, with a feed that brings letters instead of a topic: the same transforms, gates, reselect and
merge. Nothing is written to Kafka. A letter keeps its coordinate and its source's position, so an event that the table
has overtaken changes nothing, and a history takes each event once, however often it is sent.

Tests: ``tests/unit/test_replay_dlq.py``, ``tests/integration/test_replay_dlq.py``,
``tests/integration/test_dead_letters_over_rest.py``.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TypeVar

from headrace.config import SinkConnectorConfig
from headrace.config.kafka import KafkaSettings
from headrace.core.decode.record_decoder import Sources
from headrace.core.decode.records import DeadLetter
from headrace.core.model.errors import Fatal
from headrace.ports import (
    Chunk,
    DeadLetterQueue,
    Divide,
    ErrantRecord,
    Feed,
    FeedListener,
    Lakehouse,
    Messages,
    OffsetNote,
    OpenRowSource,
    TopicPartition,
)
from headrace.runtime.task.asyncio_agent import AsyncioAgent
from headrace.runtime.task.conversions import OpenRegistry
from headrace.runtime.task.flow_control import MemoryBudget, unlimited
from headrace.runtime.task.task_factory import SinkTaskFactory
from headrace.runtime.threads import WorkerThreads

_Message = TypeVar("_Message")


class ReplayFeed:
    """``ports.Feed`` that brings what ``play`` is given. It commits nothing anywhere."""

    _listener: FeedListener

    def __init__(self) -> None:
        self._epoch = 0
        self._partitions: Collection[TopicPartition] = ()
        self._put: set[TopicPartition] = set()
        self._waits: dict[TopicPartition, Sequence[int]] = {}
        self.durable = 0
        """The number of letters of the last ``play`` that are durable."""

    async def start(self, listener: FeedListener) -> None:
        self._listener = listener

    async def stop(self) -> None:
        """Do nothing: it is in no group."""

    def pause(self) -> None:
        """Do nothing: only ``play`` sends chunks."""

    def resume(self) -> None:
        """Do nothing: only ``play`` sends chunks."""

    def rewind(self) -> None:
        """Do nothing: no table of a replay is restarted."""

    def throttle(self, topics: Collection[str]) -> None:
        """Do nothing: ``play`` receives few letters at a time."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remove the letters that are durable."""
        for partition, waiting in list(self._waits.items()):
            count = bisect_left(waiting, offsets.get(partition, 0))
            self.durable += count
            self._waits[partition] = waiting[count:]

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """Return offset 0 for each partition: letters belong to no group."""
        return dict.fromkeys(self._partitions, OffsetNote(0, ""))

    def topic_ids(self) -> Mapping[str, str]:
        """Return none: letters may be of a topic that was created again since."""
        return {}

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        """Do nothing: no group stores notes."""

    def last_caught_up(self) -> Mapping[TopicPartition, float]:
        """Return that a partition is caught up once its letters were put."""
        return {partition: time.monotonic() if partition in self._put else -inf for partition in self._partitions}

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return none: letters are not read from partitions."""
        return {}

    def absent(self) -> Sequence[str] | None:
        """Return None: letters need no topics."""
        return None

    @property
    def is_settled(self) -> bool:
        """Whether all letters played are durable."""
        return not any(self._waits.values())

    async def play(self, letters: Sequence[DeadLetter]) -> None:
        """Bring letters in the order of their offsets, each coordinate once, as an assignment of their own."""
        partitions: dict[TopicPartition, dict[int, DeadLetter]] = {}
        for letter in letters:
            partitions.setdefault(TopicPartition(letter.topic, letter.partition), {})[letter.offset] = letter
        self._epoch += 1
        self._partitions = list(partitions)
        self._put.clear()
        self._waits = {partition: sorted(at) for partition, at in partitions.items()}
        self.durable = 0
        await self._listener.on_partitions_assigned(self._epoch, list(partitions))
        for sequence, (partition, at) in enumerate(partitions.items()):
            offsets = sorted(at)
            records, begin, end = [at[offset] for offset in offsets], offsets[0], offsets[-1] + 1
            await self._listener.put([Chunk(self._epoch, sequence, partition, records, begin, end)])
            self._put.add(partition)


@dataclass(slots=True)
class Refused:
    """A ``ports.DeadLetterQueue`` that keeps the records that cannot be used again."""

    records: list[ErrantRecord] = field(default_factory=list)

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        self.records.extend(errant)

    async def close(self) -> None:
        """Do nothing: it has no connection."""


class _ReplayFeeds:
    """What ``SinkTaskFactory`` opens for a replay."""

    def __init__(self) -> None:
        self.feed, self.refused = ReplayFeed(), Refused()

    async def start(self, worker: str = "") -> None:
        """Nothing to start."""

    def beat(self, callback: Callable[[], object]) -> None:
        """No thread of its own."""
        callback()

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Nothing to check."""

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        return self.feed

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> AsyncioAgent[_Message]:
        return AsyncioAgent(name, body)

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> Callable[[str], bool]:
        """Return True for every topic: the events between letters are not read, so rows must not be cached."""
        return lambda topic: True

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        return self.refused

    async def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class Edges:
    """What a task reaches beside Kafka."""

    lakehouse: Lakehouse
    open_row_source: OpenRowSource
    open_registry: OpenRegistry
    sources: Sources


async def replay(
    config: SinkConnectorConfig,
    letters: AsyncIterator[Sequence[DeadLetter]],
    edges: Edges,
    threads: WorkerThreads,
    progress: Callable[[int, Sequence[ErrantRecord]], None] = lambda count, refused: None,
    memory: MemoryBudget | None = None,
) -> list[ErrantRecord]:
    """Write the letters to their tables; those that cannot be used are returned. Raises what ends a task.

    ``progress`` is called with the number of letters that have become durable since its last call, and with all those
    that cannot be used until then; what it raises ends the replay. A cancellation ends the replay as well, when the
    write in flight has ended and ``progress`` was called. ``memory`` is that of a worker, for letters that are not
    durable; without it there is no limit.
    """
    feeds, failures = _ReplayFeeds(), list[BaseException]()
    factory = SinkTaskFactory(
        feeds,
        edges.lakehouse,
        edges.open_row_source,
        threads,
        memory or unlimited(),
        open_registry=edges.open_registry,
        # Its commits contain no offsets, one letter that cannot be used keeps no other from its table, and what was
        # read behind the letters is not read again.
        adjust=lambda options: replace(
            options,
            group="",
            pipeline=replace(options.pipeline, reads_on=False),
            tolerate_errors=True,
            isolate_tables=False,
            log_errors=False,
        ),
        sources=edges.sources,
    )
    task = await factory(config.name, 0, config, failures.append)
    is_sending = False
    try:
        await task.start()
        async for some in letters:
            is_sending = True
            await feeds.feed.play(some)
            await task.pause()  # what was brought is written
            if failures:
                raise failures[0]
            if not feeds.feed.is_settled:
                raise Fatal("letters were accepted but not written; nothing is lost, replay them again")
            is_sending = False
            progress(len(some), feeds.refused.records)
            await task.resume()  # else it would write nothing of the next letters
    finally:
        # The tasks of the connector resume afterwards, and must not meet a write of this one.
        stopping = asyncio.ensure_future(task.stop())
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            await stopping
            raise
        finally:
            if is_sending:
                progress(feeds.feed.durable, feeds.refused.records)
    return feeds.refused.records
