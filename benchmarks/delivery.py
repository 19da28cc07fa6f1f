"""Deliver change events to Kafka as Debezium does.

Debezium gives its changes to Kafka Connect every ``poll.interval.ms``, 500 by default, and the Java producer sends
those of all partitions of a broker in one request. librdkafka sends one request for each partition: with 400 changes a
second in 200 tables that costs the broker half a core, and each of its answers to a consumer contains one record.
"""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaProducer

POLL_SECONDS = 0.5
"""Debezium's default of ``poll.interval.ms``."""


class Delivery:
    """A queue of records, and the producer that sends them."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._waiting: list[tuple[str, bytes, bytes]] = []
        self._next_poll = 0.0
        self._runner = asyncio.Runner()
        self._producer: AIOKafkaProducer | None = None
        self._topics: set[str] = set()

    def put(self, topic: str, key: bytes, value: bytes) -> None:
        """Add a record to the queue."""
        self._waiting.append((topic, key, value))

    def poll(self) -> None:
        """Send what waits if the interval is over, and return when the broker has it."""
        if time.monotonic() >= self._next_poll:
            self._next_poll = time.monotonic() + POLL_SECONDS
            self.flush()

    def flush(self) -> None:
        """Send what waits, and return when the broker has it."""
        if self._waiting:
            self._runner.run(self._send())

    def close(self) -> None:
        """Close the producer, without what waits. Idempotent."""
        if self._producer is not None:
            self._runner.run(self._producer.stop())
            self._producer = None
        self._runner.close()

    async def _send(self) -> None:
        if self._producer is None:
            self._producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap_servers, acks="all")
            await self._producer.start()
        records, self._waiting = self._waiting, []
        if new := {topic for topic, _, _ in records} - self._topics:
            self._topics |= new
            await self._producer.client.set_topics(self._topics)  # in one request, not one for each of them
        sent = [await self._producer.send(topic, value, key) for topic, key, value in records]
        await asyncio.gather(*sent)
