"""Reading the records of a dead letter topic."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.offset import OffsetRequest_v2, OffsetResponse_v2
from support.kafka.scripted_kafka import NODE, ScriptedKafka, batch

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.dead_letter_queue import read_topic

TOPIC = "dlq"


def fetched(request: Any) -> FetchResponse_v4:
    """Return one record for every requested partition."""
    [(topic, partitions)] = request.topics
    letters = [
        (number, 0, 1, 1, None, b"" if offset else batch(0, (b"key", b"%d" % number)))
        for number, offset, _ in partitions
    ]
    return FetchResponse_v4(0, [(topic, letters)])


def offsets(request: Any) -> OffsetResponse_v2:
    """Report that every partition begins at offset 0 and ends at offset 1."""
    found = [(number, 0, -1, 0 if when == -2 else 1) for _, partitions in request.topics for number, when in partitions]
    return OffsetResponse_v2(0, [(TOPIC, found)])


async def letters(topic: str, newest: int | None = None) -> list[bytes]:
    """Read the values of all records of ``topic``, or of the newest ones."""
    async with ScriptedKafka({TOPIC: [NODE] * 3}, {FetchRequest_v4: fetched, OffsetRequest_v2: offsets}) as kafka:
        read = read_topic(topic, {"bootstrap_servers": kafka.bootstrap_servers}, newest)
        return [record.value async for queued in read for record in queued.records]


def test_all_partitions_are_read() -> None:
    """The reader reads all partitions of a dead letter topic, which an operator may have created with several."""
    assert sorted(asyncio.run(letters(TOPIC))) == [b"0", b"1", b"2"]


def test_a_missing_dead_letter_topic_is_a_config_error() -> None:
    """Reading a dead letter topic that does not exist raises ConfigError."""
    with pytest.raises(ConfigError, match="the dead letter topic other does not exist"):
        asyncio.run(letters("other"))
