"""A compacted topic as a keyed log, like Kafka Connect's ``KafkaBasedLog``: statuses, and the fenced config topic.

A log has no consumer group: every worker reads all partitions from the beginning. A write returns when it has been read
back, so that the caller sees its own change.

Only the leader writes the config topic. Its producer has the transactional id that Kafka Connect's leader uses, and
that all workers of a cluster share. Opening such a producer fences the one before: the brokers reject writes of a stale
leader and abort its transactions. Readers see only committed records, so that records of one transaction are visible
together or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from headrace.core.model.errors import ConfigError, Fenced, Retriable
from headrace.ports import LogRecord
from headrace_connectors.kafka.aiokafka_patches import (
    FETCHER_MS,
    check_alive,
    check_heard,
    pace_requests,
    position,
    separate_fetches,
    stop_client,
)
from headrace_connectors.kafka.errors import headrace_error, is_transient
from headrace_connectors.kafka.topics import admin_client, create_topic

log = logging.getLogger(__name__)

_REQUEST_MS = 15_000
_READ_BACK_SECONDS = 30.0
_WRITE_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 5.0
_CLEANUP = "cleanup.policy"
_POLL_MS = 1_000
_RECORDS_PER_TURN = 500
"""Records that are applied without giving other work of the event loop a turn."""

Applied = Callable[[str, bytes | None], None]


@dataclass(frozen=True, slots=True)
class LogTopic:
    """A storage topic. ``partitions``, ``replication`` (-1: the broker's default) and ``settings`` apply when created.

    ``option`` is the worker's option with the topic's name, for messages.
    """

    name: str
    option: str
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)


class KafkaLog:
    """``headrace.ports.CompactedLog`` on a Kafka topic. ``arguments`` are aiokafka's, for every client."""

    def __init__(self, topic: LogTopic, arguments: Mapping[str, Any]) -> None:
        self._topic = topic
        self._arguments = {"request_timeout_ms": _REQUEST_MS, **arguments}
        self._read: dict[int, int] = {}
        self._progress = asyncio.Condition()
        self._consumer: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def start(self, applied: Applied) -> None:
        """Create the topic if it is missing, read it to its end, then follow it. Raises ConfigError or Retriable."""
        try:
            await ensure_topic(self._topic, self._arguments)
            consumer = await self._connect()
            partitions = sorted(consumer.assignment())  # all partitions: without a group, none are assigned to others
            await consumer.seek_to_beginning(*partitions)
            ends = await consumer.end_offsets(partitions)
            for partition in partitions:
                while await position(consumer, partition) < ends[partition]:
                    await self._read_some(consumer, applied)
            await self._prepare_to_write()
        except (KafkaError, OSError) as error:
            await self.close()
            raise headrace_error(error, f"reading the topic {self._topic.name}") from error
        except BaseException:
            await self.close()
            raise
        self._reader = asyncio.create_task(self._follow(applied), name=f"log-{self._topic.name}")

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write the records in order and wait until they have been read back. Raises Retriable."""
        if self._reader is None:
            raise Retriable(f"Topic {self._topic.name}: the log is not open")
        name = self._topic.name
        async with self._writing:
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    producer = self._producer or await self._open_producer()
                    deliveries = [await producer.send(name, key=key.encode(), value=value) for key, value in records]
                    await asyncio.gather(*deliveries, return_exceptions=True)
                    ends = {(sent := delivery.result()).partition: sent.offset + 1 for delivery in deliveries}
            except (KafkaError, TimeoutError) as error:
                await self._drop_producer()
                if isinstance(error, TimeoutError):  # the producer itself retries forever, at the last known addresses
                    raise Retriable(f"Topic {name}: could not be written within {_WRITE_SECONDS:g} s") from error
                raise headrace_error(error, f"writing to the topic {name}") from error
        await self._read_back(ends)

    def position(self) -> int:
        return self._read.get(0, 0)

    async def close(self) -> None:
        """Stop reading and close the connections. Idempotent."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        await self._drop_producer()
        await self._drop_consumer()

    async def _connect(self) -> AIOKafkaConsumer:
        self._consumer = AIOKafkaConsumer(
            self._topic.name,
            **self._arguments,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            consumer_timeout_ms=FETCHER_MS,
        )
        separate_fetches(self._consumer)
        pace_requests(self._consumer)
        await self._consumer.start()
        # A subscription would restart whenever the brokers temporarily do not list the topic.
        partitions = list(self._consumer.assignment())
        self._consumer.unsubscribe()
        self._consumer.assign(partitions)
        return self._consumer

    async def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_client(consumer, _STOP_SECONDS)

    async def _prepare_to_write(self) -> None:
        await self._open_producer()

    async def _open_producer(self) -> AIOKafkaProducer:
        self._producer = AIOKafkaProducer(**self._arguments, acks="all", enable_idempotence=True)
        await self._producer.start()
        return self._producer

    async def _drop_producer(self) -> None:
        """Stop the producer. After an error it is unusable: it counts rejected records, and brokers reject the gap."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_client(producer, _STOP_SECONDS)

    async def _follow(self, applied: Applied) -> None:
        """Read until cancelled. A failed consumer is replaced, because it has skipped records of other partitions."""
        while True:
            try:
                if self._consumer is None:
                    consumer = await self._connect()
                    for partition in consumer.assignment():
                        consumer.seek(partition, self._read.get(partition.partition, 0))
                await self._read_some(self._consumer, applied)
            except Exception as error:  # reading must continue after any error
                log.warning("Topic %s: reading failed and is retried: %s", self._topic.name, type(error).__name__)
                await self._drop_consumer()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _read_some(self, consumer: AIOKafkaConsumer, applied: Applied) -> None:
        check_alive(consumer)
        check_heard(consumer)
        batches = await consumer.getmany(timeout_ms=_POLL_MS)
        for count, record in enumerate(chain.from_iterable(batches.values()), 1):
            if record.key is not None:
                applied(record.key.decode(errors="replace"), record.value)
            if count % _RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)
        for partition in consumer.assignment():  # the position also passes transaction markers
            self._read[partition.partition] = await position(consumer, partition)
        async with self._progress:
            self._progress.notify_all()

    async def _read_back(self, ends: Mapping[int, int]) -> None:
        def caught_up() -> bool:
            return all(self._read.get(partition, 0) >= end for partition, end in ends.items())

        try:
            async with asyncio.timeout(_READ_BACK_SECONDS), self._progress:
                await self._progress.wait_for(caught_up)
        except TimeoutError as error:
            raise Retriable(
                f"Topic {self._topic.name}: could not be read back within {_READ_BACK_SECONDS:g} s"
            ) from error


async def ensure_topic(topic: LogTopic, arguments: Mapping[str, Any]) -> None:
    """Create the topic, or check that the existing one is compacted. Raises ConfigError, KafkaError and OSError."""
    async with admin_client(arguments) as admin:
        if topic.name in await admin.list_topics():
            # A topic that deletes by age would lose connectors. Connect rejects it as well.
            [response] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic.name)])
            for resource in response.resources:
                policy = {entry[0]: entry[1] for entry in resource[4]}.get(_CLEANUP, "compact")
                if policy != "compact":
                    raise ConfigError(
                        f"Topic {topic.name}: {_CLEANUP}={policy} would delete records of connectors; set "
                        f"{_CLEANUP}=compact on it, or name another topic in {topic.option}",
                        topic.option,
                    )
            return
        settings = {**topic.settings, _CLEANUP: "compact"}
        try:
            await create_topic(admin, NewTopic(topic.name, topic.partitions, topic.replication, topic_configs=settings))
        except KafkaError as error:
            if is_transient(error):
                raise
            raise ConfigError(
                f"Topic {topic.name}: cannot be created: {error}; with fewer brokers than replicas, set "
                f"{topic.option.replace('.topic', '.replication.factor')}=1",
                topic.option,
            ) from error


_TRANSACTION_MS = 10_000


class KafkaFencedLog(KafkaLog):
    """``headrace.ports.FencedLog``. ``group`` is the cluster's ``group.id``."""

    def __init__(self, topic: LogTopic, arguments: Mapping[str, Any], group: str) -> None:
        super().__init__(topic, arguments)
        self._transactional_id = f"connect-cluster-{group}"

    async def lead(self) -> None:
        """Open the producer that fences the one before. Raises Retriable, ConfigError or Fatal."""
        async with self._writing:
            await self._drop_producer()
            producer = AIOKafkaProducer(
                **self._arguments,
                acks="all",
                transactional_id=self._transactional_id,
                transaction_timeout_ms=_TRANSACTION_MS,
            )
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await producer.start()
            except (KafkaError, TimeoutError) as error:
                await stop_client(producer)
                if isinstance(error, TimeoutError):
                    raise Retriable(
                        f"Topic {self._topic.name}: the brokers did not initialize the transactional producer "
                        f"({self._transactional_id}) within {_WRITE_SECONDS:g} s; with fewer than three brokers, set "
                        "transaction.state.log.replication.factor=1 and transaction.state.log.min.isr=1 on them"
                    ) from error
                raise headrace_error(error, f"opening the transactional producer {self._transactional_id}") from error
            except BaseException:
                await stop_client(producer)
                raise
            self._producer = producer

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write the records in one transaction, and wait until they have been read back. Raises Fenced or Retriable."""
        name = self._topic.name
        async with self._writing:
            producer = self._producer
            if producer is None:
                raise Fenced(f"Topic {name}: only the leader writes it, and this worker is not the leader")
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    sent_records = await self._transact(producer, records)
            except (KafkaError, TimeoutError) as error:
                # asyncio would log the exceptions of unsent batches as errors, because nobody awaits them; being fenced
                # is no error. aiokafka has no public access to these batches: a contract test fails if it changes.
                for batch in chain.from_iterable(producer._message_accumulator._batches.values()):
                    if batch._drain_waiter.done():
                        batch._drain_waiter.exception()
                await self._drop_producer()
                if isinstance(error, ProducerFenced | InvalidProducerEpoch):
                    raise Fenced(f"Topic {name}: another worker is the leader now and writes it") from error
                if isinstance(error, TimeoutError):
                    raise Retriable(f"Topic {name}: it could not be written within {_WRITE_SECONDS:g} s") from error
                raise headrace_error(error, f"writing to the topic {name}") from error
            except asyncio.CancelledError:  # the caller was cancelled; the producer cannot begin another transaction
                await self._drop_producer()
                raise
        await self._read_back({record.partition: record.offset + 1 for record in sent_records})

    async def refresh(self) -> None:
        """Wait until the log has been read up to its current end. Raises Retriable."""
        consumer = self._consumer
        if consumer is None:
            raise Retriable(f"Topic {self._topic.name}: it is not open")
        try:
            ends = await consumer.end_offsets(sorted(consumer.assignment()))
        except KafkaError as error:
            raise headrace_error(error, f"asking for the end of the topic {self._topic.name}") from error
        await self._read_back({partition.partition: end for partition, end in ends.items()})

    async def _connect(self) -> AIOKafkaConsumer:
        """Connect. Raises ConfigError for several partitions: a commit record must be read after its task records."""
        consumer = await super()._connect()
        partitions = len(consumer.assignment())
        if partitions > 1:
            name, option = self._topic.name, self._topic.option
            raise ConfigError(
                f"Topic '{name}' supplied via the '{option}' property is required to have a single partition in order "
                f"to guarantee consistency of connector configurations, but found {partitions} partitions. Make one "
                f"with a single partition and cleanup.policy=compact, and name it in {option}",
                option,
            )
        return consumer

    async def _prepare_to_write(self) -> None:
        """Open no producer before this worker is the leader."""

    async def _transact(self, producer: AIOKafkaProducer, records: Sequence[LogRecord]) -> list[Any]:
        """Write the records in one transaction; its commit fails if another leader has fenced it. Raises KafkaError."""
        await producer.begin_transaction()
        sent = [await producer.send(self._topic.name, key=key.encode(), value=value) for key, value in records]
        deliveries = asyncio.gather(*sent, return_exceptions=True)
        await producer.commit_transaction()
        await deliveries
        return [delivery.result() for delivery in sent]
