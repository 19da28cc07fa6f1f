"""Bound what a compressed batch of records may become in memory.

30 kB of zstd can contain a gigabyte. aiokafka unpacks a batch at once and without a limit, which would end the worker
again and again. Brokers limit only the compressed size (``message.max.bytes``).
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import numpy as np
from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.record import default_records, legacy_records

from headrace.core.model.errors import Fatal

LIMIT = 256 * 1024 * 1024
"""Bytes of an unpacked batch. Producers limit a request to 1 MiB of unpacked records by default."""

_FIRST_GUESS = 16
_SMALLEST = 64 * 1024


class Unpackable(Exception):
    """A batch that is larger than ``LIMIT``, or that is not what its compression says. Its checksum was right."""


def gzip_decode(payload: bytes) -> bytes:
    """Unpack gzip."""
    try:
        found = gzip.GzipFile(fileobj=io.BytesIO(payload), mode="r").read(LIMIT + 1)
    except (OSError, EOFError) as error:
        raise Unpackable from error
    if len(found) > LIMIT:
        raise Unpackable
    return found


def lz4_decode(payload: bytes) -> bytes:
    """Unpack frames of LZ4."""
    return _decoded(payload, cramjam.lz4.decompress_into)


def zstd_decode(payload: bytes) -> bytes:
    """Unpack Zstandard."""
    return _decoded(payload, cramjam.zstd.decompress_into)


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


def _decoded(payload: bytes, unpack: Callable[[bytes, Any], int]) -> bytes:
    """Unpack into a buffer of the usual size, then into the largest one. Pages that are not used take no memory."""
    for size in (min(LIMIT, max(_SMALLEST, _FIRST_GUESS * len(payload))), LIMIT):
        target = np.empty(size, np.uint8)
        try:
            content: bytes = target[: unpack(payload, target)].tobytes()
            return content
        except cramjam.DecompressionError as error:
            if size == LIMIT:
                raise Unpackable from error
    raise AssertionError("the last size is the limit")


def install() -> None:
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
    fetcher.PartitionRecords.__init__, fetcher.PartitionRecords.__next__ = _fetched, _next_record


_aiokafkas_init = fetcher.PartitionRecords.__init__


def _fetched(self: Any, *arguments: Any) -> None:
    _aiokafkas_init(self, *arguments)
    self.fetched_from = self.next_fetch_offset


def _next_record(self: Any) -> Any:
    """Return the next record of a fetched partition (``PartitionRecords.__next__``).

    Raises Fatal for the first batch of a fetch only: the records before another one are delivered, and the next fetch
    begins with it. So an operator who skips the batch skips nothing else.
    """
    try:
        return next(self._records_iterator)
    except StopIteration:
        self._records_iterator = None  # as aiokafka does, which breaks a reference cycle
        raise
    except Unpackable as error:
        self._records_iterator = None
        if self.next_fetch_offset > self.fetched_from:
            raise StopIteration from error
        raise Fatal(
            f"{self._tp.topic}-{self._tp.partition} at offset {self.next_fetch_offset}: the compressed batch is larger "
            f"than {LIMIT >> 20} MiB when it is unpacked, or cannot be unpacked; delete it (kafka-delete-records.sh), "
            "or set the connector's offset behind it (PATCH /connectors/NAME/offsets), then restart the task"
        ) from error
