"""The memory feed passes its contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
from contracts.feed_suite import FeedSuite
from support.kafka.feed_harness import FeedHarness

from headrace.ports import TopicPartition
from headrace_dev.memory import MemoryBroker, MemoryFeeds


class MemoryCluster:
    """The feeds of one worker on a memory broker."""

    def __init__(self) -> None:
        self._broker = MemoryBroker()
        self.feeds = MemoryFeeds(self._broker)

    async def create(self, topic: str, partitions: int = 1) -> None:
        await self._broker.create_topic(topic, partitions)

    async def delete(self, topic: str) -> None:
        await self._broker.delete_topic(topic)

    async def append(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        for value in values:
            self._broker.append(topic, value, partition=partition)

    async def remove(self, partition: TopicPartition, before: int) -> None:
        self._broker.remove(partition, before)

    async def cut(self, partition: TopicPartition, end: int) -> None:
        self._broker.cut(partition, end)

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        return self._broker.committed(group)


class MemoryHarness:
    """A broker for each test."""

    config: Mapping[str, str] = {}

    def unique(self, stem: str) -> str:
        return stem

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[MemoryCluster]:
        yield MemoryCluster()


class TestMemoryFeed(FeedSuite):
    """The suite."""

    @pytest.fixture
    def harness(self) -> FeedHarness:
        return MemoryHarness()
