"""The feed of aiokafka and Faust passes its contract on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from contracts.feed_suite import FeedSuite
from support.kafka.feed_harness import FeedHarness, Recorder, until
from support.kafka.kafka_harness import QUICK, KafkaHarness
from support.kafka.kafka_settings import settings_of

from headrace.core.decode.json_converter import Document, JsonConverter, document_bytes
from headrace.ports import TopicPartition
from headrace_dev.kafka import Kafka


@pytest.mark.stack
class TestKafkaFeed(FeedSuite):
    """The suite."""

    @pytest.fixture
    def harness(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> FeedHarness:
        return KafkaHarness(stack_kafka, unique)

    def test_values_are_divided_where_they_are_fetched(self, harness: KafkaHarness, connector: str, topic: str) -> None:
        """The feed removes the schema part that documents share, and changes nothing else."""
        documents = [b'{"schema":{"type":"string"},"payload":"a"}', b"{", b'{"schema":{"type":"string"},"payload":"b"}']
        listener = Recorder()

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                await cluster.append(topic, documents)
                divide = JsonConverter(True).divide
                listener.feed = cluster.feeds.open(connector, 0, settings_of({**QUICK, "topics": topic}), divide)
                await listener.feed.start(listener)
                await until(lambda: len(listener.values) == len(documents), "all records")
                await listener.feed.stop()

        asyncio.run(scenario())
        assert [type(value) for value in listener.values] == [Document, bytes, Document]
        assert [document_bytes(value) for value in listener.values] == documents

    def test_offsets_go_without_a_note_that_brokers_refuse(
        self, harness: KafkaHarness, connector: str, topic: str
    ) -> None:
        """The feed omits a note longer than offset.metadata.max.bytes, logs it, and continues to read."""
        listener, place = Recorder(), TopicPartition(topic, 0)

        async def scenario() -> None:
            async with harness.cluster() as cluster:
                await cluster.create(topic)
                listener.feed = cluster.feeds.open(connector, 0, settings_of({**QUICK, "topics": topic}))
                await listener.feed.start(listener)
                await until(lambda: bool(listener.assignments), "the assignment")
                listener.feed.note({place: "x" * 5_000})
                await listener.feed.commit({place: 0})
                assert await cluster.committed(f"connect-{connector}") == {place: 0}
                await listener.feed.stop()

        asyncio.run(scenario())
