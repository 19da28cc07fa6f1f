"""Records as a consumer fetches them: unpacked within a limit, small in memory, and in numbered chunks.

aiokafka creates a dataclass instance with eleven fields and a dictionary for every record, and Headrace keeps tens of
thousands of them until their batch is decoded. Only seven fields are used (``headrace.ports.Record``), and the epoch of
the leader that wrote the record, which aiokafka does not read.

30 kB of zstd can contain a gigabyte. aiokafka unpacks a batch at once and without a limit, which would end the worker
again and again. Brokers limit only the compressed size (``message.max.bytes``).

The replaced classes and functions are private to aiokafka, whose version is pinned;
``tests/unit/kafka/test_records.py`` fails when they change.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import aiokafka
import cramjam
import google_crc32c
import msgspec
import numpy as np
from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.errors import CorruptRecordException
from aiokafka.record import default_records, legacy_records
from aiokafka.record.memory_records import MemoryRecords

from headrace.core.decode.json_converter import Document
from headrace.core.model.errors import Fatal
from headrace.ports import Chunk, Record, TopicPartition


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


_BATCH = struct.Struct(">qiibI")
"""The begin of a batch from version 2 on: base offset, length of what follows the length, leader epoch, version, CRC.

In older versions, the first two and the version are in the same places.
"""
_LENGTH_END, _CRC_END = 12, 21


class FetchedBatches(MemoryRecords):
    """The batches of a partition in one fetch. ``epochs`` are their leader epochs, each with its first offset."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.epochs: list[tuple[int, int]] = []
        self._content = content
        self._checksums: deque[tuple[int, int, int, slice]] = deque()  # offset, version, checksum, and what it covers
        self._checked: aiokafka.TopicPartition | None = None
        at = 0
        while at + _BATCH.size <= len(content):
            offset, length, epoch, version, checksum = _BATCH.unpack_from(content, at)
            if version < 2:
                epoch = -1
            if not self.epochs or self.epochs[-1][1] != epoch:
                self.epochs.append((offset, epoch))
            end = at + _LENGTH_END + max(length, 0)  # aiokafka refuses a batch whose length is wrong
            self._checksums.append((offset, version, checksum, slice(at + _CRC_END, end)))
            at = end

    def check_crcs(self, partition: aiokafka.TopicPartition) -> None:
        """Let ``next_batch`` compare checksums, and name this partition in the error.

        aiokafka computes them without the CPU's instruction, which takes half of the time of a fetch.
        """
        self._checked = partition

    def next_batch(self) -> Any:
        """Return the next batch. Raises CorruptRecordException for one that does not have its checksum."""
        batch = super().next_batch()
        offset, version, checksum, covered = self._checksums.popleft()
        if self._checked is not None:
            is_intact = batch.validate_crc() if version < 2 else google_crc32c.value(self._content[covered]) == checksum
            if not is_intact:
                raise CorruptRecordException(
                    f"{self._checked.topic}-{self._checked.partition} at offset {offset}: the batch does not have its "
                    "checksum"
                )
        return batch


class FetchedPartition(fetcher.PartitionRecords):
    """The records of a partition in one fetch, as FetchedRecords. Keys stay bytes: no key deserializer is set."""

    def __init__(
        self,
        partition: aiokafka.TopicPartition,
        batches: FetchedBatches,
        aborted: Any,
        offset: int,
        key_deserializer: Any,
        value_deserializer: Any,
        check_crcs: bool,
        isolation_level: int,
    ) -> None:
        if check_crcs:
            batches.check_crcs(partition)
        super().__init__(
            partition, batches, aborted, offset, key_deserializer, value_deserializer, False, isolation_level
        )
        self._topic, self._partition = partition.topic, partition.partition
        self._epochs = list(batches.epochs)
        self._epoch = self._epochs.pop(0)[1] if self._epochs else -1

    def _consumer_record(self, tp: aiokafka.TopicPartition, record: Any) -> FetchedRecord:
        value, offset = record.value, record.offset
        if self._value_deserializer is not None:
            value = self._value_deserializer(value)
        while self._epochs and offset >= self._epochs[0][0]:
            self._epoch = self._epochs.pop(0)[1]
        return FetchedRecord(
            self._topic, self._partition, offset, record.timestamp, record.key, value, record.headers, self._epoch
        )


def use_fetched_records() -> None:
    """Make every consumer of this process return FetchedRecords."""
    fetcher.PartitionRecords, fetcher.MemoryRecords = FetchedPartition, FetchedBatches


LIMIT = 256 * 1024 * 1024
"""Bytes of an unpacked batch. Producers limit a request to 1 MiB of unpacked records by default."""

_FIRST_GUESS = 64
"""How many times as large as the packed batch the first buffer is: zstd packs JSON with schemas to a fortieth."""
_SMALLEST = 1088 * 1024
"""The first buffer of small batches: a request of the size to which producers are limited by default, and a margin."""


class Unpackable(Exception):
    """A batch that is larger than ``LIMIT``, or that is not what its compression says. Its checksum was right."""


def gzip_decode(payload: bytes) -> bytes:
    return _decompress(payload, cramjam.gzip.decompress_into)


def lz4_decode(payload: bytes) -> bytes:
    return _decompress(payload, cramjam.lz4.decompress_into)


def zstd_decode(payload: bytes) -> bytes:
    return _decompress(payload, cramjam.zstd.decompress_into)


def snappy_decode(payload: bytes) -> bytes:
    """Unpack Snappy, with Xerial's frames or without. Each block begins with its unpacked size."""
    try:
        if sum(map(cramjam.snappy.decompress_raw_len, _snappy_blocks(payload))) > LIMIT:
            raise Unpackable
        content: bytes = codec.snappy_decode(payload)
    except (cramjam.DecompressionError, struct.error) as error:
        raise Unpackable from error
    return content


def _snappy_blocks(payload: bytes) -> list[memoryview]:
    content = memoryview(payload)
    if not codec._detect_xerial_stream(payload):
        return [content]
    blocks, at = [], 16
    while at < len(content):
        [size] = struct.unpack_from("!i", content, at)
        if size < 0:
            raise Unpackable
        blocks.append(content[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


def _decompress(payload: bytes, unpack: Callable[[bytes, Any], int]) -> bytes:
    """Unpack into a buffer that nearly always suffices, then into the largest one. Unused pages take no memory."""
    for size in (min(LIMIT, max(_SMALLEST, _FIRST_GUESS * len(payload))), LIMIT):
        target = np.empty(size, np.uint8)
        try:
            content: bytes = target[: unpack(payload, target)].tobytes()
            return content
        except cramjam.DecompressionError as error:
            if size == LIMIT:
                raise Unpackable from error
    raise AssertionError("the last size is the limit")


def limit_unpacking() -> None:
    """Let aiokafka's readers of batches use these functions, and name the batch in errors."""
    readers: list[Any] = [default_records, legacy_records]
    try:
        from aiokafka.record._crecords import default_records as compiled
        from aiokafka.record._crecords import legacy_records as compiled_legacy

        readers += [compiled, compiled_legacy]
    except ImportError:  # aiokafka without its extension
        pass
    for reader in readers:
        for function in (gzip_decode, lz4_decode, snappy_decode, zstd_decode):
            if hasattr(reader, function.__name__):  # the old format has no Zstandard
                setattr(reader, function.__name__, function)
    fetcher.PartitionRecords._unpack_records = _unpack_records


_aiokafkas_unpack_records = fetcher.PartitionRecords._unpack_records


def _unpack_records(self: Any) -> Iterator[Any]:
    """Yield the records of a fetched partition (``PartitionRecords._unpack_records``).

    Raises Fatal for the first batch of a fetch only: the records before another one are delivered, and the next fetch
    begins with it. So an operator who skips the batch skips nothing else.
    """
    fetched_from = self.next_fetch_offset
    try:
        yield from _aiokafkas_unpack_records(self)
    except Unpackable as error:
        if self.next_fetch_offset > fetched_from:
            return
        raise Fatal(
            f"{self._tp.topic}-{self._tp.partition} at offset {self.next_fetch_offset}: the compressed batch is larger "
            f"than {LIMIT >> 20} MiB when it is unpacked, or cannot be unpacked; delete it (kafka-delete-records.sh), "
            "or set the connector's offset behind it (PATCH /connectors/NAME/offsets), then restart the task"
        ) from error


CHUNK_BYTES = 8 * 1024 * 1024
_FIRST_POLL = 500
_SAMPLE = 16


def limit_polls() -> None:
    """Let aiokafka end a poll of a partition with the record that makes it ``CHUNK_BYTES``, however many may follow."""
    fetcher.FetchResult.getall = _get_all


def _get_all(self: Any, max_records: int | None = None) -> list[Any]:
    """Return the next records of a fetch (``FetchResult.getall``); the next poll continues behind them."""
    if not self.check_assignment(self._topic_partition) or not self.has_more():
        return []
    records: list[Any] = []
    size = 0
    for record in self._partition_records._records_iterator:
        records.append(record)
        value = record.value
        # ``Document.__len__`` would be two calls in Python for each record, which take longer than this line.
        size += len(value.payload if type(value) is Document else value or b"") + len(record.key or b"")
        if size >= CHUNK_BYTES or len(records) == max_records:
            self._update_position()
            return records
    self._update_position()
    self._partition_records = None
    return records


class ChunkNumbering:
    """Numbers the chunks of one group member (``kafka-client.md`` section 2.3).

    ``epoch`` counts assignments from 1; within one, ``sequence`` counts chunks from 0 and each chunk of a partition
    begins where the one before it ended. The first one begins at its first record.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._sequence = 0
        self._ends: dict[TopicPartition, int] = {}

    def next_epoch(self) -> None:
        """Begin a new assignment, to which all later chunks belong."""
        self.epoch += 1
        self._sequence = 0
        self._ends.clear()

    def chunk(
        self, partition: TopicPartition, records: Sequence[Record], end: int, behind: int = 0, since: float = inf
    ) -> Chunk:
        """Return the next chunk. ``end`` is the fetch position after ``records``, gaps and transaction markers."""
        begin = self._ends.get(partition, records[0].offset)
        self._ends[partition] = end
        sequence, self._sequence = self._sequence, self._sequence + 1
        return Chunk(self.epoch, sequence, partition, records, begin, end, behind, since=since)


class PollSize:
    """The number of records to poll, so that a poll has about ``CHUNK_BYTES`` for any size of rows and any partitions.

    The client limits only compressed bytes, and JSON with schemas is compressed to a tenth. The limit decreases at once
    for larger records, and increases gradually for smaller ones. ``limit_polls`` limits what is not observed yet.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._record_bytes = CHUNK_BYTES / _FIRST_POLL

    @property
    def records(self) -> int:
        """The maximum number of records of the next poll, at least 1."""
        return max(1, min(self._most, int(CHUNK_BYTES / self._record_bytes)))

    def observe(self, records: Sequence[Record]) -> None:
        sample = records[::_SAMPLE]
        mean = 1 + sum(len(record.value or b"") + len(record.key or b"") for record in sample) / len(sample)
        self._record_bytes = max(mean, (self._record_bytes + mean) / 2)
