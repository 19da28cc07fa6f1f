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
    """A ``ports.Record`` at its original coordinate, and why it became a dead letter."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]]
    connector: str
    reason: str


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
    if not topic or partition is None or offset is None:
        return None
    # Without the exception's message, which may contain cell values.
    reason = f"{_text(context.get('stage'))}, {_text(context.get('exception.class.name'))}"
    headers = [header for header in record.headers if not header[0].startswith(HEADER_PREFIX)]
    connector = _text(context.get("connector.name"))
    return DeadLetter(topic, partition, offset, record.timestamp, key, value, headers, connector, reason)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() else None
