"""Dead letters of the connector ``shop`` in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from support.records.envelopes import change, key
from support.rest.worker_api import Api

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import BadRecord, Retriable, Stage
from headrace.ports import ErrantRecord, QueuedRecords, TableOptions
from headrace_dev.memory import MemoryDeadLetterQueue
from headrace_dev.memory.dead_letter_queue import QueuedLetter
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds, MemoryRecord

TOPIC = "shop.public.items"
JSON = "org.apache.kafka.connect.json.JsonConverter"
QUEUE = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": "dead",
    "key.converter": JSON,
    "value.converter": JSON,
}
"""Options of a connector with a dead letter queue."""
REASON = "VALUE_CONVERTER, headrace.core.model.errors.BadRecord"


class HeldFeeds(MemoryFeeds):
    """Queues whose complete reads wait for ``go_on`` after the first ``free`` ones: a replay counts, then it sends.

    With ``first`` they wait only when that many records were read.
    """

    def __init__(self, free: int = 1, first: int = 0) -> None:
        super().__init__(MemoryBroker())
        self._first = first
        self.go_on = asyncio.Event()
        self.outage: str | None = None
        self._free = free
        self._reads = 0

    async def dead_letters(
        self, connector: str, settings: KafkaSettings, newest: int | None = None
    ) -> AsyncGenerator[QueuedRecords, None]:
        """As of ``MemoryFeeds``. Raises Retriable with the cause of an outage."""
        self._reads += newest is None
        waits = newest is None and self._reads > self._free
        if waits and not self._first:
            await self.go_on.wait()
        if self.outage is not None:
            raise Retriable(self.outage)
        async for queued in super().dead_letters(connector, settings, newest):
            if waits and self._first:
                yield QueuedRecords(queued.records[: self._first], queued.skipped)
                await self.go_on.wait()
                queued = QueuedRecords(queued.records[self._first :], queued.skipped)
            yield queued


async def add_letter(
    api: Api,
    offset: int,
    value: bytes | None,
    *,
    row: int = 1,
    connector: str = "shop",
    topic: str = TOPIC,
    error: BaseException | None = None,
    headers: Sequence[tuple[str, bytes]] = (),
    days_ago: int = 0,
) -> None:
    """Add a dead letter to the queue ``dead``."""
    timestamp = int(time.time() * 1000) - days_ago * 24 * 3600 * 1000
    record = MemoryRecord(topic, 0, offset, timestamp, key({"id": row}), value, headers)
    queue = MemoryDeadLetterQueue(connector, 2)
    await queue.report([ErrantRecord(record, Stage.VALUE_CONVERTER, JSON, error or BadRecord("not JSON"))])
    _letters(api).extend(queue.letters)


async def add_change(api: Api, offset: int, name: str, row: int = 1) -> None:
    """Add a letter that can be used."""
    await add_letter(api, offset, change("c", {"id": row, "name": name}, 10 + offset), row=row)


def add_letter_without_context(api: Api) -> None:
    _letters(api).append(QueuedLetter(b"k", b"v", 1, []))


def _letters(api: Api) -> list[QueuedLetter]:
    return api.feeds.queues.setdefault("dead", MemoryDeadLetterQueue("shop", 0)).letters


def names(api: Api) -> list[Any]:
    """The column ``name`` of the table of the letters."""
    table = api.lakehouse.table("headrace", "shop_public_items", TableOptions())
    return [row["name"] for row in table.to_arrow().to_pylist()]
