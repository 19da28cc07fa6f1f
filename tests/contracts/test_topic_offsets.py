"""The end offsets of topics, in memory and on a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Producer
from support.kafka.kafka_settings import settings_of

from headrace.core.model.errors import Retriable
from headrace.ports import TopicOffsets, TopicPartition
from headrace_connectors.kafka.stores import KafkaTopicOffsets, StandaloneStores
from headrace_dev.kafka import Kafka
from headrace_dev.memory.stores import MemoryTopicOffsets
from headrace_dev.server import LOOPBACK, free_ports

Make = Callable[[Mapping[TopicPartition, int]], TopicOffsets]


class TopicOffsetsSuite:
    """Inherit from it and provide ``make``, which makes topics with given numbers of records per partition."""

    def test_every_partition_of_the_topics_that_match(self, make: Make, unique: Callable[[str], str]) -> None:
        """The ends include empty partitions, and exclude topics whose names only begin like the pattern."""
        one, other = unique("ends.one"), unique("ends.other")
        wanted = {TopicPartition(one, 0): 3, TopicPartition(one, 1): 0}
        offsets = make({**wanted, TopicPartition(other, 0): 1, TopicPartition(one + "x", 0): 1})
        assert asyncio.run(offsets.ends(re.escape(one))) == wanted

    def test_no_topic_is_no_error(self, make: Make) -> None:
        """No topic matches, and that is no error: the topics of a connector may not exist yet."""
        assert asyncio.run(make({}).ends("nothing.like.it")) == {}
        assert list(asyncio.run(make({}).describe("nothing.like.it"))) == []

    def test_topics_that_match_are_described_by_name(self, make: Make, unique: Callable[[str], str]) -> None:
        """With all of their partitions."""
        one, other = unique("described.one"), unique("described.other")
        offsets = make({TopicPartition(other, 0): 1, TopicPartition(one, 0): 3, TopicPartition(one, 1): 0})
        first, second = asyncio.run(offsets.describe(f"{re.escape(one)}|{re.escape(other)}"))
        assert (first.topic, dict(first.begins), second.topic) == (one, {0: 0, 1: 0}, other)
        assert (first.policy, first.replicas, first.brokers) == ("delete", 1, 1)


class TestMemoryTopicOffsets(TopicOffsetsSuite):
    """In memory."""

    @pytest.fixture
    def make(self) -> Make:
        def made(ends: Mapping[TopicPartition, int]) -> TopicOffsets:
            offsets = MemoryTopicOffsets()
            offsets.offsets = dict(ends)
            return offsets

        return made


def test_the_brokers_of_the_connectors_consumers_are_queried() -> None:
    """The ends come from the brokers of the connector's consumers (``consumer.override.*``, ``consumer.*``)."""
    workers, consumers, own = free_ports(3)
    properties = {"bootstrap.servers": f"{LOOPBACK}:{workers}", "consumer.bootstrap.servers": f"{LOOPBACK}:{consumers}"}
    config = {"topics": "a", "consumer.override.max.poll.records": "10"}
    for port, more in (consumers, {}), (own, {"consumer.override.bootstrap.servers": f"{LOOPBACK}:{own}"}):
        offsets = StandaloneStores(properties).topic_offsets("sink", settings_of({**config, **more}))
        with pytest.raises(Retriable, match=f"'{LOOPBACK}', {port}, "):
            asyncio.run(offsets.ends("a"))


@pytest.mark.stack
class TestKafkaTopicOffsets(TopicOffsetsSuite):
    """On a broker."""

    @pytest.fixture
    def make(self, stack_kafka: Kafka) -> Make:
        def made(ends: Mapping[TopicPartition, int]) -> TopicOffsets:
            for topic in {place.topic for place in ends}:
                stack_kafka.create_topic(topic, partitions=sum(place.topic == topic for place in ends))
            producer = Producer({"bootstrap.servers": stack_kafka.bootstrap_servers})
            for place, end in ends.items():
                for _ in range(end):
                    producer.produce(place.topic, b"{}", partition=place.partition)
            producer.flush(30)
            return KafkaTopicOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers})

        return made
