"""What aiokafka 0.14 does that a task must not suffer, mended from outside.

The seams are private to aiokafka, whose version is pinned; ``tests/unit/kafka/test_seams.py`` drives its own classes
through them, and fails when one moves.
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
"""Longer than a broker takes to restart."""


async def position(consumer: aiokafka.AIOKafkaConsumer, partition: aiokafka.TopicPartition) -> int:
    """The next offset of ``partition``. Raises TimeoutError after a request's time.

    aiokafka waits without end for the task that looks for it, which may have died meanwhile.
    """
    async with asyncio.timeout(consumer._request_timeout_ms / 1000):
        found: int = await consumer.position(partition)
        return found


async def committed(
    consumer: aiokafka.AIOKafkaConsumer, partitions: Iterable[aiokafka.TopicPartition]
) -> Mapping[aiokafka.TopicPartition, tuple[int, str]]:
    """The offsets that the group has committed, and their metadata; without partitions that have none.

    aiokafka's own call asks for one partition at a time and drops the metadata.
    """
    found = await consumer._coordinator.fetch_committed_offsets(list(partitions))
    return {each: (known.offset, known.metadata) for each, known in found.items() if known.offset >= 0}


def check_alive(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Raise KafkaError when a task of ``consumer`` has ended that should never end.

    Without the one nothing is fetched, without the other no broker, leader or topic is found any more, and whoever
    waits for that waits for good. aiokafka tells nobody.
    """
    for doing, task in (
        ("fetching", consumer._fetcher.error_future),
        ("following brokers", consumer._client._sync_task),
    ):
        if task.done():
            raise KafkaError(f"the client has stopped {doing}")


def check_heard(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Raise KafkaError when no broker has told ``consumer`` metadata for long.

    aiokafka looks for brokers only where it has seen them. When they have all moved, a new consumer finds them by the
    configured addresses.
    """
    client = consumer._client
    unheard = time.time() - client.cluster._last_successful_refresh_ms / 1000
    if unheard > max(UNHEARD_SECONDS, 3 * client._metadata_max_age_ms / 1000):
        raise KafkaError(f"no broker that the client knows has answered for {unheard:.0f} s")


def refresh_all_topics(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Let ``consumer`` see the topics of its pattern come and go, also after it was asked about one that is deleted.

    aiokafka refreshes all topics for a pattern. Asked for offsets of a partition that it does not know, by us or by its
    own search for a position, it adds that topic to what it refreshes: then it refreshes that one alone, takes every
    other for deleted and never looks again.
    """
    client = consumer._client
    client.add_topic = lambda topic: client.force_metadata_update()


def keep_pace(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Let ``consumer`` wait ``retry.backoff.ms`` before it asks again for what brokers cannot give just now.

    While a partition has no leader, aiokafka asks for metadata as fast as they are answered, for a pattern those of all
    topics, and where a broker refuses a partition, for that partition: thousands of times a second, by every task, of
    brokers that are in trouble already.
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


def heed_group_errors(coordinator: GroupCoordinator) -> None:
    """Let ``coordinator`` ask again when a broker cannot tell the group's offsets.

    A broker that is not the coordinator any more, or still loads the group, says so for the group and lists no
    partition (OffsetFetch from version 2 on). aiokafka reads only the partitions: it takes all of them for never
    committed and goes to ``auto.offset.reset``, to the beginning of everything, or past records that nobody has read.
    """
    send = coordinator._send_req

    async def heeding(request: Any) -> Any:
        response = await send(request)
        if isinstance(request, OffsetFetchRequest) and response.error_code:
            error = for_code(response.error_code)
            if error in (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError):
                coordinator.coordinator_dead()
            raise error(coordinator.group_id)
        return response

    coordinator._send_req = heeding
