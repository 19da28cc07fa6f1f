"""What a worker opens at Kafka: one feed per task, all on one Faust app and one consumer thread."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ports import Feed
from headrace_connectors.kafka.agent import FaustHost
from headrace_connectors.kafka.consumer_loop import ConsumerLoop
from headrace_connectors.kafka.feed import KafkaFeed
from headrace_connectors.kafka.settings import consumer_settings


class KafkaFeeds:
    """The Kafka side of a worker; ``properties`` are its client properties (``bootstrap.servers``, ``consumer.*``)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._host = FaustHost("headrace")
        self._consumers = ConsumerLoop()

    async def start(self) -> None:
        """Start the Faust app on the running loop, and the consumer thread."""
        self._consumers.start()
        await self._host.start()

    def open(self, connector: str, task: int, config: Mapping[str, str]) -> Feed:
        """The feed of one task, not started yet. Raises ConfigError that names the property."""
        settings = consumer_settings(self._properties, connector, task, config)
        return KafkaFeed(f"{connector}-{task}", settings, self._host, self._consumers)

    async def close(self) -> None:
        """Stop the app and the thread; feeds must have been stopped. Idempotent."""
        await self._host.stop()
        self._consumers.close()
