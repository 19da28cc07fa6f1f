"""Committed offsets of a group whose coordinator returns errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiokafka.protocol.commit import OffsetFetchRequest_v3, OffsetFetchResponse_v3
from support.kafka.scripted_kafka import ScriptedKafka

from headrace.core.model.errors import Fatal
from headrace.ports import TopicPartition
from headrace_connectors.kafka.group_offsets import KafkaGroupOffsets
from headrace_connectors.kafka.protocol import OffsetDeleteRequestV0, OffsetDeleteResponseV0

LOADING, FORBIDDEN = 14, 30


async def committed(*answers: OffsetFetchResponse_v3) -> Mapping[TopicPartition, int]:
    """Fetch the offsets of the group while its coordinator returns ``answers``."""
    responses = iter(answers)
    async with ScriptedKafka({}, {OffsetFetchRequest_v3: lambda _: next(responses)}) as kafka:
        return await KafkaGroupOffsets({"bootstrap_servers": kafka.bootstrap_servers}).committed("g")


def test_offset_fetch_is_retried_while_the_group_loads() -> None:
    """OffsetFetch is retried while the coordinator loads the group: its empty response does not mean no offsets."""
    topics = [("t", [(0, 7, "", 0), (1, -1, "", 0)])]
    loading, loaded = OffsetFetchResponse_v3(0, [], LOADING), OffsetFetchResponse_v3(0, topics, 0)
    assert asyncio.run(committed(loading, loaded)) == {TopicPartition("t", 0): 7}


def test_a_group_without_authorization_is_fatal() -> None:
    """An authorization error of OffsetFetch raises Fatal instead of returning no offsets."""
    with pytest.raises(Fatal, match="grant the client's user"):
        asyncio.run(committed(OffsetFetchResponse_v3(0, [], FORBIDDEN)))


def test_offsets_are_removed_in_the_given_order() -> None:
    """OffsetDelete contains the partitions in the caller's order, so that a repeated call sends the same request."""
    requested: list[str] = []

    def remove(request: OffsetDeleteRequestV0) -> OffsetDeleteResponseV0:
        requested.extend(topic for topic, _ in request.topics)
        return OffsetDeleteResponseV0(0, 0, [])

    async def alter(topics: str) -> None:
        async with ScriptedKafka({}, {OffsetDeleteRequestV0: remove}) as kafka:
            offsets = KafkaGroupOffsets({"bootstrap_servers": kafka.bootstrap_servers})
            await offsets.alter("g", dict.fromkeys(TopicPartition(topic, 0) for topic in topics))

    asyncio.run(alter("hagbfced"))
    assert "".join(requested) == "hagbfced"
