"""The dead letter queue: bad records, as they came, in a topic of their own (``connect.md`` section 9)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from headrace.core.converters.json_types import whole
from headrace.core.errors import Fatal, Retriable
from headrace.ports import ErrantRecord
from headrace_connectors.errant_headers import context_headers
from headrace_connectors.kafka.consumer_loop import ConsumerLoop
from headrace_connectors.kafka.errors import passes, translated
from headrace_connectors.kafka.settings import connection_arguments

TOPIC = "errors.deadletterqueue.topic.name"
REPLICATION = "errors.deadletterqueue.topic.replication.factor"
CONTEXT_HEADERS = "errors.deadletterqueue.context.headers.enable"

_NULL = object()
"""Stands for a null value until it is serialized: aiokafka refuses to send neither key nor value, Kafka takes both."""


def _serialized(value: object) -> object:
    return None if value is _NULL else value


class KafkaDeadLetterQueue:
    """``headrace.ports.DeadLetterQueue`` over one idempotent producer, which lives on the consumer thread."""

    def __init__(
        self, connector: str, task: int, config: Mapping[str, str], producer: Mapping[str, Any], loop: ConsumerLoop
    ) -> None:
        self._connector = connector
        self._task = task
        self._topic = config[TOPIC]
        self._replication = int(config.get(REPLICATION, "3"))
        self._with_context = config.get(CONTEXT_HEADERS, "false").lower() == "true"
        self._arguments = producer
        self._loop = loop
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Create the topic if it is missing, connect the producer. Raises Retriable or Fatal with Connect's text."""
        try:
            await self._loop.call(self._start())
        except (KafkaError, OSError) as error:
            kind = Retriable if passes(error) else Fatal
            raise kind(f"Could not initialize dead letter queue with topic={self._topic}: {error}") from error

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Write raw key, value, headers and timestamp; returns when all replicas have them. Raises Retriable."""
        try:
            await self._loop.call(self._report(errant))
        except KafkaError as error:
            raise translated(error, f"writing to the dead letter queue {self._topic}") from error

    async def close(self) -> None:
        """Let go of the connection. Idempotent."""
        await self._loop.call(self._close())

    async def _start(self) -> None:
        await _create_topic(self._arguments, self._topic, self._replication)
        self._producer = AIOKafkaProducer(**self._arguments, value_serializer=_serialized)
        try:
            await self._producer.start()
        except BaseException:  # a cancelled start must not leave it open either
            await self._close()
            raise

    async def _report(self, errant: Sequence[ErrantRecord]) -> None:
        if self._producer is None:
            raise Fatal("the dead letter queue was closed")
        sent = [
            await self._producer.send(
                self._topic,
                _NULL if each.record.value is None else whole(each.record.value),
                key=each.record.key,
                timestamp_ms=each.record.timestamp,
                headers=self._headers(each),
            )
            for each in errant
        ]
        await asyncio.gather(*sent)

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    def _headers(self, errant: ErrantRecord) -> list[tuple[str, bytes | None]]:
        added = context_headers(errant, self._connector, self._task) if self._with_context else []
        return [*errant.record.headers, *added]


async def _create_topic(arguments: Mapping[str, Any], topic: str, replication: int) -> None:
    """Create ``topic`` with one partition unless it exists."""
    admin = AIOKafkaAdminClient(**connection_arguments(arguments))
    try:
        await admin.start()
        if topic in await admin.list_topics():
            return
        answer = await admin.create_topics([NewTopic(topic, 1, replication)])
        for _, code, message in (entry[:3] for entry in answer.topic_errors):
            error = for_code(code)
            if code != 0 and error is not TopicAlreadyExistsError:
                raise error(message)
    finally:
        await admin.close()
