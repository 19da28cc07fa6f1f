"""Serialize rows of the column cache, for stores outside of the process's memory (``reselect.md`` section 10).

A decoded value equals the encoded one, including its type: text and bytes are distinct, numbers keep their width and
decimals their scale (an Arrow array of one row contains its type). Truncated or modified bytes are refused.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pyarrow as pa

from headrace.core.reselect.cache.rows import Cell, CellValue, Origin, Partition, Row, Stamp

_CHECKSUM = 4
_VALUE = "value"


class _Written(msgspec.Struct, array_like=True, gc=False):
    """A cell on disk. ``arrow`` is whether ``value`` is an array in Arrow's stream format."""

    column: str
    arrow: bool
    value: Any
    fingerprint: Any
    topic: str
    partition: int
    offset: int
    position: bytes
    generation: int
    origin: Origin
    stored: int
    size: int


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[_Written])


def encode_row(row: Row) -> bytes:
    """Encode a row with its checksum. Raises ValueError for a value or fingerprint that cannot be encoded."""
    try:
        body = _ENCODER.encode([_written(column, cell) for column, cell in row.items()])
    except (TypeError, pa.ArrowException) as error:  # UnicodeEncodeError is a ValueError
        raise ValueError("the cached value cannot be encoded") from error
    return zlib.crc32(body).to_bytes(_CHECKSUM, "big") + body


def decode_row(data: bytes) -> Row:
    """Decode a row from ``encode_row``. Raises ValueError for anything else."""
    body = data[_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != data[:_CHECKSUM]:
        raise ValueError("the cached row is truncated or modified")
    try:
        return {written.column: _cell(written) for written in _DECODER.decode(body)}
    except (msgspec.DecodeError, pa.ArrowException) as error:
        raise ValueError("the cached row has another format") from error


def _written(column: str, cell: Cell) -> _Written:
    if not isinstance(cell.fingerprint, str | bytes | None):
        raise TypeError("the fingerprint is neither text nor bytes")
    arrow = isinstance(cell.value, pa.Array)
    value = _stream(cell.value) if arrow else cell.value
    partition = cell.stamp.partition
    return _Written(
        column,
        arrow,
        value,
        cell.fingerprint,
        partition.topic,
        partition.number,
        cell.stamp.offset,
        cell.stamp.position,
        cell.generation,
        cell.origin,
        cell.stored,
        cell.size,
    )


def _cell(written: _Written) -> Cell:
    value: CellValue | None = _array(written.value) if written.arrow else written.value
    stamp = Stamp(Partition(written.topic, written.partition), written.offset, written.position)
    return Cell(value, written.fingerprint, stamp, written.generation, written.origin, written.stored, written.size)


def _stream(value: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch([value], [_VALUE])
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def _array(data: bytes) -> pa.Array:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch().column(0)
