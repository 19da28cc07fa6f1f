"""Stop aiokafka's clients within a time limit and without leaks, in any state of their brokers."""

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
    """Stop ``client``, and cancel what its own ``stop`` leaves running after ``seconds`` or after an error.

    A consumer's ``stop`` raises the CancelledError of a fetch that waits for its broker, or the error of a failed one,
    and leaves its connections open. A producer's ``stop`` waits for brokers that do not answer; if it were only
    abandoned, it would write its records when they answer again, long after the caller has got an error.
    """
    stopping = asyncio.ensure_future(client.stop())  # in a separate task, so that its cancellation is not the caller's
    await asyncio.wait({stopping}, timeout=seconds)
    if stopping.done() and not stopping.cancelled():
        if (error := stopping.exception()) is None:
            return
        log.warning("Kafka client: it did not stop cleanly: %s", error)
    await _ended([stopping, *_background(client)])
    if isinstance(client, AIOKafkaProducer):  # its ``stop`` waits in a separate task for unsent batches
        accumulator = client._message_accumulator
        for batch in (*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches):
            batch.future.cancel()
    connections = _connections(client)
    connections._sync_task = None  # its own close would raise the error of this task
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


async def _ended(tasks: Collection[asyncio.Task[Any] | None]) -> None:
    """Cancel tasks until they end: a cancelled sender waits for its requests, which wait for the brokers."""
    for _ in range(_CANCELLATIONS):
        running = [task for task in tasks if task is not None and not task.done()]
        if not running:
            return
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_BETWEEN_SECONDS)
