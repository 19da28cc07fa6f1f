"""The config topic: a log that one worker writes and all read.

The leader's producer has a transactional id that all workers of a cluster share, the one that Kafka Connect's leader
uses. Who opens it shuts out whoever had it before, by Kafka's own means: a stale leader's write is refused by the
brokers, and what it had begun is rolled back. Readers see committed records only, so records that are written together
are seen together or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

from headrace.core.model.errors import ConfigError, Fenced, Retriable
from headrace.ports import LogRecord
from headrace_connectors.kafka.errors import translated
from headrace_connectors.kafka.log import KafkaLog, LogTopic
from headrace_connectors.kafka.stopping import stopped

_TRANSACTION_MS = 10_000
_WRITE_SECONDS = 30.0


class KafkaLedLog(KafkaLog):
    """``headrace.ports.LedLog``. ``group`` is the cluster's ``group.id``."""

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
                await stopped(producer)
                raise self._not_open(error) from error
            except BaseException:
                await stopped(producer)
                raise
            self._producer = producer

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write the records in one transaction, and wait until they have been read back. Raises Fenced or Retriable."""
        async with self._writing:
            producer = self._producer
            if producer is None:
                raise Fenced(f"The topic {self._topic.name} is written by the leader, which this worker is not")
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    written = await self._transact(producer, records)
            except (KafkaError, TimeoutError) as error:
                _take_errors(producer)
                await self._drop_producer()
                raise self._refused(error) from error
            except asyncio.CancelledError:  # who asked waits no longer; this producer could not begin another one
                await self._drop_producer()
                raise
        await self._read_back({record.partition: record.offset + 1 for record in written})

    async def refresh(self) -> None:
        """Ask for the end and wait until it has been read. Raises Retriable."""
        consumer = self._consumer
        if consumer is None:
            raise Retriable(f"The topic {self._topic.name} is not open")
        try:
            ends = await consumer.end_offsets(sorted(consumer.assignment()))
        except KafkaError as error:
            raise translated(error, f"asking for the end of the topic {self._topic.name}") from error
        await self._read_back({partition.partition: end for partition, end in ends.items()})

    async def _connect(self) -> AIOKafkaConsumer:
        """Raises ConfigError for several partitions: a commit must not be read before the tasks that it counts."""
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
        """None before this worker leads."""

    async def _transact(self, producer: AIOKafkaProducer, records: Sequence[LogRecord]) -> list[Any]:
        """The commit sends what waits, and is where a fence shows. Raises KafkaError."""
        await producer.begin_transaction()
        sent = [await producer.send(self._topic.name, key=key.encode(), value=value) for key, value in records]
        deliveries = asyncio.gather(*sent, return_exceptions=True)
        await producer.commit_transaction()
        await deliveries
        return [delivery.result() for delivery in sent]

    def _refused(self, error: BaseException) -> Exception:
        if isinstance(error, ProducerFenced | InvalidProducerEpoch):
            return Fenced(f"Another worker leads now and writes the topic {self._topic.name}")
        if isinstance(error, TimeoutError):
            return Retriable(f"The topic {self._topic.name} could not be written within {_WRITE_SECONDS:g} s")
        return translated(error, f"writing to the topic {self._topic.name}")

    def _not_open(self, error: BaseException) -> Exception:
        if isinstance(error, TimeoutError):
            return Retriable(
                f"The brokers gave no transactional producer ({self._transactional_id}) within {_WRITE_SECONDS:g} s; "
                "with fewer than three of them set transaction.state.log.replication.factor=1 and "
                "transaction.state.log.min.isr=1 there"
            )
        return translated(error, f"opening the transactional producer {self._transactional_id}")


def _take_errors(producer: AIOKafkaProducer) -> None:
    """Of batches that never left: aiokafka fails a future of each that nobody awaits, which asyncio logs as an error.

    A fence is no error. The library has no public way to such a batch; the contract's test tells when this one is gone.
    """
    for batches in producer._message_accumulator._batches.values():
        for batch in batches:
            if batch._drain_waiter.done():
                batch._drain_waiter.exception()
