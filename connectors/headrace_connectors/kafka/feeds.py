"""Create the Kafka clients of a worker: one feed per task, all on one Faust app and one consumer thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from headrace.config.kafka import KafkaSettings
from headrace.ports import DeadLetterQueue, Divide, Feed, Messages, Record
from headrace.runtime.threads import LoopThread
from headrace_connectors.kafka.agent import FaustHost, TableAgent
from headrace_connectors.kafka.dead_letter_queue import KafkaDeadLetterQueue
from headrace_connectors.kafka.dead_letters import read_topic
from headrace_connectors.kafka.feed import KafkaFeed
from headrace_connectors.kafka.settings import (
    admin_arguments,
    check_worker,
    connection_arguments,
    consumer_settings,
    group_arguments,
    producer_arguments,
)
from headrace_connectors.kafka.topic_policies import CompactedTopics

_Message = TypeVar("_Message")


class KafkaFeedFactory:
    """The Kafka side of a worker; ``properties`` are its client properties (``bootstrap.servers``, ``consumer.*``)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Check the worker's properties without opening anything. Raises ConfigError, which names the property."""
        check_worker(properties)
        self._properties = dict(properties)
        self._host = FaustHost("headrace")
        self._consumers = LoopThread("headrace-kafka")

    async def start(self) -> None:
        """Start the Faust app on the running loop, and the consumer thread."""
        self._consumers.start()
        await self._host.start()

    def beat(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` soon on the consumer thread."""
        self._consumers.soon(callback)

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Raise ConfigError, which names the property, for invalid client properties of the connector."""
        consumer_settings(self._properties, connector, 0, settings)
        group_arguments(self._properties, connector, settings)
        if settings.dead_letters.topic:
            producer_arguments(self._properties, connector, 0, settings)

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        """Create the feed of one task; the caller starts it. Raises ConfigError, which names the property.

        ``divide`` converts the bytes of the records' values, on the consumer thread.
        """
        consumer = consumer_settings(self._properties, connector, task, settings)
        if divide is not None:
            consumer = replace(consumer, arguments={**consumer.arguments, "value_deserializer": divide})
        return KafkaFeed(consumer, self._consumers)

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> TableAgent[_Message]:
        """The agent of a table, hosted by Faust; not started yet."""
        return self._host.agent(name, body)

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> CompactedTopics:
        """Return an object that checks whether a topic of the connector is compacted. Raises ConfigError."""
        consumer = consumer_settings(self._properties, connector, task, settings)
        return CompactedTopics(consumer.arguments, self._consumers)

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        """Open the task's dead letter queue; None without one. Raises ConfigError, Retriable or Fatal."""
        if not settings.dead_letters.topic:
            return None
        producer = producer_arguments(self._properties, connector, task, settings)
        admin = admin_arguments(self._properties, settings, f"connector-dlq-adminclient-{connector}-{task}")
        queue = KafkaDeadLetterQueue(connector, task, settings.dead_letters, producer, admin, self._consumers)
        await queue.start()
        return queue

    def dead_letters(self, connector: str, settings: KafkaSettings) -> AsyncIterator[Sequence[Record]]:
        """Read the connector's dead letter topic up to its current end. Raises ConfigError, Retriable or Fatal.

        The connector's consumer properties are used, unless its producer writes to other brokers.
        """
        consumer = connection_arguments(consumer_settings(self._properties, connector, 0, settings).arguments)
        producer = connection_arguments(producer_arguments(self._properties, connector, 0, settings))
        other_brokers = producer["bootstrap_servers"] != consumer["bootstrap_servers"]
        return read_topic(settings.dead_letters.topic, producer if other_brokers else consumer)

    async def close(self) -> None:
        """Stop the app and the thread; feeds must have been stopped. Idempotent."""
        await self._host.stop()
        self._consumers.close()
