"""The harness of the feed suite, and the listener of its feeds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

from headrace.config.kafka import KafkaSettings
from headrace.core.batch.offsets import ChunkSequence
from headrace.core.decode.json_converter import Document
from headrace.core.model.errors import Fenced
from headrace.ports import Chunk, Feed, TopicPartition

DEADLINE = 30.0


class Feeds(Protocol):
    """Opens feeds."""

    def open(self, connector: str, task: int, settings: KafkaSettings) -> Feed: ...


class Cluster(Protocol):
    """A broker (real or memory) and the feeds of one worker."""

    feeds: Feeds

    async def create(self, topic: str, partitions: int = 1) -> None: ...

    async def delete(self, topic: str) -> None: ...

    async def append(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None: ...

    async def remove(self, partition: TopicPartition, before: int) -> None: ...

    async def cut(self, partition: TopicPartition, end: int) -> None: ...

    async def committed(self, group: str) -> Mapping[TopicPartition, int]: ...


class FeedHarness(Protocol):
    """Makes clusters and unique names."""

    config: Mapping[str, str]

    def unique(self, stem: str) -> str: ...

    def cluster(self) -> AbstractAsyncContextManager[Any]: ...


class Recorder:
    """A listener that checks the numbering of every chunk with the sink task's own sequence check."""

    def __init__(self) -> None:
        self.feed: Feed
        self.values: list[bytes | Document] = []
        self.ends: dict[TopicPartition, int] = {}
        self.chunk_ends: list[int] = []
        self.behind: list[int] = []
        self.gone: list[bool] = []
        self.assignments: list[set[TopicPartition]] = []
        self.calls: list[str] = []
        self.errors: list[BaseException] = []
        self.failed_topics: list[str] = []
        self._failed: set[str] = set()  # in this assignment
        self.open = asyncio.Event()
        self.open.set()
        self.commits_on_revoke = False
        self.raises: Exception | None = None
        self.running = 0
        self._epoch, self._sequence = -1, ChunkSequence()

    async def put(self, chunks: Sequence[Chunk]) -> None:
        self.running += 1
        assert self.running == 1, "calls of a listener overlap"
        assert len({chunk.partition for chunk in chunks}) == len(chunks), "two chunks of a partition"
        try:
            for chunk in chunks:
                await self._put(chunk)
        finally:
            self.running -= 1

    async def _put(self, chunk: Chunk) -> None:
        self.calls.append("put")
        self.chunk_ends.append(chunk.end)
        self.behind.append(chunk.behind)
        self.gone.append(chunk.gone)
        if self.raises is not None:
            raise self.raises
        await self.open.wait()
        assert chunk.epoch == self._epoch, "a chunk of another assignment"
        assert chunk.partition.topic not in self._failed, "a chunk of a topic that has failed"
        self._sequence.admit(chunk.sequence, chunk.partition, chunk.begin, chunk.end)
        self.values += [record.value or b"" for record in chunk.records]
        self.ends[chunk.partition] = chunk.end

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        assert self.running == 0, "calls of a listener overlap"
        self.calls.append("assigned")
        self._epoch, self._sequence = epoch, ChunkSequence()
        self._failed.clear()
        self.assignments.append(set(partitions))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        assert self.running == 0, "calls of a listener overlap"
        self.calls.append("revoked")
        assert set(partitions) == self.assignments[-1]
        if self.commits_on_revoke:
            with suppress(Fenced):  # then the records come again
                await self.feed.commit(self.ends)
        self.ends = {}

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        self.failed_topics.append(topic)
        self._failed.add(topic)

    def on_failure(self, error: BaseException) -> None:
        self.errors.append(error)

    @property
    def topics(self) -> set[str]:
        """The topics of the current assignment."""
        return {partition.topic for partition in self.assignments[-1]} if self.assignments else set()


async def until(condition: Callable[[], bool | Awaitable[bool]], what: str, deadline: float = DEADLINE) -> None:
    """Wait until ``condition`` holds; fail with ``what`` after the deadline."""
    end = time.monotonic() + deadline
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert time.monotonic() < end, f"not within {deadline:g} s: {what}"
        await asyncio.sleep(0.02)


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Distinct values of records."""
    return [b"%06d" % number for number in range(start, start + count)]
