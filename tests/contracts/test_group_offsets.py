"""The offsets of consumer groups, altered by another client: in memory and on a real broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from aiokafka import AIOKafkaConsumer
from support.fix_asyncio import eventually

from headrace.core.model.errors import Fatal, Fenced
from headrace.ports import GroupOffsets, TopicPartition
from headrace_connectors.kafka.group_offsets import KafkaGroupOffsets
from headrace_dev.kafka import Kafka
from headrace_dev.memory.stores import MemoryGroupOffsets


class Cluster(Protocol):
    """A topic with two partitions, the name of a group, and a member that joins it."""

    topic: str
    group: str
    offsets: GroupOffsets

    def member(self) -> AbstractAsyncContextManager[None]: ...


class GroupOffsetsSuite:
    """Inherit from it and provide ``cluster``."""

    pytestmark = pytest.mark.anyio

    async def test_what_was_altered_reads_back_and_the_rest_stays(self, cluster: Cluster) -> None:
        """Altered offsets are read back, also of an unknown group and beyond the end; the others do not change."""
        first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
        assert await cluster.offsets.committed(cluster.group) == {}
        await cluster.offsets.alter(cluster.group, {first: 7, second: 99999})
        await cluster.offsets.alter(cluster.group, {first: 0})
        assert await cluster.offsets.committed(cluster.group) == {first: 0, second: 99999}

    async def test_an_offset_is_removed_alone(self, cluster: Cluster) -> None:
        """Remove deletes one offset beside one that is set; a repeat, and an unknown group, is no error."""
        first, second = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
        await cluster.offsets.alter(cluster.group, {second: None})
        await cluster.offsets.alter(cluster.group, {first: 1, second: 2})
        await cluster.offsets.alter(cluster.group, {first: 3, second: None})
        await cluster.offsets.alter(cluster.group, {second: None})
        assert await cluster.offsets.committed(cluster.group) == {first: 3}

    async def test_a_reset_removes_all_of_a_group(self, cluster: Cluster) -> None:
        """A reset removes all offsets of a group; a repeat is no error."""
        await cluster.offsets.alter(cluster.group, {TopicPartition(cluster.topic, n): 5 for n in (0, 1)})
        for _ in range(2):
            await cluster.offsets.reset(cluster.group)
            assert await cluster.offsets.committed(cluster.group) == {}

    async def test_a_partition_that_is_not_there_is_refused(self, cluster: Cluster) -> None:
        """An unknown topic or partition is an error at once, without retries."""
        for partition in (TopicPartition("no-such-topic", 0), TopicPartition(cluster.topic, 44)):
            with pytest.raises(Fatal, match="does not exist"):
                await cluster.offsets.alter(cluster.group, {partition: 1})
        with pytest.raises(Fatal):
            await cluster.offsets.alter(cluster.group, {TopicPartition(cluster.topic, -1): 1})

    async def test_nothing_changes_while_the_group_has_members(self, cluster: Cluster) -> None:
        """The broker refuses to alter offsets of a group with members: a running task would overwrite them."""
        partition = TopicPartition(cluster.topic, 0)
        await cluster.offsets.alter(cluster.group, {partition: 3})
        async with cluster.member():
            for change in (cluster.offsets.alter(cluster.group, {partition: 1}), cluster.offsets.reset(cluster.group)):
                with pytest.raises(Fenced):
                    await change
            with pytest.raises(Fenced):
                await cluster.offsets.alter(cluster.group, {partition: None})
        assert await cluster.offsets.committed(cluster.group) == {partition: 3}


class TestMemoryGroupOffsets(GroupOffsetsSuite):
    """In memory."""

    class Memory:
        """Groups in a dictionary."""

        topic, group = "t", "g"

        def __init__(self) -> None:
            self.offsets = MemoryGroupOffsets()
            self.offsets.partitions = {self.topic: 2}

        @asynccontextmanager
        async def member(self) -> AsyncIterator[None]:
            """Add a member."""
            self.offsets.active.add(self.group)
            yield
            self.offsets.active.clear()

    @pytest.fixture
    def cluster(self) -> Memory:
        """A cluster without offsets."""
        return self.Memory()


@pytest.mark.stack
class TestKafkaGroupOffsets(GroupOffsetsSuite):
    """On a broker."""

    class Real:
        """A topic and a group per test."""

        def __init__(self, kafka: Kafka, topic: str, group: str) -> None:
            self.topic, self.group, self._servers = topic, group, kafka.bootstrap_servers
            self.offsets = KafkaGroupOffsets({"bootstrap_servers": self._servers})

        @asynccontextmanager
        async def member(self) -> AsyncIterator[None]:
            """A consumer with assigned partitions."""
            consumer = AIOKafkaConsumer(
                self.topic, bootstrap_servers=self._servers, group_id=self.group, enable_auto_commit=False
            )
            await consumer.start()
            try:
                await eventually(lambda: len(consumer.assignment()) == 2, 30)
                yield
            finally:
                await consumer.stop()

    @pytest.fixture
    def cluster(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> Real:
        """A topic without committed offsets."""
        topic = unique("altered")
        stack_kafka.create_topic(topic, partitions=2)
        return self.Real(stack_kafka, topic, unique("group"))
