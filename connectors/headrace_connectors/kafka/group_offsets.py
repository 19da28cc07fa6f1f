"""The offsets of consumer groups, seen and changed from outside of the group (KIP-875).

Everything is asked of the group's coordinator, with the settings of the worker's other clients. A change is refused by
the broker while the group has members.
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
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_fixed

from headrace.core.model.errors import Fatal, Fenced, HeadraceError, Retriable
from headrace.ports import TopicPartition
from headrace_connectors.kafka.errors import FENCED, translated
from headrace_connectors.kafka.offset_delete import GROUP_SUBSCRIBED_TO_TOPIC, OffsetDeleteRequest

_PATIENCE_SECONDS = 10.0
_OUTSIDER = -1, "", -1
"""Generation, member id and retention of a commit that no member makes."""


class KafkaGroupOffsets:
    """``headrace.ports.GroupOffsets``: a connection per call, since calls are manual and rare.

    Questions are repeated for some seconds: a new cluster makes its offsets topic at the first one.
    """

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = dict(arguments)

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the group's offsets; partitions without one are omitted. Raises Retriable, ConfigError or Fatal."""
        return await _patiently()(self._committed, group)

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set offsets, remove those that are None. Raises Fenced, Fatal, Retriable or ConfigError."""
        wanted = {place: offset for place, offset in offsets.items() if offset is not None}
        unwanted = [place for place, offset in offsets.items() if offset is None]
        if wanted:
            await _patiently()(self._set, group, wanted)
        if unwanted:
            await _patiently()(self._remove, group, unwanted)

    async def reset(self, group: str) -> None:
        """Remove the group. Raises Fenced, Fatal, Retriable or ConfigError."""
        await _patiently()(self._delete, group)

    async def _committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Fetch without aiokafka's admin client, which returns no offsets while the group is being loaded."""
        async with group_coordinator(self._arguments, f"asking for the offsets of group {group}", group) as send:
            response = await send(OffsetFetchRequest(group, None))
            if response.error_code:
                raise for_code(response.error_code)(group)
            _raise_first((topic, [(place[0], place[3]) for place in places]) for topic, places in response.topics)
        return {
            TopicPartition(topic, number): offset
            for topic, places in response.topics
            for number, offset, *_ in places
            if offset >= 0
        }

    async def _set(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        places = [(topic, [(n, offsets[TopicPartition(topic, n)], "") for n in ns]) for topic, ns in _by_topic(offsets)]
        async with group_coordinator(self._arguments, f"setting the offsets of group {group}", group) as send:
            response = await send(OffsetCommitRequest(group, *_OUTSIDER, places))
            _raise_first(response.topics)

    async def _remove(self, group: str, places: Iterable[TopicPartition]) -> None:
        async with group_coordinator(self._arguments, f"removing offsets of group {group}", group) as send:
            response = await send(OffsetDeleteRequest(group, _by_topic(places)))
            if _exists(response.error_code):
                _raise_first(response.topics)

    async def _delete(self, group: str) -> None:
        async with group_coordinator(self._arguments, f"removing group {group}", group) as send:
            response = await send(DeleteGroupsRequest([group]))
            for _, code in response.results:
                _exists(code)


@asynccontextmanager
async def group_coordinator(arguments: Mapping[str, Any], doing: str, group: str) -> AsyncIterator[Any]:
    """A function that sends a request to the group's coordinator; Kafka's errors become ours."""
    client = AIOKafkaClient(**arguments)
    try:
        await client.bootstrap()
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        await client.force_metadata_update()  # the coordinator may be a broker that is new to this client

        async def send(request: Any) -> Any:
            return await client.send(node, request)

        yield send
    except (KafkaError, OSError) as error:
        raise _told(error, doing) from error
    finally:
        await client.close()


def _patiently() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, Retriable) and not isinstance(error, Fenced)),
        wait=wait_fixed(0.3),
        stop=stop_after_delay(_PATIENCE_SECONDS),
        reraise=True,
    )


def _by_topic(places: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    numbers: dict[str, list[int]] = {}
    for place in places:
        numbers.setdefault(place.topic, []).append(place.partition)
    return list(numbers.items())


def _raise_first(topics: Iterable[tuple[str, Iterable[tuple[int, int]]]]) -> None:
    for topic, partitions in topics:
        for number, code in partitions:
            if code == GROUP_SUBSCRIBED_TO_TOPIC:
                raise kafka.NonEmptyGroup(topic)
            if code:
                raise for_code(code)(f"{topic}-{number}")


def _exists(code: int) -> bool:
    """Whether the group is there; one that is not has no offsets, so nothing is left to do."""
    if code and for_code(code) is not kafka.GroupIdNotFound:
        raise for_code(code)()
    return code == 0


def _told(error: BaseException, doing: str) -> HeadraceError:
    if isinstance(error, (kafka.NonEmptyGroup, *FENCED)):
        return Fenced(f"Kafka refused {doing}: the group has members")
    if isinstance(error, kafka.UnknownTopicOrPartitionError):
        return Fatal(f"Kafka refused {doing}: there is no partition {error}")
    return translated(error, doing)
