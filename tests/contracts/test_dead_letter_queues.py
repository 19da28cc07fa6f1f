"""The dead letter queues in memory and on Kafka pass their contract; and the errors that only Kafka has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import RequestTimedOutError
from contracts.dead_letter_queue_suite import DeadLetterQueueSuite, Letter, QueueHarness, errant
from support.kafka.kafka_harness import first_messages
from support.kafka.kafka_settings import dead_letter_options, settings_of
from support.kafka.scripted_broker import AWAY, NOT_CONTROLLER, TOO_FEW, scripted_broker

from headrace.core.decode.records import original
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.ports import DeadLetterQueue
from headrace_connectors.kafka import KafkaFeedFactory
from headrace_connectors.kafka.topics import create_topic
from headrace_dev.kafka import Kafka
from headrace_dev.memory import MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds
from headrace_dev.server import LOOPBACK, free_ports


class MemoryQueue:
    """The memory version."""

    def __init__(self, queue: MemoryDeadLetterQueue) -> None:
        self.queue = queue

    async def letters(self, count: int) -> Sequence[Letter]:
        assert len(self.queue.letters) == count
        return [(each.key, each.value, each.timestamp, each.headers) for each in self.queue.letters]


class MemoryHarness:
    """A queue for each test."""

    @asynccontextmanager
    async def open(self, context: str | None = "true") -> AsyncIterator[MemoryQueue]:
        feeds = MemoryFeeds(MemoryBroker())
        await feeds.dead_letter_queue("sink", 3, settings_of(dead_letter_options("dead", context)))
        yield MemoryQueue(feeds.queues["dead"])


class KafkaQueue:
    """A topic of a real broker."""

    def __init__(self, kafka: Kafka, topic: str, queue: DeadLetterQueue) -> None:
        self._kafka = kafka
        self._topic = topic
        self.queue = queue

    async def letters(self, count: int) -> Sequence[Letter]:
        messages = await asyncio.to_thread(first_messages, self._kafka.bootstrap_servers, self._topic, count)
        return [(each.key(), each.value(), each.timestamp()[1], each.headers()) for each in messages]


class KafkaHarness:
    """A topic for each test."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic

    @asynccontextmanager
    async def open(self, context: str | None = "true") -> AsyncIterator[KafkaQueue]:
        feeds = KafkaFeedFactory({"bootstrap.servers": self._kafka.bootstrap_servers})
        await feeds.start()
        queue = await feeds.dead_letter_queue("sink", 3, settings_of(dead_letter_options(self._topic, context)))
        assert queue is not None
        yield KafkaQueue(self._kafka, self._topic, queue)
        await feeds.close()


class TestMemoryDeadLetterQueue(DeadLetterQueueSuite):
    """The suite, in memory."""

    @pytest.fixture
    def harness(self) -> QueueHarness:
        return MemoryHarness()


def test_brokers_that_are_away_are_waited_for() -> None:
    """A task that starts while no broker listens fails with a retriable error."""

    async def scenario() -> None:
        feeds = KafkaFeedFactory({"bootstrap.servers": f"{LOOPBACK}:{free_ports(1)[0]}"})
        await feeds.start()
        with pytest.raises(Retriable, match="Could not initialize dead letter queue with topic=dead: "):
            await feeds.dead_letter_queue("sink", 3, settings_of(dead_letter_options("dead")))
        await feeds.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "error"),
    [({"controller": -1}, Retriable), ({"created": NOT_CONTROLLER}, Retriable), ({"created": TOO_FEW}, Fatal)],
)
def test_a_cluster_that_elects_its_controller_is_waited_for(answers: dict[str, int], error: type[Exception]) -> None:
    """The queue waits while the cluster elects its controller, and does not retry an error of the controller itself."""

    async def scenario() -> None:
        async with scripted_broker(**answers) as address:
            feeds = KafkaFeedFactory({"bootstrap.servers": address})
            await feeds.start()
            with pytest.raises(error, match="Could not initialize dead letter queue with topic=dead: "):
                await feeds.dead_letter_queue("sink", 3, settings_of(dead_letter_options("dead")))
            await feeds.close()

    asyncio.run(scenario())


def test_the_replication_factor_is_named_if_the_cluster_has_fewer_brokers() -> None:
    """The default is 3, as in Kafka Connect, which a cluster of one broker refuses."""

    async def scenario() -> None:
        async with scripted_broker(created=TOO_FEW) as address:
            feeds = KafkaFeedFactory({"bootstrap.servers": address})
            await feeds.start()
            config = dead_letter_options("dead", **{"errors.deadletterqueue.topic.replication.factor": "3"})
            with pytest.raises(Fatal, match=r"errors\.deadletterqueue\.topic\.replication\.factor is 3, which is more"):
                await feeds.dead_letter_queue("sink", 3, settings_of(config))
            await feeds.close()

    asyncio.run(scenario())


def test_a_controller_that_does_not_answer_is_named() -> None:
    """The error names the controller that does not answer, because the client's timeout error has no text."""

    async def scenario() -> None:
        async with scripted_broker(controller=AWAY) as address:
            admin = AIOKafkaAdminClient(bootstrap_servers=address)
            await admin.start()
            admin._client._request_timeout_ms = 100  # from here on: the start may take longer
            with pytest.raises(RequestTimedOutError, match="the cluster's controller does not answer"):
                await create_topic(admin, NewTopic("dead", 1, 1))
            await admin.close()

    asyncio.run(scenario())


def test_the_topic_is_made_with_the_admin_clients_connection() -> None:
    """As in Connect, ``admin.override.*`` applies when the topic is created: the producer's user may lack the right."""

    async def scenario() -> None:
        brokers, admin = free_ports(2)
        feeds = KafkaFeedFactory({"bootstrap.servers": f"{LOOPBACK}:{brokers}"})
        await feeds.start()
        config = dead_letter_options("dead", **{"admin.override.bootstrap.servers": f"{LOOPBACK}:{admin}"})
        with pytest.raises(Retriable, match=f"'{LOOPBACK}', {admin}, "):
            await feeds.dead_letter_queue("sink", 3, settings_of(config))
        await feeds.close()

    asyncio.run(scenario())


def test_letters_are_read_where_they_were_written() -> None:
    """A replay reads dead letters from the producer's brokers, even if the connector's consumers use others."""

    async def scenario() -> None:
        written, read = free_ports(2)
        feeds = KafkaFeedFactory({"bootstrap.servers": f"{LOOPBACK}:{written}"})
        config = dead_letter_options(
            "dead", topics="a", **{"consumer.override.bootstrap.servers": f"{LOOPBACK}:{read}"}
        )
        with pytest.raises(Retriable, match=f"'{LOOPBACK}', {written}, "):
            await anext(feeds.dead_letters("sink", settings_of(config)))

    asyncio.run(scenario())


@pytest.mark.stack
class TestKafkaDeadLetterQueue(DeadLetterQueueSuite):
    """The suite, in a topic."""

    @pytest.fixture
    def harness(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> QueueHarness:
        return KafkaHarness(stack_kafka, unique("dead"))

    def test_what_was_written_is_read_back_for_a_replay(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
        """A replay reads dead letters at their original coordinates up to the current end of the topic.

        The error of a missing topic names it.
        """
        topic = unique("dead")

        async def scenario() -> None:
            feeds = KafkaFeedFactory({"bootstrap.servers": stack_kafka.bootstrap_servers})
            await feeds.start()
            queue = await feeds.dead_letter_queue("sink", 3, settings_of(dead_letter_options(topic)))
            assert queue is not None
            await queue.report([errant(b"k", b"v", [("trace", b"1")]), errant(None, None)])
            config = {"topics": "shop.public.orders", **dead_letter_options(topic)}
            queue_records = feeds.dead_letters("sink", settings_of(config))
            records = [record async for queued in queue_records for record in queued.records]
            [newest] = [queued async for queued in feeds.dead_letters("sink", settings_of(config), 1)]
            assert ([record.value for record in newest.records], newest.skipped) == ([None], 1)
            letters = [original(record, record.key, record.value) for record in records]
            with pytest.raises(ConfigError, match=f"the dead letter topic {topic}_absent does not exist"):
                await anext(
                    feeds.dead_letters("sink", settings_of({**config, **dead_letter_options(f"{topic}_absent")}))
                )
            await queue.close()
            await feeds.close()
            assert [
                (each.topic, each.partition, each.offset, each.timestamp, each.key, each.value, list(each.headers))
                for each in letters
                if each is not None
            ] == [
                ("shop.public.orders", 2, 77, 1_700_000_000_123, b"k", b"v", [("trace", b"1")]),
                ("shop.public.orders", 2, 77, 1_700_000_000_123, None, None, []),
            ]

        asyncio.run(scenario())

    @pytest.mark.parametrize("limit", ["2000", "100000"])
    def test_a_record_that_is_too_large_is_named(
        self, stack_kafka: Kafka, unique: Callable[[str], str], limit: str
    ) -> None:
        """The task fails with an error that names the record.

        The producer's limit applies before the letter is sent, the topic's limit afterwards, with the same message.
        """
        topic = unique("dead")
        stack_kafka.create_topic(topic, config={"max.message.bytes": "2500"})
        large = errant(b"k", b"x" * 3000)

        async def scenario() -> str:
            feeds = KafkaFeedFactory({"bootstrap.servers": stack_kafka.bootstrap_servers})
            await feeds.start()
            config = dead_letter_options(topic, **{"producer.override.max.request.size": limit})
            queue = await feeds.dead_letter_queue("sink", 3, settings_of(config))
            assert queue is not None
            with pytest.raises(Fatal) as refused:
                await queue.report([errant(b"first", b""), large] if limit == "2000" else [large])
            await queue.report([errant(b"second", b"")])
            await queue.close()
            await feeds.close()
            return str(refused.value)

        message = asyncio.run(scenario())
        assert "shop.public.orders-2 at offset 77" in message
        assert "producer.override.max.request.size and the topic's max.message.bytes" in message
        assert [letter.key() for letter in first_messages(stack_kafka.bootstrap_servers, topic, 1)] == [b"second"]

    def test_a_topic_that_cannot_be_created(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> None:
        """The error has Connect's text with the name of the topic, followed by the cause."""
        topic = unique("dead")

        async def scenario() -> None:
            feeds = KafkaFeedFactory({"bootstrap.servers": stack_kafka.bootstrap_servers})
            await feeds.start()
            with pytest.raises(Fatal, match=f"Could not initialize dead letter queue with topic={topic}"):
                await feeds.dead_letter_queue(
                    "sink",
                    3,
                    settings_of(dead_letter_options(topic, **{"errors.deadletterqueue.topic.replication.factor": "3"})),
                )
            await feeds.close()

        asyncio.run(scenario())
