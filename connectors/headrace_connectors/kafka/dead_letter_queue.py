"""The dead letter queue: bad records, unchanged, in a separate topic (``connect.md`` section 9), and reading it again.

Tests: ``tests/unit/kafka/test_dead_letters.py``, ``tests/contracts/dead_letter_queue_suite.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import InvalidReplicationFactorError, KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from headrace.config.framework import DeadLetterSettings
from headrace.core.decode.json_converter import document_bytes
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.ports import ErrantRecord, QueuedRecords
from headrace.runtime.threads import LoopThread
from headrace_connectors.errant_headers import context_headers
from headrace_connectors.kafka.aiokafka_patches import position, stop_client
from headrace_connectors.kafka.errors import headrace_error, is_transient
from headrace_connectors.kafka.topics import admin_client, create_topic

TOPIC = "errors.deadletterqueue.topic.name"
REPLICATION = "errors.deadletterqueue.topic.replication.factor"
CONTEXT_HEADERS = "errors.deadletterqueue.context.headers.enable"

_NULL = object()
"""Represents a null value until it is serialized: aiokafka rejects records without key and value, Kafka does not."""


_MAX_REQUEST_SIZE = 1024 * 1024
"""aiokafka's default of ``max.request.size``."""
_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
"""A broker's errors for a batch larger than ``max.message.bytes`` or a segment."""


def _serialize(value: Any) -> Any:
    return None if value is _NULL else value


class KafkaDeadLetterQueue:
    """``headrace.ports.DeadLetterQueue`` with an idempotent producer on the consumer thread."""

    def __init__(
        self,
        connector: str,
        task: int,
        settings: DeadLetterSettings,
        producer: Mapping[str, Any],
        admin: Mapping[str, Any],
        loop: LoopThread,
    ) -> None:
        """``producer`` and ``admin`` are aiokafka's arguments for its two clients."""
        self._connector = connector
        self._task = task
        self._topic = settings.topic
        self._replication = settings.replication
        self._with_context = settings.context_headers
        self._arguments = producer
        self._admin = admin
        self._loop = loop
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Create the topic if it is missing, and connect the producer. Raises Retriable or Fatal."""
        try:
            await self._loop.call(self._start())
        except (KafkaError, OSError) as error:
            error_class = Retriable if is_transient(error) else Fatal
            text = f"Could not initialize dead letter queue with topic={self._topic}: {error}"
            if isinstance(error, InvalidReplicationFactorError):
                text += (
                    f"; {REPLICATION} is {self._replication}, which is more than the cluster has brokers: set it to "
                    "their number at most (1 with one broker), or create the topic"
                )
            raise error_class(text) from error

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Write raw key, value, headers and timestamp. Return when all replicas have them.

        Raises Retriable, and Fatal for a record that is too large for the producer or the topic. If it is too large for
        the producer, no record is sent.
        """
        try:
            await self._loop.call(self._report(errant))
        except KafkaError as error:
            raise headrace_error(error, f"writing to the dead letter queue {self._topic}") from error

    async def close(self) -> None:
        await self._loop.call(self._close())

    async def _start(self) -> None:
        async with admin_client(self._admin) as admin:
            if self._topic not in await admin.list_topics():
                await create_topic(admin, NewTopic(self._topic, 1, self._replication))
        self._producer = AIOKafkaProducer(**self._arguments, value_serializer=_serialize)
        try:
            await self._producer.start()
        except BaseException:  # a cancelled start must not leave it open either
            await self._close()
            raise

    async def _report(self, errant: Sequence[ErrantRecord]) -> None:
        if self._producer is None:
            raise Fatal(f"dead letter queue {self._topic}: it is closed")
        limit = self._arguments.get("max_request_size", _MAX_REQUEST_SIZE)
        letters: list[tuple[ErrantRecord, dict[str, Any]]] = []  # with the arguments of ``AIOKafkaProducer.send``
        for errant_record in errant:
            record = errant_record.record
            added = context_headers(errant_record, self._connector, self._task) if self._with_context else []
            letter = {
                "key": record.key,
                "value": _NULL if record.value is None else document_bytes(record.value),
                "timestamp_ms": record.timestamp,
                "headers": [*record.headers, *added],
            }
            if _size(letter) > limit:
                raise self._too_large(errant_record, letter)
            letters.append((errant_record, letter))
        sent = [await self._producer.send(self._topic, **letter) for _, letter in letters]
        outcomes = await asyncio.gather(*sent, return_exceptions=True)
        if any(isinstance(outcome, _TOO_LARGE) for outcome in outcomes):  # a broker rejects a batch, not one letter
            raise self._too_large(*max(letters, key=lambda pair: _size(pair[1])))
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _too_large(self, errant: ErrantRecord, letter: Mapping[str, Any]) -> Fatal:
        record = errant.record
        return Fatal(
            f"the dead letter of {record.topic}-{record.partition} at offset {record.offset} is too large for the "
            f"queue {self._topic} ({_size(letter)} bytes): raise producer.override.max.request.size and the topic's "
            "max.message.bytes, then restart the task"
        )

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_client(producer)


def _size(letter: Mapping[str, Any]) -> int:
    """Return the size as the producer computes it."""
    value = _serialize(letter["value"])
    size: int = DefaultRecordBatchBuilder.estimate_size_in_bytes(letter["key"], value, letter["headers"])
    return size


_AT_ONCE = 5_000
_POLL_MS = 1_000


async def read_topic(
    topic: str, arguments: Mapping[str, Any], newest: int | None
) -> AsyncGenerator[QueuedRecords, None]:
    """Return the records in groups of some thousands. ``arguments`` are aiokafka's. Raises HeadraceError.

    ``newest`` is as of ``ReplayFeeds.dead_letters``.
    """
    consumer = AIOKafkaConsumer(**arguments, enable_auto_commit=False, isolation_level="read_committed")
    try:
        await consumer.start()
        # The consumer's own metadata are empty until it reads, so its ``partitions_for_topic`` returns nothing.
        indexes = (await consumer._client.fetch_all_metadata()).partitions_for_topic(topic)
        if indexes is None:
            option = "errors.deadletterqueue.topic.name"
            raise ConfigError(f"{option}: the dead letter topic {topic} does not exist; correct the name", option)
        partitions = [TopicPartition(topic, index) for index in sorted(indexes)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        begins, skipped = await consumer.beginning_offsets(partitions), 0
        for partition in partitions:
            begin = begins[partition]
            if newest is not None:
                begin = max(begin, ends[partition] - newest // len(partitions))
            consumer.seek(partition, begin)
            skipped += begin - begins[partition]
        while [partition for partition in partitions if await position(consumer, partition) < ends[partition]]:
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_AT_ONCE)
            records = [record for batch in batches.values() for record in batch]
            if records:
                yield QueuedRecords(records, skipped)
    except (KafkaError, OSError) as error:
        raise headrace_error(error, f"reading the dead letter topic {topic}") from error
    finally:
        await stop_client(consumer)
