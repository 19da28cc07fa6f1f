"""Reselect's cache is off for compacted topics, according to the cleanup.policy that the broker reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from support.kafka.kafka_settings import settings_of

from headrace_connectors.kafka import KafkaFeedFactory
from headrace_dev.kafka import Kafka

pytestmark = pytest.mark.stack


def test_policies_are_queried_once(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """``compact`` counts alone or beside ``delete``; known policies are not queried again."""
    policies = {"delete": False, "compact": True, "compact,delete": True}
    topics = {unique(policy.replace(",", "-")): policy for policy in policies}
    for topic, policy in topics.items():
        stack_kafka.create_topic(topic, config={"cleanup.policy": policy})

    async def scenario() -> None:
        feeds = KafkaFeedFactory({"bootstrap.servers": stack_kafka.bootstrap_servers})
        await feeds.start()
        compacted = feeds.compacted("sink", 0, settings_of({"topics": ",".join(topics)}))
        found = {topic: await asyncio.to_thread(compacted, topic) for topic in topics}
        await feeds.close()
        assert found == {topic: policies[policy] for topic, policy in topics.items()}
        assert [compacted(topic) for topic in topics] == list(found.values())  # the consumer thread has ended

    asyncio.run(scenario())


def test_an_unknown_policy_counts_as_compacted(
    stack_kafka: Kafka, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that is missing or may not be described counts as compacted; the log names the missing ACL."""

    async def scenario() -> None:
        feeds = KafkaFeedFactory({"bootstrap.servers": stack_kafka.bootstrap_servers})
        await feeds.start()
        compacted = feeds.compacted("sink", 0, settings_of({"topics": "gone"}))
        assert await asyncio.to_thread(compacted, unique("gone"))
        await feeds.close()

    asyncio.run(scenario())
    assert "DescribeConfigs" in caplog.text
