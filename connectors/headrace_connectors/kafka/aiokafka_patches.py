"""Workarounds for defects of aiokafka 0.14, applied to its objects from outside.

The patched attributes are private to aiokafka, whose version is pinned; ``tests/unit/kafka/test_aiokafka_patches.py``
uses aiokafka's own classes, and fails when one of these attributes changes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import aiokafka
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import GroupCoordinatorNotAvailableError, KafkaError, NotCoordinatorForGroupError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.fetch import FetchRequest

UNHEARD_SECONDS = 180.0
"""The time without metadata after which a client is replaced; longer than the restart of a broker."""


async def position(consumer: aiokafka.AIOKafkaConsumer, partition: aiokafka.TopicPartition) -> int:
    """Return the next offset of ``partition``. Raises TimeoutError after the request timeout.

    aiokafka waits without a limit for its task that determines the offset, even if that task has failed.
    """
    async with asyncio.timeout(consumer._request_timeout_ms / 1000):
        found: int = await consumer.position(partition)
        return found


async def committed(
    consumer: aiokafka.AIOKafkaConsumer, partitions: Iterable[aiokafka.TopicPartition]
) -> Mapping[aiokafka.TopicPartition, tuple[int, str]]:
    """Return the committed offsets of the group, and their metadata; partitions without one are omitted.

    aiokafka's own method fetches one partition at a time and discards the metadata.
    """
    found = await consumer._coordinator.fetch_committed_offsets(list(partitions))
    return {each: (known.offset, known.metadata) for each, known in found.items() if known.offset >= 0}


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
        if isinstance(request, FetchRequest) and any(code for _, each in response.topics for _, code, *_ in each):
            await asyncio.sleep(backoff)
        return response

    client._metadata_update, client.send = paced_update, paced_send


def raise_group_errors(coordinator: GroupCoordinator) -> None:
    """Raise the group-level errors of OffsetFetch, so that ``coordinator`` retries.

    A broker that is not the coordinator any more, or still loads the group, returns a group-level error and no
    partitions (OffsetFetch version 2 and later). aiokafka reads only the partitions: it would treat all of them as
    never committed and apply ``auto.offset.reset``, which reads everything again or skips unread records.
    """
    send = coordinator._send_req

    async def checked(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and response.error_code:
            error = for_code(response.error_code)
            if error in (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError):
                coordinator.coordinator_dead()
            raise error(coordinator.group_id)
        return response

    coordinator._send_req = checked
