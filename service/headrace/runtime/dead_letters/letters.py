"""Read the letters of a dead letter queue: count them, list the newest ones, and choose those that can be sent.

Tests: ``tests/unit/test_replay_dlq.py``, ``tests/rest/test_dead_letters.py``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.config import SinkConnectorConfig
from headrace.core.connect.dead_letters import LetterCounts
from headrace.core.decode.records import DeadLetter, original
from headrace.core.model.errors import ConfigError
from headrace.core.model.instants import iso_text
from headrace.ports import Record, ReplayFeeds

QUEUE = "errors.deadletterqueue.topic.name"
_LISTED_RECORDS = 10_000
"""The records of a queue that a listing reads: the newest ones."""
_LISTING_SECONDS = 15.0
_ALL_TIME = 0


@dataclass(slots=True)
class Letters:
    """The letters of one connector in the records of its queue.

    Letters from before ``since`` (ms) are not sent: the tombstone of their row may have expired, and the row would be
    inserted again.
    """

    connector: str
    since: int = _ALL_TIME
    counts: LetterCounts = field(default_factory=LetterCounts)

    def of_connector(self, records: Sequence[Record]) -> Iterator[tuple[Record, DeadLetter]]:
        """Yield the letters of the connector with their records in the queue, and count all of the records."""
        for record in records:
            letter = original(record, record.key, record.value)
            if letter is None:
                self.counts.without_coordinate += 1
            elif letter.connector != self.connector:
                self.counts.connectors[letter.connector] += 1
            else:
                if self.is_too_old(letter):
                    self.counts.too_old += 1
                else:
                    self.counts.reasons[letter.topic, letter.reason] += 1
                yield record, letter

    def to_send(self, records: Sequence[Record]) -> list[DeadLetter]:
        """Return the letters that can be sent, and count all of the records."""
        return [letter for _, letter in self.of_connector(records) if not self.is_too_old(letter)]

    def is_too_old(self, letter: DeadLetter) -> bool:
        return letter.timestamp < self.since


def oldest(sink: SinkConnectorConfig, now: float) -> int:
    """Return the time (ms) from which on a table has tombstones; 0 for a history. ``now`` is in seconds."""
    if sink.tables.history:
        return _ALL_TIME
    return int(now * 1000) - sink.tables.tombstone_retention // 1000


def check_queue(sink: SinkConnectorConfig) -> None:
    """Raise ConfigError if the connector has no dead letter queue."""
    if not sink.framework.dead_letters.topic:
        raise ConfigError(f"Connector {sink.name} has no dead letter queue: {QUEUE} is not set", QUEUE)


async def survey(feeds: ReplayFeeds, sink: SinkConnectorConfig, since: int) -> LetterCounts:
    """Count the letters of the connector's queue. Raises HeadraceError."""
    letters = Letters(sink.name, since)
    async with aclosing(feeds.dead_letters(sink.name, sink.kafka)) as queue:
        async for queued in queue:
            letters.to_send(queued.records)
    return letters.counts


async def letters_to_send(
    feeds: ReplayFeeds, sink: SinkConnectorConfig, since: int
) -> AsyncGenerator[list[DeadLetter], None]:
    """Yield the letters of the connector's queue that can be sent. Raises HeadraceError."""
    letters = Letters(sink.name, since)
    async with aclosing(feeds.dead_letters(sink.name, sink.kafka)) as queue:
        async for queued in queue:
            if chosen := letters.to_send(queued.records):
                yield chosen


class LetterFilter(NamedTuple):
    """The letters that a listing shows; None for any topic or reason."""

    limit: int
    topic: str | None = None
    reason: str | None = None

    def accepts(self, letter: DeadLetter) -> bool:
        return self.topic in (None, letter.topic) and self.reason in (None, letter.reason)


async def listing(feeds: ReplayFeeds, sink: SinkConnectorConfig, since: int, wanted: LetterFilter) -> Mapping[str, Any]:
    """Return counts and the newest letters as JSON, without keys and values. Raises HeadraceError.

    It reads the newest records of the queue only, for a limited time. ``complete`` is whether these are all.
    """
    letters, newest = Letters(sink.name, since), dict[int, deque[tuple[Record, DeadLetter]]]()
    read, skipped, ended = 0, 0, False
    async with aclosing(feeds.dead_letters(sink.name, sink.kafka, _LISTED_RECORDS)) as queue:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LISTING_SECONDS):
                async for queued in queue:
                    read, skipped = read + len(queued.records), queued.skipped
                    for record, letter in letters.of_connector(queued.records):
                        if wanted.accepts(letter):
                            newest.setdefault(record.partition, deque(maxlen=wanted.limit)).append((record, letter))
                ended = True
    chosen = sorted(
        (pair for partition in newest.values() for pair in partition),
        key=lambda pair: (pair[0].timestamp, pair[0].offset),
        reverse=True,
    )
    return {
        "connector": sink.name,
        "queue": sink.framework.dead_letters.topic,
        "records_read": read,
        "complete": ended and not skipped,
        **letters.counts.document(),
        "newest": [
            _document(record, letter, too_old=letters.is_too_old(letter)) for record, letter in chosen[: wanted.limit]
        ],
    }


def _document(record: Record, letter: DeadLetter, *, too_old: bool) -> Mapping[str, Any]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "time": _time(letter.timestamp),
        "reason": letter.reason,
        "error": letter.error,
        "class": letter.class_name,
        "task": letter.task,
        "headers": [name for name, _ in letter.headers],
        "too_old": too_old,
        "queue_partition": record.partition,
        "queue_offset": record.offset,
    }


def _time(milliseconds: int) -> str | None:
    """Return a record's time, None for one that is no time: producers write any number."""
    if milliseconds < 0:
        return None
    try:
        return iso_text(milliseconds / 1000)
    except (OverflowError, ValueError):
        return None
