"""aiokafka's clients, stopped within a bound and with nothing left behind, whatever state their brokers are in."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.client import AIOKafkaClient

log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
_CANCELLATIONS = 20
_BETWEEN_SECONDS = 0.1


async def stopped(client: AIOKafkaConsumer | AIOKafkaProducer, seconds: float = STOP_SECONDS) -> None:
    """Stop ``client``; what its own ``stop`` leaves running after ``seconds``, or after an error, is ended here.

    A consumer ends with the CancelledError of a fetch that waits for its broker, or with the error of one that died,
    and leaves its connections open. A producer waits for brokers that are gone; merely given up, it would write what it
    holds when they come back, long after its caller was told that it had failed.
    """
    stopping = asyncio.ensure_future(client.stop())  # in a task of its own, its cancellation is not taken for ours
    await asyncio.wait({stopping}, timeout=seconds)
    if stopping.done() and not stopping.cancelled():
        if (error := stopping.exception()) is None:
            return
        log.warning("A Kafka client did not stop cleanly: %s", error)
    await _ended([stopping, *_background(client)])
    if isinstance(client, AIOKafkaProducer):
        _give_up(client)
    connections = _connections(client)
    connections._sync_task = None  # its own close would raise what that task ended with
    await connections.close()


def _connections(client: AIOKafkaConsumer | AIOKafkaProducer) -> AIOKafkaClient:
    return client.client if isinstance(client, AIOKafkaProducer) else client._client


def _background(client: AIOKafkaConsumer | AIOKafkaProducer) -> Iterator[asyncio.Task[Any] | None]:
    yield _connections(client)._sync_task
    if isinstance(client, AIOKafkaProducer):
        yield client._sender.sender_task
        return
    for name in ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task"):
        yield getattr(client._coordinator, name, None)
    yield getattr(client._fetcher, "_fetch_task", None)
    yield from getattr(client._fetcher, "_pending_tasks", ())


def _give_up(producer: AIOKafkaProducer) -> None:
    """Its ``stop`` waits in a task of its own for what it still holds."""
    accumulator = producer._message_accumulator
    for batch in (*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches):
        batch.future.cancel()


async def _ended(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    """Cancelled until they end: a sender that is cancelled waits for its requests, and those for the brokers."""
    for _ in range(_CANCELLATIONS):
        running = [task for task in tasks if task is not None and not task.done()]
        if not running:
            return
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_BETWEEN_SECONDS)
