"""A real broker for the feed suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer
from confluent_kafka import TopicPartition as Place
from support.kafka.feed_harness import Recorder, until
from support.kafka.kafka_settings import settings_of

from headrace.config.kafka import KafkaSettings
from headrace.ports import Divide, Feed, TopicPartition
from headrace_connectors.kafka import KafkaFeedFactory
from headrace_dev.kafka import Kafka

QUICK = {
    "consumer.override.metadata.max.age.ms": "400",
    "consumer.override.heartbeat.interval.ms": "200",
    "consumer.override.session.timeout.ms": "10000",
}
"""A group that notices new topics and rebalances at once, so that tests need not wait."""


@contextmanager
def producer(kafka: Kafka, **settings: str) -> Iterator[Producer]:
    """A producer; on exit, the broker has all its records."""
    made = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "compression.type": "lz4", "log_level": 0} | settings
    )
    yield made
    assert made.flush(30) == 0


def first_messages(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    """Return the first records of the first partition of a topic. Fail if they are not available within a minute."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "log_level": 0})
    consumer.assign([Place(topic, 0, 0)])  # no group to join
    try:
        found = consumer.consume(count, timeout=60)
    finally:
        consumer.close()
    assert [message.error() for message in found] == [None] * count
    return found


class TidyFeeds(KafkaFeedFactory):
    """Stops the feeds of a test that fails, so that pytest reports the error of the test itself."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self._opened: list[Feed] = []

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        self._opened.append(super().open(connector, task, settings, divide))
        return self._opened[-1]

    async def close(self) -> None:
        for feed in self._opened:
            await feed.stop()
        await super().close()


class KafkaCluster:
    """The feeds of one worker on a real broker."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self.feeds = TidyFeeds({"bootstrap.servers": kafka.bootstrap_servers})

    async def create(self, topic: str, partitions: int = 1) -> None:
        await asyncio.to_thread(self._kafka.create_topic, topic, partitions)

    async def delete(self, topic: str) -> None:
        admin = self._kafka.admin()
        await asyncio.to_thread(admin.delete_topics([topic])[topic].result)

    async def append(self, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
        await asyncio.to_thread(self._append, topic, values, partition)

    def _append(self, topic: str, values: Sequence[bytes], partition: int) -> None:
        with producer(self._kafka) as out:
            for value in values:
                out.produce(topic, value, partition=partition)

    async def remove(self, partition: TopicPartition, before: int) -> None:
        admin, to = self._kafka.admin(), Place(*partition, before)
        await asyncio.to_thread(admin.delete_records([to])[to].result, 10)

    async def cut(self, partition: TopicPartition, end: int) -> None:
        await asyncio.to_thread(self._kafka.cut, *partition, end)

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        return await asyncio.to_thread(self._committed, group)

    def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        admin = self._kafka.admin()
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
        return {TopicPartition(each.topic, each.partition): each.offset for each in answer.topic_partitions}


class KafkaHarness:
    """A broker that tests share; each test has its own names."""

    config = QUICK

    def __init__(self, kafka: Kafka, unique: Callable[[str], str]) -> None:
        self._kafka = kafka
        self.unique = unique

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[KafkaCluster]:
        cluster = KafkaCluster(self._kafka)
        await cluster.feeds.start("worker:8083")
        try:
            yield cluster
        finally:
            await cluster.feeds.close()


async def opened(cluster: KafkaCluster, connector: str, task: int, config: Mapping[str, str]) -> tuple[Feed, Recorder]:
    """A feed that has its first assignment."""
    listener = Recorder()
    listener.feed = cluster.feeds.open(connector, task, settings_of({**QUICK, **config}))
    await listener.feed.start(listener)
    await until(lambda: bool(listener.assignments), "the first assignment")
    return listener.feed, listener
