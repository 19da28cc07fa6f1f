"""A smaller class for the records of aiokafka's consumers.

aiokafka creates a dataclass instance with eleven fields and a dictionary for every record, and Headrace keeps tens of
thousands of them until their batch is decoded. Only seven fields are used (``headrace.ports.Record``). The replaced
method is private to aiokafka, whose version is pinned; ``tests/unit/kafka/test_records.py`` fails when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aiokafka
import msgspec
from aiokafka.consumer import fetcher

from headrace.core.decode.json_types import Document


class FetchedRecord(msgspec.Struct, gc=False):
    """A ``headrace.ports.Record``. The garbage collector does not track it, because it cannot be part of a cycle."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]]


class FetchedPartition(fetcher.PartitionRecords):
    """The records of a partition in one fetch, as FetchedRecords. Keys stay bytes: no key deserializer is set."""

    def _consumer_record(self, tp: aiokafka.TopicPartition, record: Any) -> FetchedRecord:
        value = record.value
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        return FetchedRecord(tp.topic, tp.partition, record.offset, record.timestamp, record.key, value, record.headers)


def use_fetched_records() -> None:
    """Make every consumer of this process return FetchedRecords."""
    fetcher.PartitionRecords = FetchedPartition
