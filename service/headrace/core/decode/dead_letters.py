"""Restore the original record of a dead letter from Kafka Connect's context headers (``connect.md`` section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.core.decode.envelope_events import KafkaRecord
from headrace.core.decode.json_types import Document

PREFIX = "__connect.errors."


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
    own = [header for header in record.headers if not header[0].startswith(PREFIX)]
    connector = _text(context.get("connector.name"))
    return DeadLetter(topic, partition, offset, record.timestamp, key, value, own, connector, reason)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    text = _text(value)
    return int(text) if text.isascii() and text.isdigit() else None
