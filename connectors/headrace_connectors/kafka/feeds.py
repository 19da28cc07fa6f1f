"""Create the Kafka clients of a worker: one feed per task, all on one Faust app and one consumer thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from headrace.ports import DeadLetterQueue, Divide, Feed, Record
from headrace_connectors.kafka.agent import Body, FaustHost, TableAgent
from headrace_connectors.kafka.consumer_loop import ConsumerLoop
from headrace_connectors.kafka.dead_letter_queue import TOPIC, KafkaDeadLetterQueue
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


class KafkaFeedFactory:
    """The Kafka side of a worker; ``properties`` are its client properties (``bootstrap.servers``, ``consumer.*``)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Check the worker's properties without opening anything. Raises ConfigError, which names the property."""
        check_worker(properties)
        self._properties = dict(properties)
        self._host = FaustHost("headrace")
        self._consumers = ConsumerLoop()

    async def start(self) -> None:
        """Start the Faust app on the running loop, and the consumer thread."""
        self._consumers.start()
        await self._host.start()

    def check(self, connector: str, config: Mapping[str, str]) -> None:
        """Raise ConfigError, which names the property, for invalid client properties of the connector."""
        consumer_settings(self._properties, connector, 0, config)
        group_arguments(self._properties, connector, config)
        if config.get(TOPIC):
            producer_arguments(self._properties, connector, 0, config)

    def open(self, connector: str, task: int, config: Mapping[str, str], divide: Divide | None = None) -> Feed:
        """Create the feed of one task; the caller starts it. Raises ConfigError, which names the property.

        ``divide`` converts the bytes of the records' values, on the consumer thread.
        """
        settings = consumer_settings(self._properties, connector, task, config)
        if divide is not None:
            settings = replace(settings, arguments={**settings.arguments, "value_deserializer": divide})
        return KafkaFeed(settings, self._consumers)

    def agent(self, name: str, body: Body) -> TableAgent:
        """The agent of a table, hosted by Faust; not started yet."""
        return self._host.agent(name, body)

    def compacted(self, connector: str, task: int, config: Mapping[str, str]) -> CompactedTopics:
        """Return an object that checks whether a topic of the connector is compacted. Raises ConfigError."""
        settings = consumer_settings(self._properties, connector, task, config)
        return CompactedTopics(settings.arguments, self._consumers)

    async def dead_letter_queue(self, connector: str, task: int, config: Mapping[str, str]) -> DeadLetterQueue | None:
        """Open the task's dead letter queue; None without one. Raises ConfigError, Retriable or Fatal."""
        if not config.get(TOPIC):
            return None
        producer = producer_arguments(self._properties, connector, task, config)
        admin = admin_arguments(self._properties, config, f"connector-dlq-adminclient-{connector}-{task}")
        queue = KafkaDeadLetterQueue(connector, task, config, producer, admin, self._consumers)
        await queue.start()
        return queue

    def dead_letters(self, connector: str, config: Mapping[str, str]) -> AsyncIterator[Sequence[Record]]:
        """Read the connector's dead letter topic up to its current end. Raises ConfigError, Retriable or Fatal.

        The connector's consumer properties are used, unless its producer writes to other brokers.
        """
        consumer = connection_arguments(consumer_settings(self._properties, connector, 0, config).arguments)
        producer = connection_arguments(producer_arguments(self._properties, connector, 0, config))
        other_brokers = producer["bootstrap_servers"] != consumer["bootstrap_servers"]
        return read_topic(config[TOPIC], producer if other_brokers else consumer)

    async def close(self) -> None:
        """Stop the app and the thread; feeds must have been stopped. Idempotent."""
        await self._host.stop()
        self._consumers.close()
