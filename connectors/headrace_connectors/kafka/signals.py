"""The signal topic of a Debezium connector: the key of a record is ``topic.prefix``, its value the signal in JSON.

Debezium requires a topic of one partition. The topic is read from its beginning, because it has few records.

Tests: ``tests/contracts/test_signal_channels.py``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.resnapshot.signals import PREFIX, Signal
from headrace_connectors.kafka.aiokafka_patches import position, stop_client
from headrace_connectors.kafka.errors import headrace_error
from headrace_connectors.kafka.topics import admin_client

_SECONDS = 30.0
_POLL_MS = 200

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine on the caller's event loop, and returns its result."""


class KafkaSignalTopic:
    """``headrace.ports.SignalChannel``. ``arguments`` are aiokafka's, and each call opens a connection."""

    def __init__(self, topic: str, key: str, arguments: Mapping[str, Any], run: Run) -> None:
        self._topic, self._key = topic, key
        self._arguments = dict(arguments)
        self._run = run

    def signals(self) -> Sequence[Signal]:
        records: Sequence[tuple[bytes | None, bytes | None]] = self._run(self._within_time(self._read(), "reading"))
        signals = [_signal(value) for key, value in records if key == self._key.encode()]
        return [signal for signal in signals if signal is not None and signal.id.startswith(PREFIX)]

    def send(self, signal: Signal) -> None:
        document = {"id": signal.id, "type": signal.type, "data": dict(signal.data)}
        value = json.dumps(document, ensure_ascii=False).encode()
        self._run(self._within_time(self._send(value), "writing to"))

    async def _within_time(self, request: Coroutine[Any, Any, Any], what: str) -> Any:
        try:
            async with asyncio.timeout(_SECONDS):
                return await request
        except TimeoutError as error:
            raise Retriable(f"signal topic {self._topic}: no answer within {_SECONDS:g} s") from error
        except (KafkaError, OSError) as error:
            raise headrace_error(error, f"{what} the signal topic {self._topic}") from error

    async def _check(self) -> None:
        """Raise ConfigError if the topic does not exist here: a producer might create it in the wrong cluster."""
        async with admin_client(self._arguments) as admin:
            if self._topic not in await admin.list_topics():
                raise ConfigError(
                    f"signal topic {self._topic}: does not exist on the connector's brokers; create it with one "
                    "partition where signal.kafka.bootstrap.servers of the source connector says, which have to be the "
                    "brokers that the sink connector reads"
                )

    async def _read(self) -> Sequence[tuple[bytes | None, bytes | None]]:
        await self._check()
        consumer = AIOKafkaConsumer(**self._arguments, isolation_level="read_committed", enable_auto_commit=False)
        partition, records = TopicPartition(self._topic, 0), []
        try:
            await consumer.start()
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            end = (await consumer.end_offsets([partition]))[partition]
            while await position(consumer, partition) < end:
                for batch in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                    records += [(record.key, record.value) for record in batch]
        finally:
            await stop_client(consumer)
        return records

    async def _send(self, value: bytes) -> None:
        await self._check()
        producer = AIOKafkaProducer(**self._arguments, acks="all", enable_idempotence=True)
        try:
            await producer.start()
            await producer.send_and_wait(self._topic, key=self._key.encode(), value=value, partition=0)
        finally:
            await stop_client(producer)


def _signal(value: bytes | None) -> Signal | None:
    """Return the signal of a record; None if it is none."""
    try:
        document = json.loads(value or b"")
        signal = Signal(document["id"], document["type"], document.get("data") or {})
    except (ValueError, KeyError, TypeError):
        return None
    return signal if isinstance(signal.id, str) and isinstance(signal.data, dict) else None
