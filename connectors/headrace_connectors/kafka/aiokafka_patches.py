"""Workarounds for defects of aiokafka 0.14, applied to its objects from outside.

The patched attributes are private to aiokafka, whose version is pinned; ``tests/unit/kafka/test_aiokafka_patches.py``
uses aiokafka's own classes, and fails when one of these attributes changes.
``stop_client`` stops clients within a time limit and without leaks, in any state of their brokers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError, NotCoordinatorForGroupError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest

FETCHER_MS = 1_000
"""For ``consumer_timeout_ms``: how often a fetcher repeats its search for work, which every event starts as well.

The default is 200. Each search costs an idle worker about half a millisecond.
"""

UNHEARD_SECONDS = 180.0
"""The time without metadata after which a client is replaced; longer than the restart of a broker."""


async def position(consumer: aiokafka.AIOKafkaConsumer, partition: aiokafka.TopicPartition) -> int:
    """Return the next offset of ``partition``. Raises TimeoutError after the request timeout.

    aiokafka waits without a limit for its task that determines the offset, even if that task has failed.
    """
    async with asyncio.timeout(consumer._request_timeout_ms / 1000):
        offset: int = await consumer.position(partition)
        return offset


async def committed_offsets(
    consumer: aiokafka.AIOKafkaConsumer, partitions: Iterable[aiokafka.TopicPartition]
) -> Mapping[aiokafka.TopicPartition, tuple[int, str]]:
    """Return the committed offsets of the group, and their metadata; partitions without one are omitted.

    aiokafka's own method fetches one partition at a time and discards the metadata.
    """
    offsets = await consumer._coordinator.fetch_committed_offsets(list(partitions))
    return {partition: (offset.offset, offset.metadata) for partition, offset in offsets.items() if offset.offset >= 0}


def check_alive(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Raise KafkaError if a background task of ``consumer`` has ended.

    Without these tasks, the consumer fetches no records, or finds no brokers, leaders and topics any more, and its
    callers wait forever. aiokafka does not report it.
    """
    for doing, task in (
        ("fetching", consumer._fetcher.error_future),
        ("following brokers", consumer._client._sync_task),
    ):
        if task.done():
            raise KafkaError(f"the client has stopped {doing}")


def check_heard(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Raise KafkaError if ``consumer`` has not received metadata from any broker for a long time.

    aiokafka connects only to the last known addresses of brokers. If all have changed, a new consumer finds them by the
    configured addresses.
    """
    client = consumer._client
    unheard = time.time() - client.cluster._last_successful_refresh_ms / 1000
    if unheard > max(UNHEARD_SECONDS, 3 * client._metadata_max_age_ms / 1000):
        raise KafkaError(f"no broker that the client knows has answered for {unheard:.0f} s")


def refresh_all_topics(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Keep ``consumer`` refreshing all topics of its pattern.

    For a pattern, aiokafka refreshes the metadata of all topics. A request for offsets of an unknown partition, as of a
    deleted topic, adds that topic to the list of topics to refresh. Then aiokafka refreshes only this topic, and treats
    all others as deleted.
    """
    client = consumer._client
    client.add_topic = lambda topic: client.force_metadata_update()


def pace_requests(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Make ``consumer`` wait ``retry.backoff.ms`` before it repeats a failed metadata or fetch request.

    While a partition has no leader, aiokafka repeats metadata requests without a pause, for all topics of a pattern,
    and fetch requests for a partition that a broker rejects: each task sends thousands of requests per second to
    brokers that are already overloaded.
    """
    client = consumer._client
    update, send, backoff = client._metadata_update, client.send, client._retry_backoff
    next_update = 0.0

    async def paced_update(cluster: Any, topics: Any) -> Any:
        nonlocal next_update
        await asyncio.sleep(next_update - time.monotonic())
        next_update = time.monotonic() + backoff
        return await update(cluster, topics)

    async def paced_send(node: Any, request: Any, **group: Any) -> Any:
        response = await send(node, request, **group)
        if isinstance(request, FetchRequest) and any(
            code for _, partitions in response.topics for _, code, *_ in partitions
        ):
            await asyncio.sleep(backoff)
        return response

    client._metadata_update, client.send = paced_update, paced_send


_FETCHES = "fetches"  # aiokafka keeps a connection for each broker and group of requests; any name is a group


def separate_fetches(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Send the fetch requests of ``consumer`` over separate connections.

    A broker answers the requests of a connection in order, and holds a fetch for up to ``fetch.max.wait.ms``. aiokafka
    would send requests for metadata and offsets behind it, each of which would wait for half a second.
    """
    send = consumer._client.send

    async def send_separately(node: Any, request: Any, **group: Any) -> Any:
        if isinstance(request, FetchRequest):
            group = {"group": _FETCHES}
        return await send(node, request, **group)

    consumer._client.send = send_separately


def raise_group_errors(coordinator: GroupCoordinator) -> None:
    """Raise the group-level errors of OffsetFetch, so that ``coordinator`` retries.

    A broker that is not the coordinator any more, or still loads the group, returns a group-level error and no
    partitions (OffsetFetch version 2 and later). aiokafka reads only the partitions: it would treat all of them as
    never committed and apply ``auto.offset.reset``, which reads everything again or skips unread records.
    """
    send = coordinator._send_req

    async def send_checked(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and response.error_code:
            error = for_code(response.error_code)
            if error in (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError):
                coordinator.coordinator_dead()
            raise error(coordinator.group_id)
        return response

    coordinator._send_req = send_checked


log = logging.getLogger(__name__)

STOP_SECONDS = 10.0
_CANCELLATIONS = 20
_BETWEEN_SECONDS = 0.1


async def stop_client(client: AIOKafkaConsumer | AIOKafkaProducer, seconds: float = STOP_SECONDS) -> None:
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

    connections = client.client if isinstance(client, AIOKafkaProducer) else client._client
    tasks = [stopping, connections._sync_task]
    if isinstance(client, AIOKafkaProducer):
        tasks.append(client._sender.sender_task)
    else:
        names = ("_coordination_task", "_heartbeat_task", "_commit_refresh_task", "_reset_committed_task")
        tasks += (getattr(client._coordinator, name, None) for name in names)
        tasks += (getattr(client._fetcher, "_fetch_task", None), *getattr(client._fetcher, "_pending_tasks", ()))
    # A cancelled sender waits for its requests, which wait for the brokers, so tasks are cancelled until they end.
    for _ in range(_CANCELLATIONS):
        running = [task for task in tasks if task is not None and not task.done()]
        if not running:
            break
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_BETWEEN_SECONDS)

    if isinstance(client, AIOKafkaProducer):  # its ``stop`` waits in a separate task for unsent batches
        accumulator = client._message_accumulator
        for batch in (*chain.from_iterable(accumulator._batches.values()), *accumulator._pending_batches):
            batch.future.cancel()
    connections._sync_task = None  # its own close would raise the error of this task
    await connections.close()
