"""Read and change the offsets of consumer groups without membership (KIP-875).

All requests go to the group's coordinator, with the settings of the worker's other clients. The broker rejects a change
while the group has members.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import errors as kafka
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import DeleteGroupsRequest
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from headrace.core.model.errors import Fatal, Fenced, Retriable
from headrace.ports import TopicPartition
from headrace_connectors.kafka.errors import FENCED, headrace_error
from headrace_connectors.kafka.protocol import OffsetDeleteRequest

GROUP_SUBSCRIBED_TO_TOPIC = 86
"""The error for a partition whose topic a member of the group reads, which aiokafka does not define."""

_RETRY_SECONDS = 10.0
_NO_MEMBER = -1, "", -1
"""Generation, member id and retention of a commit without membership."""

_retry = retry(
    retry=retry_if_exception(lambda error: isinstance(error, Retriable) and not isinstance(error, Fenced)),
    wait=wait_fixed(0.3),
    stop=stop_after_delay(_RETRY_SECONDS),
    reraise=True,
)


class KafkaGroupOffsets:
    """``headrace.ports.GroupOffsets``. Each call opens a connection, because calls are manual and rare.

    Requests are retried for some seconds, because a new cluster creates its offsets topic at the first request.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = dict(arguments)

    @_retry
    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the group's offsets; partitions without one are omitted. Raises Retriable, ConfigError or Fatal."""
        # aiokafka's admin client returns no offsets while the group is being loaded.
        async with group_coordinator(self._arguments, f"asking for the offsets of group {group}", group) as send:
            response = await send(OffsetFetchRequest(group, None))
            if response.error_code:
                raise for_code(response.error_code)(group)
            _raise_first((topic, [(entry[0], entry[3]) for entry in entries]) for topic, entries in response.topics)
        return {
            TopicPartition(topic, index): offset
            for topic, entries in response.topics
            for index, offset, *_ in entries
            if offset >= 0
        }

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets, remove those that are None. Raises Fenced, Fatal, Retriable or ConfigError."""
        new_offsets = {partition: offset for partition, offset in offsets.items() if offset is not None}
        if new_offsets:
            await self._set(group, new_offsets)
        removed = [partition for partition, offset in offsets.items() if offset is None]
        if removed:
            await self._remove(group, removed)

    @_retry
    async def reset(self, group: str) -> None:
        """Remove the group. Raises Fenced, Fatal, Retriable or ConfigError."""
        async with group_coordinator(self._arguments, f"removing group {group}", group) as send:
            response = await send(DeleteGroupsRequest([group]))
            for _, code in response.results:
                _exists(code)

    @_retry
    async def _set(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        entries = [
            (topic, [(index, offsets[TopicPartition(topic, index)], "") for index in indexes])
            for topic, indexes in _by_topic(offsets)
        ]
        async with group_coordinator(self._arguments, f"setting the offsets of group {group}", group) as send:
            response = await send(OffsetCommitRequest(group, *_NO_MEMBER, entries))
            _raise_first(response.topics)

    @_retry
    async def _remove(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        async with group_coordinator(self._arguments, f"removing offsets of group {group}", group) as send:
            response = await send(OffsetDeleteRequest(group, _by_topic(partitions)))
            if _exists(response.error_code):
                _raise_first(response.topics)


@asynccontextmanager
async def group_coordinator(arguments: Mapping[str, Any], operation: str, group: str) -> AsyncIterator[Any]:
    """Yield a function that sends a request to the group's coordinator. Raises HeadraceError."""
    client = AIOKafkaClient(**arguments)
    try:
        await client.bootstrap()
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        await client.force_metadata_update()  # the coordinator may be a broker that is new to this client

        async def send(request: Any) -> Any:
            return await client.send(node, request)

        yield send
    except (KafkaError, OSError) as error:
        if isinstance(error, (kafka.NonEmptyGroup, *FENCED)):
            raise Fenced(f"Kafka rejected {operation}: the group has members") from error
        if isinstance(error, kafka.UnknownTopicOrPartitionError):
            raise Fatal(f"Kafka rejected {operation}: the partition {error} does not exist") from error
        raise headrace_error(error, operation) from error
    finally:
        await client.close()


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    indexes: dict[str, list[int]] = {}
    for topic, index in partitions:
        indexes.setdefault(topic, []).append(index)
    return list(indexes.items())


def _raise_first(topics: Iterable[tuple[str, Iterable[tuple[int, int]]]]) -> None:
    for topic, partitions in topics:
        for index, code in partitions:
            if code == GROUP_SUBSCRIBED_TO_TOPIC:
                raise kafka.NonEmptyGroup(topic)
            if code:
                raise for_code(code)(f"{topic}-{index}")


def _exists(code: int) -> bool:
    """Return whether the group exists. A group that does not exist has no offsets to remove. Raises other errors."""
    if code and for_code(code) is not kafka.GroupIdNotFound:
        raise for_code(code)()
    return code == 0
