"""A feed while its topics are deleted, loaded or truncated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from support.kafka.feed_harness import numbered, until
from support.kafka.kafka_harness import KafkaHarness, opened

from headrace.core.model.errors import Fenced
from headrace.ports import TopicPartition
from headrace_connectors.kafka.feed import KafkaFeed
from headrace_dev.kafka import Kafka

pytestmark = pytest.mark.stack


def test_offsets_of_a_deleted_topic(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """The feed omits them from a commit, or reports a changed group.

    The client would retry forever.
    """
    topic = unique("topic")
    kept, gone = TopicPartition(f"{topic}.kept", 0), TopicPartition(f"{topic}.gone", 0)

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            for partition in (kept, gone):
                await cluster.create(partition.topic)
                await cluster.append(partition.topic, numbered(5))
            feed, seen = await opened(cluster, topic, 0, {"topics.regex": f"{topic}\\..*"})
            await until(lambda: len(seen.values) == 10, "all records")
            await cluster.delete(gone.topic)
            async with asyncio.timeout(20):
                with suppress(Fenced):
                    await feed.commit({kept: 5, gone: 5})
            await until(lambda: seen.topics == {kept.topic}, "the rebalance")
            await feed.commit({kept: 5})
            assert (await cluster.committed(f"connect-{topic}"))[kept] == 5
            await feed.stop()
        assert seen.errors == []

    asyncio.run(scenario())


def test_metadata_after_a_question_about_a_deleted_topic(stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
    """The feed still finds new topics after a request for a deleted one.

    The client would refresh only the deleted topic from then on, and the task would read nothing in the state RUNNING.
    """
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(f"{topic}.kept")
            feed, seen = await opened(cluster, topic, 0, {"topics.regex": f"{topic}\\..*"})
            await until(lambda: seen.topics == {f"{topic}.kept"}, "the assignment")
            assert isinstance(feed, KafkaFeed)
            gone = AiokafkaPartition(f"{topic}.gone", 0)
            # the calls of the topic watch after a deletion
            await feed._consumers.call(feed._member._refresh_lag([gone]))
            await cluster.create(f"{topic}.new")
            await until(lambda: seen.topics == {f"{topic}.kept", f"{topic}.new"}, "both topics")
            await feed.stop()
        assert seen.errors == []

    asyncio.run(scenario())


def test_offsets_of_a_group_that_is_being_loaded(
    stack_kafka: Kafka, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator reports no offsets while it loads the group; ``latest`` would skip unread records."""
    topic, refusals = unique("topic"), [OffsetFetchResponse_v3(0, [], code) for code in (14, 16, 14)]
    send = GroupCoordinator._send_req

    async def loading(self: GroupCoordinator, request: Any) -> Any:
        return refusals.pop() if refusals and isinstance(request, OffsetFetchRequest) else await send(self, request)

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            await cluster.append(topic, numbered(10))
            feed, seen = await opened(cluster, topic, 0, {"topics": topic})
            await until(lambda: len(seen.values) == 10, "all records")
            await feed.commit({TopicPartition(topic, 0): 4})
            await feed.stop()
            monkeypatch.setattr(GroupCoordinator, "_send_req", loading)
            latest = {"topics": topic, "consumer.override.auto.offset.reset": "latest"}
            feed, seen = await opened(cluster, topic, 0, latest)
            await until(lambda: seen.values == numbered(6, 4), "what was not committed")
            await feed.stop()
        assert refusals == seen.errors == []

    asyncio.run(scenario())


def test_records_that_retention_removed(
    stack_kafka: Kafka, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The feed continues with the oldest available records, and the log names the lost ones."""
    topic = unique("topic")

    async def scenario() -> None:
        async with KafkaHarness(stack_kafka, unique).cluster() as cluster:
            await cluster.create(topic)
            await cluster.append(topic, numbered(10))
            feed, seen = await opened(cluster, topic, 0, {"topics": topic})
            await until(lambda: len(seen.values) == 10, "all records")
            await feed.commit({TopicPartition(topic, 0): 4})
            await feed.stop()
            await cluster.remove(TopicPartition(topic, 0), 7)
            feed, seen = await opened(cluster, topic, 0, {"topics": topic})
            await until(lambda: seen.values == numbered(3, 7), "what is left")
            await feed.stop()
        assert f"{topic}-0: records 4 to 6 are gone from the topic" in caplog.text

    asyncio.run(scenario())
