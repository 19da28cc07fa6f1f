"""The offsets of a group whose coordinator has trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiokafka.protocol.commit import OffsetFetchRequest_v3, OffsetFetchResponse_v3
from scripted_kafka import ScriptedKafka

from headrace.core.model.errors import Fatal
from headrace.ports import TopicPartition
from headrace_connectors.kafka.group_offsets import KafkaGroupOffsets

LOADING, FORBIDDEN = 14, 30


async def committed(*answers: OffsetFetchResponse_v3) -> Mapping[TopicPartition, int]:
    """The group's offsets, with these answers of its coordinator."""
    said = iter(answers)
    async with ScriptedKafka({}, {OffsetFetchRequest_v3: lambda _: next(said)}) as kafka:
        return await KafkaGroupOffsets({"bootstrap_servers": kafka.bootstrap_servers}).committed("g")


def test_a_group_that_is_being_loaded_is_asked_again() -> None:
    """It lists no partitions, which does not mean that it has none."""
    topics = [("t", [(0, 7, "", 0), (1, -1, "", 0)])]
    loading, loaded = OffsetFetchResponse_v3(0, [], LOADING), OffsetFetchResponse_v3(0, topics, 0)
    assert asyncio.run(committed(loading, loaded)) == {TopicPartition("t", 0): 7}


def test_a_group_that_we_may_not_see_is_an_error() -> None:
    """Its offsets are not none either."""
    with pytest.raises(Fatal, match="grant the client's user"):
        asyncio.run(committed(OffsetFetchResponse_v3(0, [], FORBIDDEN)))
