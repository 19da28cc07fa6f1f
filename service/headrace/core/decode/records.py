"""Records of a topic as the decoder reads them, those that it refuses, and the originals of dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.core.decode.json_converter import Document
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage

PREFIX = "__connect.errors."


class KafkaRecord(Protocol):
    """The attributes of a record that the decoder reads; ``timestamp`` is in milliseconds.

    Keys and values are JsonConverter's documents, or Connect data: either all keys of a topic or none, and so for the
    values. Connect data that is null is None here, as in Kafka.
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
    """A record that could not be decoded, by its index in the records given."""

    index: int
    stage: Stage
    error: BadRecord


@dataclass(slots=True)
class DeadLetter:
    """A record at its original coordinate, and why it became a dead letter. Not frozen: ``Record`` has attributes."""

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
    """Return the original of ``record`` in a dead letter queue; None without context headers for its coordinate.

    The last of equal headers counts: a queue appends its own to those that the record had.
    """
    context = {name.removeprefix(PREFIX): text for name, text in record.headers if name.startswith(PREFIX)}
    partition, offset = _number(context.get("partition")), _number(context.get("offset"))
    topic = _text(context.get("topic"))
    if not topic or partition is None or offset is None:
        return None
    reason = f"{_text(context.get('stage'))}, {_text(context.get('exception.class.name'))}"  # a message may quote cells
    headers = [header for header in record.headers if not header[0].startswith(PREFIX)]
    connector = _text(context.get("connector.name"))
    return DeadLetter(topic, partition, offset, record.timestamp, key, value, headers, connector, reason)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() else None
