"""What stands in a dead letter topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.offset import OffsetRequest_v2, OffsetResponse_v2
from scripted_kafka import NODE, ScriptedKafka, batch

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.dead_letters import read_topic

TOPIC = "dlq"


def fetched(request: Any) -> FetchResponse_v4:
    """One letter in every partition."""
    [(topic, partitions)] = request.topics
    letters = [
        (number, 0, 1, 1, None, b"" if offset else batch(0, (b"key", b"%d" % number)))
        for number, offset, _ in partitions
    ]
    return FetchResponse_v4(0, [(topic, letters)])


def offsets(request: Any) -> OffsetResponse_v2:
    """From 0 to 1."""
    found = [(number, 0, -1, 0 if when == -2 else 1) for _, asked in request.topics for number, when in asked]
    return OffsetResponse_v2(0, [(TOPIC, found)])


async def letters(topic: str) -> list[bytes]:
    """The values of all letters."""
    async with ScriptedKafka({TOPIC: [NODE] * 3}, {FetchRequest_v4: fetched, OffsetRequest_v2: offsets}) as kafka:
        read = read_topic(topic, {"bootstrap_servers": kafka.bootstrap_servers})
        return [record.value async for records in read for record in records]


def test_all_partitions_are_read() -> None:
    """A topic that was made by somebody else may have several."""
    assert sorted(asyncio.run(letters(TOPIC))) == [b"0", b"1", b"2"]


def test_no_such_topic() -> None:
    """It is not made by asking."""
    with pytest.raises(ConfigError, match="the dead letter topic other does not exist"):
        asyncio.run(letters("other"))
