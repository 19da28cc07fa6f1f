"""The config topic: a log that the leader writes and all workers read.

The leader's producer has the transactional id that Kafka Connect's leader uses, and that all workers of a cluster
share. Opening such a producer fences the one before: the brokers reject writes of a stale leader and abort its
transactions. Readers see only committed records, so that records of one transaction are visible together or not at all.
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
                raise Fenced(f"Topic {self._topic.name}: only the leader writes it, and this worker is not the leader")
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    written = await self._transact(producer, records)
            except (KafkaError, TimeoutError) as error:
                _take_errors(producer)
                await self._drop_producer()
                raise self._refused(error) from error
            except asyncio.CancelledError:  # the caller was cancelled; the producer cannot begin another transaction
                await self._drop_producer()
                raise
        await self._read_back({record.partition: record.offset + 1 for record in written})

    async def refresh(self) -> None:
        """Wait until the log has been read up to its current end. Raises Retriable."""
        consumer = self._consumer
        if consumer is None:
            raise Retriable(f"Topic {self._topic.name}: it is not open")
        try:
            ends = await consumer.end_offsets(sorted(consumer.assignment()))
        except KafkaError as error:
            raise translated(error, f"asking for the end of the topic {self._topic.name}") from error
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

    def _refused(self, error: BaseException) -> Exception:
        if isinstance(error, ProducerFenced | InvalidProducerEpoch):
            return Fenced(f"Topic {self._topic.name}: another worker is the leader now and writes it")
        if isinstance(error, TimeoutError):
            return Retriable(f"Topic {self._topic.name}: it could not be written within {_WRITE_SECONDS:g} s")
        return translated(error, f"writing to the topic {self._topic.name}")

    def _not_open(self, error: BaseException) -> Exception:
        if isinstance(error, TimeoutError):
            return Retriable(
                f"Topic {self._topic.name}: the brokers did not initialize the transactional producer "
                f"({self._transactional_id}) within {_WRITE_SECONDS:g} s; with fewer than three brokers, set "
                "transaction.state.log.replication.factor=1 and transaction.state.log.min.isr=1 on them"
            )
        return translated(error, f"opening the transactional producer {self._transactional_id}")


def _take_errors(producer: AIOKafkaProducer) -> None:
    """Retrieve the exceptions of unsent batches, which asyncio would otherwise log as errors: nobody awaits them.

    Being fenced is not an error. aiokafka has no public access to these batches; a contract test fails if it changes.
    """
    for batches in producer._message_accumulator._batches.values():
        for batch in batches:
            if batch._drain_waiter.done():
                batch._drain_waiter.exception()
