"""The offsets of a group whose coordinator has trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetFetchResponse_v3

from headrace.core.errors import Fatal
from headrace.ports import TopicPartition
from headrace_connectors.kafka import group_offsets

LOADING, FORBIDDEN = 14, 30


class Client:
    """Of aiokafka's client what is used; ``answers`` are the coordinator's."""

    answers: Iterator[Any]

    def __init__(self, **_: object) -> None:
        """No broker is needed."""

    async def bootstrap(self) -> None:
        """Connected."""

    async def coordinator_lookup(self, *_: object) -> int:
        """Found."""
        return 1

    async def force_metadata_update(self) -> None:
        """Known already."""

    async def send(self, *_: object) -> Any:
        """The next answer."""
        return next(self.answers)

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    """In place of aiokafka's."""
    monkeypatch.setattr(group_offsets, "AIOKafkaClient", Client)
    return Client


def test_a_group_that_is_being_loaded_is_asked_again(client: type[Client]) -> None:
    """It lists no partitions, which does not mean that it has none."""
    topics = [("t", [(0, 7, "", 0), (1, -1, "", 0)])]
    client.answers = iter([OffsetFetchResponse_v3(0, [], LOADING), OffsetFetchResponse_v3(0, topics, 0)])
    offsets = asyncio.run(group_offsets.KafkaGroupOffsets({}).committed("g"))
    assert offsets == {TopicPartition("t", 0): 7}


def test_a_group_that_we_may_not_see_is_an_error(client: type[Client]) -> None:
    """Its offsets are not none either."""
    client.answers = iter([OffsetFetchResponse_v3(0, [], FORBIDDEN)])
    with pytest.raises(Fatal, match="grant the client's user"):
        asyncio.run(group_offsets.KafkaGroupOffsets({}).committed("g"))
