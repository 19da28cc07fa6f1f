"""A smaller class for the records of aiokafka's consumers.

aiokafka creates a dataclass instance with eleven fields and a dictionary for every record, and Headrace keeps tens of
thousands of them until their batch is decoded. Only seven fields are used (``headrace.ports.Record``), and the epoch of
the leader that wrote the record, which aiokafka does not read. The replaced classes are private to aiokafka, whose
version is pinned; ``tests/unit/kafka/test_records.py`` fails when they change.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import aiokafka
import msgspec
from aiokafka.consumer import fetcher
from aiokafka.record.memory_records import MemoryRecords

from headrace.core.decode.json_converter import Document


class FetchedRecord(msgspec.Struct, gc=False):
    """A ``headrace.ports.Record``. The garbage collector does not track it, because it cannot be part of a cycle."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | Document | None
    headers: Sequence[tuple[str, bytes]]
    leader_epoch: int = -1


_BATCH = struct.Struct(">qiib")
"""The begin of a batch: base offset, length of what follows the length, leader epoch (from version 2 on), version."""
_LENGTH_END = 12


class FetchedBatches(MemoryRecords):
    """The batches of a partition in one fetch. ``epochs`` are their leader epochs, each with its first offset."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.epochs: list[tuple[int, int]] = []
        at = 0
        while at + _BATCH.size <= len(content):
            offset, length, epoch, version = _BATCH.unpack_from(content, at)
            if version < 2:
                epoch = -1
            if not self.epochs or self.epochs[-1][1] != epoch:
                self.epochs.append((offset, epoch))
            at += _LENGTH_END + max(length, 0)  # aiokafka refuses a batch whose length is wrong


class FetchedPartition(fetcher.PartitionRecords):
    """The records of a partition in one fetch, as FetchedRecords. Keys stay bytes: no key deserializer is set."""

    def __init__(self, partition: aiokafka.TopicPartition, batches: Any, *arguments: Any) -> None:
        super().__init__(partition, batches, *arguments)
        self._epochs = list(getattr(batches, "epochs", ()))
        self._epoch = self._epochs.pop(0)[1] if self._epochs else -1

    def _consumer_record(self, tp: aiokafka.TopicPartition, record: Any) -> FetchedRecord:
        value = record.value
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        while self._epochs and record.offset >= self._epochs[0][0]:
            self._epoch = self._epochs.pop(0)[1]
        return FetchedRecord(
            tp.topic, tp.partition, record.offset, record.timestamp, record.key, value, record.headers, self._epoch
        )


def use_fetched_records() -> None:
    """Make every consumer of this process return FetchedRecords."""
    fetcher.PartitionRecords, fetcher.MemoryRecords = FetchedPartition, FetchedBatches
