"""The records that aiokafka hands out, made lean.

aiokafka makes a dataclass instance with eleven fields and a dictionary of every record, and Headrace keeps tens of
thousands of them until their batch is decoded. Seven fields are read (``headrace.ports.Record``). The seam is private
to aiokafka, whose version is pinned; ``tests/unit/kafka/test_records.py`` fails when it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiokafka
import msgspec
from aiokafka.consumer import fetcher

from headrace.core.decode.json_types import Document


class FetchedRecord(msgspec.Struct, gc=False):
    """A ``headrace.ports.Record``. The cycle collector does not look at it: nothing in it can refer back to it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]]


class LeanRecords(fetcher.PartitionRecords):
    """What one fetch brought of a partition, as FetchedRecords. Keys stay bytes, since no key deserializer is set."""

    def _consumer_record(self, tp: aiokafka.TopicPartition, record: Any) -> FetchedRecord:
        value = record.value
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        return FetchedRecord(tp.topic, tp.partition, record.offset, record.timestamp, record.key, value, record.headers)


def make_lean() -> None:
    """Let every consumer of this process hand out FetchedRecords."""
    fetcher.PartitionRecords = LeanRecords
