"""Contract of every ``DeadLetterQueue``. A subclass provides the ``harness`` fixture."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import pytest

from headrace.core.decode.json_converter import Document, JsonConverter
from headrace.core.model.errors import BadRecord, Stage
from headrace.ports import DeadLetterQueue, ErrantRecord
from headrace_dev.memory import MemoryRecord

Letter = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
"""Key, value, timestamp, headers."""


class Queue(Protocol):
    """A queue, and the records that were written to it."""

    queue: DeadLetterQueue

    async def letters(self, count: int) -> Sequence[Letter]: ...


class QueueHarness(Protocol):
    """Opens queues of the connector ``sink``, task 3.

    ``context`` is the value of the option for context headers. They are enabled by default.
    """

    def open(self, context: str | None = "true") -> AbstractAsyncContextManager[Any]: ...


def errant(
    key: bytes | None, value: bytes | Document | None, headers: Sequence[tuple[str, bytes]] = ()
) -> ErrantRecord:
    """A record that the value converter refused."""
    record = MemoryRecord("shop.public.orders", 2, 77, 1_700_000_000_123, key, value, headers)
    error = BadRecord("not JSON", stage=Stage.VALUE_CONVERTER)
    return ErrantRecord(record, Stage.VALUE_CONVERTER, "org.apache.kafka.connect.json.JsonConverter", error)


class DeadLetterQueueSuite:
    """The contract of ``headrace.ports.DeadLetterQueue``."""

    @pytest.fixture
    @abstractmethod
    def harness(self) -> QueueHarness:
        """The harness of the suite."""

    def test_a_record_is_kept_as_it_came(self, harness: QueueHarness) -> None:
        """A dead letter has the raw key and value of its record, nulls included, and its timestamp."""

        async def scenario() -> None:
            async with harness.open() as opened:
                records = [errant(b"\x00k", b"{broken"), errant(None, b"v"), errant(b"k", None), errant(None, None)]
                await opened.queue.report(records)
                letters = await opened.letters(4)
                await opened.queue.close()
            assert [letter[:3] for letter in letters] == [
                (b"\x00k", b"{broken", 1_700_000_000_123),
                (None, b"v", 1_700_000_000_123),
                (b"k", None, 1_700_000_000_123),
                (None, None, 1_700_000_000_123),
            ]

        asyncio.run(scenario())

    def test_a_record_without_its_schema_part_is_kept_whole(self, harness: QueueHarness) -> None:
        """The queue restores the schema part that the feed dropped, byte for byte."""
        document = b'{"schema":{"type":"string"},"payload":"a"}'
        divided = JsonConverter(True).divide(document)
        assert isinstance(divided, Document)

        async def scenario() -> None:
            async with harness.open() as opened:
                await opened.queue.report([errant(b"k", divided)])
                ((_, value, *_),) = await opened.letters(1)
                await opened.queue.close()
            assert value == document

        asyncio.run(scenario())

    @pytest.mark.parametrize("enabled", [None, "false"])
    def test_context_headers_are_omitted_by_default(self, harness: QueueHarness, enabled: str | None) -> None:
        """By default, as in Kafka Connect, a dead letter has the headers of its record and no others."""

        async def scenario() -> None:
            async with harness.open(context=enabled) as opened:
                await opened.queue.report([errant(b"k", b"v", [("trace", b"1")]), errant(b"k", b"v")])
                letters = await opened.letters(2)
                await opened.queue.close()
            assert [list(headers or ()) for *_, headers in letters] == [[("trace", b"1")], []]

        asyncio.run(scenario())

    def test_context_headers_follow_the_record_s_own(self, harness: QueueHarness) -> None:
        """The queue adds Kafka Connect's ten headers for the origin; it keeps equal names that the record had."""

        async def scenario() -> None:
            own = [("trace", b"\xff"), ("__connect.errors.topic", b"earlier")]
            async with harness.open() as opened:
                await opened.queue.report([errant(b"k", b"v", own)])
                ((*_, headers),) = await opened.letters(1)
                await opened.queue.close()
            assert headers[:2] == own
            context = dict(headers[2:])
            assert b"BadRecord: not JSON" in (context.pop("__connect.errors.exception.stacktrace") or b"")
            assert context == {
                "__connect.errors.topic": b"shop.public.orders",
                "__connect.errors.partition": b"2",
                "__connect.errors.offset": b"77",
                "__connect.errors.connector.name": b"sink",
                "__connect.errors.task.id": b"3",
                "__connect.errors.stage": b"VALUE_CONVERTER",
                "__connect.errors.class.name": b"org.apache.kafka.connect.json.JsonConverter",
                "__connect.errors.exception.class.name": b"headrace.core.model.errors.BadRecord",
                "__connect.errors.exception.message": b"not JSON",
            }

        asyncio.run(scenario())
