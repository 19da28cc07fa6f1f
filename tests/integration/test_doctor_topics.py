"""``headrace doctor`` on real topics: each bad state is found, and the good state is silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from headrace.core.doctor import clocks, topics
from headrace.core.doctor.findings import Finding, Severity
from headrace.ports import TopicPartition
from headrace_connectors.kafka.group_offsets import KafkaGroupOffsets
from headrace_connectors.kafka.stores import KafkaTopicOffsets
from headrace_dev.kafka import Kafka

pytestmark = pytest.mark.stack

Find = Callable[..., list[Finding]]


@pytest.fixture
def find(stack_kafka: Kafka, unique: Callable[[str], str]) -> tuple[str, Find]:
    """A name for a topic, and what returns the findings about it and other names for a group."""
    topic = unique("doctor")
    arguments = {"bootstrap_servers": stack_kafka.bootstrap_servers}

    def find(*others: str) -> list[Finding]:
        async def look() -> list[Finding]:
            described = await KafkaTopicOffsets(arguments).describe(topic)
            committed = await KafkaGroupOffsets(arguments).committed(topic)
            return list(topics.findings(described, [topic, *others], committed))

        return asyncio.run(look())

    return topic, find


def test_a_good_topic_is_silent(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    topic, found = find
    stack_kafka.create_topic(topic, partitions=2)
    assert found() == []


def test_a_topic_that_does_not_exist(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    topic, found = find
    assert [finding.rule for finding in found()] == ["topic-missing"]
    stack_kafka.create_topic(topic)
    assert [finding.subject for finding in found("shop.public.ordres")] == ["topic shop.public.ordres"]


def test_a_topic_that_is_compacted(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    topic, found = find
    stack_kafka.create_topic(topic, config={"cleanup.policy": "compact,delete"})
    [finding] = found()
    assert (finding.rule, finding.evidence) == ("topic-compacted", "cleanup.policy is compact,delete")


def test_changes_that_were_removed_before_they_were_read(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    """Those of other partitions, and those that were read, are none."""
    topic, found = find
    stack_kafka.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": stack_kafka.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, b"{}", partition=number % 2)
    producer.flush(30)
    offsets = {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 7}
    asyncio.run(KafkaGroupOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers}).alter(topic, offsets))
    assert found() == []
    admin = stack_kafka.admin()  # its futures die with it
    removed = admin.delete_records([ClientPartition(topic, 0, 6), ClientPartition(topic, 1, 7)])
    for future in removed.values():
        future.result(30)
    [finding] = found()
    assert (finding.rule, finding.severity) == ("topic-changes-removed", Severity.ERROR)
    assert finding.subject == f"topic {topic}, partition 0"
    assert finding.evidence == "the connector has read up to offset 4, and the topic begins at 6"


def test_a_topic_that_keeps_its_changes_for_hours(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    topic, found = find
    stack_kafka.create_topic(topic, config={"retention.ms": "7200000"})
    [finding] = found()
    assert (finding.rule, finding.evidence) == ("topic-retention", "retention.ms=7200000")
    assert "longer than 2 hours" in finding.consequence


def test_changes_that_are_removed_soon(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    """The records are four days old, of a retention of seven. Those that were read do not count."""
    topic, found = find
    stack_kafka.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": stack_kafka.bootstrap_servers})
    old = int(time.time() * 1000) - 4 * topics.DAY_MS
    for number in range(20):
        producer.produce(topic, b"{}", partition=number % 2, timestamp=old)
    for _ in range(5):
        producer.produce(topic, b"{}", partition=0)
    producer.flush(30)
    group = KafkaGroupOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers})
    asyncio.run(group.alter(topic, {TopicPartition(topic, 0): 9, TopicPartition(topic, 1): 0}))
    late, not_begun = found()
    assert (late.rule, late.subject) == ("topic-retention", f"topic {topic}, partition 0")
    assert not_begun.subject == f"topic {topic}, partition 1"
    asyncio.run(group.alter(topic, {TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 10}))
    assert found() == []


def test_several_partitions_without_a_database(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    topic, _ = find
    stack_kafka.create_topic(topic, partitions=2)
    described = asyncio.run(KafkaTopicOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers}).describe(topic))
    [finding] = topics.findings(described, [topic], {}, reads_database=False)
    assert finding.rule == "topic-several-partitions"
    assert list(topics.findings(described, [topic], {})) == []


def test_the_clock_of_kafka(stack_kafka: Kafka) -> None:
    """The controller reports its clock, which is this machine's; so the clock of the worker is changed."""
    cluster = KafkaTopicOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers})
    for difference, evidence in ((0.0, []), (-90.0, ["90.0 s ahead of"]), (90.0, ["90.0 s behind"])):
        state = asyncio.run(cluster.cluster(lambda seconds=difference: time.time() + seconds))
        assert (state.release, state.no_clock) == ("4.3", "")
        assert state.clock is not None
        found = list(clocks.kafka_findings(state.clock))
        assert [finding.rule for finding in found] == ["worker-clock-kafka"] * len(evidence)
        assert [text in finding.evidence for finding, text in zip(found, evidence, strict=True)] == [True] * len(found)


def test_one_replica_where_there_could_be_more(stack_kafka: Kafka, find: tuple[str, Find]) -> None:
    """The stack has one broker, so the number of brokers is changed in what it describes."""
    topic, _ = find
    stack_kafka.create_topic(topic)
    offsets = KafkaTopicOffsets({"bootstrap_servers": stack_kafka.bootstrap_servers})
    [described] = asyncio.run(offsets.describe(topic))
    assert (described.replicas, described.brokers) == (1, 1)
    found = topics.findings([replace(described, brokers=3)], [], {})
    assert [finding.rule for finding in found] == ["topic-one-replica"]
