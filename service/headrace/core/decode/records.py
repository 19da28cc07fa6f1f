"""The records that the decoder reads, the records that it rejects, and the original records of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.core.decode.json_converter import Document
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage

HEADER_PREFIX = "__connect.errors."
"""The prefix of Kafka Connect's context headers (``DeadLetterQueueReporter.HEADER_PREFIX``)."""
_HEADRACE = "headrace."
"""The beginning of the names of error classes whose messages contain no cell values (``core/model/errors.py``)."""
_MOST_NAME, _MOST_ERROR = 249, 2_000
"""Characters of a name (Kafka's limit for topics) and of an error that are kept: anybody may write to a queue."""


class KafkaRecord(Protocol):
    """The attributes of a record that the decoder reads.

    Keys are JsonConverter's documents or Connect data, in one form for all keys of a topic. The same applies to values.
    Connect data that is null is None here, as in Kafka.
    """

    @property
    def partition(self) -> int:
        """The record's partition."""

    @property
    def offset(self) -> int:
        """The record's offset."""

    @property
    def timestamp(self) -> int:
        """The record's timestamp, in milliseconds."""

    @property
    def key(self) -> bytes | SchemaAndValue | None:
        """The key."""

    @property
    def value(self) -> bytes | Document | SchemaAndValue | None:
        """The value; None for a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """The headers, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Errant:
    """A record that could not be decoded. ``index`` is its index in the records that the decoder received."""

    index: int
    stage: Stage
    error: BadRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A ``ports.Record`` at its original coordinate, and why it became a dead letter.

    ``reason`` is the stage and the class of the exception. ``error`` is the exception's message, None if it is not one
    of Headrace's, because it may contain cell values then. ``class_name`` is the class that failed, a converter or a
    transform. Texts of context headers that are missing are "".
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]]
    connector: str
    reason: str
    error: str | None
    class_name: str
    task: str


def original(record: KafkaRecord, key: bytes | None, value: bytes | Document | None) -> DeadLetter | None:
    """Return the original of ``record``, which is in a dead letter queue. ``key`` and ``value`` are its documents.

    Return None if the context headers do not contain a valid topic, partition and offset. Of headers with one name the
    last one applies, because Kafka Connect appends its headers to those that the record already has.
    """
    context = {
        name.removeprefix(HEADER_PREFIX): text for name, text in record.headers if name.startswith(HEADER_PREFIX)
    }
    partition, offset = _number(context.get("partition")), _number(context.get("offset"))
    topic = _text(context.get("topic"))
    if not topic or len(topic) > _MOST_NAME or partition is None or offset is None:
        return None
    # Without the exception's message, which may contain cell values.
    exception = _text(context.get("exception.class.name"))[:_MOST_NAME]
    message = _text(context.get("exception.message"))[:_MOST_ERROR]
    return DeadLetter(
        topic,
        partition,
        offset,
        record.timestamp,
        key,
        value,
        headers=[header for header in record.headers if not header[0].startswith(HEADER_PREFIX)],
        connector=_text(context.get("connector.name")),
        reason=f"{_text(context.get('stage'))[:_MOST_NAME]}, {exception}",
        error=message if exception.startswith(_HEADRACE) else None,
        class_name=_text(context.get("class.name"))[:_MOST_NAME],
        task=_text(context.get("task.id"))[:_MOST_NAME],
    )


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() else None
