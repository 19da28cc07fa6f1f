"""Serialize rows of the column cache, for stores outside of the process's memory (``reselect.md`` section 10).

A decoded value equals the encoded one, including its type: text and bytes are distinct, numbers keep their width and
decimals their scale (an Arrow array of one row contains its type). Truncated or modified bytes are refused.

The state of the cache besides its rows is written when the cache is closed, and removed when it is read. After a crash
it does not exist, and the rows are dropped. A partition's rows are valid again only if the consumer resumes exactly at
their end (section 5.4).

Tests: ``tests/unit/core/reselect/cache/test_cache_codec.py``.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pyarrow as pa

from headrace.core.model.events import TableId
from headrace.core.reselect.cache.rows import Cell, CellValue, Origin, Partition, Row, Stamp

_CHECKSUM = 4
_VALUE = "value"


class _StoredCell(msgspec.Struct, array_like=True, gc=False):
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
_DECODER = msgspec.msgpack.Decoder(list[_StoredCell])


def encode_row(row: Row) -> bytes:
    """Encode a row with its checksum. Raises ValueError for a value or fingerprint that cannot be encoded."""
    try:
        body = _ENCODER.encode([_to_stored(column, cell) for column, cell in row.items()])
    except (TypeError, pa.ArrowException) as error:  # UnicodeEncodeError is a ValueError
        raise ValueError("the cached value cannot be encoded") from error
    return zlib.crc32(body).to_bytes(_CHECKSUM, "big") + body


def decode_row(data: bytes) -> Row:
    """Decode a row from ``encode_row``. Raises ValueError for anything else."""
    body = data[_CHECKSUM:]
    if zlib.crc32(body).to_bytes(_CHECKSUM, "big") != data[:_CHECKSUM]:
        raise ValueError("the cached row is truncated or modified")
    try:
        return {written.column: _from_stored(written) for written in _DECODER.decode(body)}
    except (msgspec.DecodeError, pa.ArrowException) as error:
        raise ValueError("the cached row has another format") from error


def _to_stored(column: str, cell: Cell) -> _StoredCell:
    if not isinstance(cell.fingerprint, str | bytes | None):
        raise TypeError("the fingerprint is neither text nor bytes")
    arrow = isinstance(cell.value, pa.Array)
    value: Any = cell.value
    if arrow:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([value], [_VALUE])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        value = bytes(sink.getvalue())
    partition = cell.stamp.partition
    return _StoredCell(
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


def _from_stored(written: _StoredCell) -> Cell:
    value: CellValue | None = written.value
    if written.arrow:
        with pa.ipc.open_stream(written.value) as reader:
            value = reader.read_next_batch().column(0)
    stamp = Stamp(Partition(written.topic, written.partition), written.offset, written.position)
    return Cell(value, written.fingerprint, stamp, written.generation, written.origin, written.stored, written.size)


class ParkedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A parked partition: the generation of its rows, and the offset of the first event that is not applied to them.

    Rows from before ``lost``, an event that was not applied, are invalid.
    """

    topic: str
    number: int
    generation: int
    next_offset: int
    lost: int = -1

    @property
    def partition(self) -> Partition:
        return Partition(self.topic, self.number)


class KnownTable(msgspec.Struct, frozen=True, array_like=True):
    """A table: the number in the keys of its rows, and their shape (columns, key, catalog)."""

    name: str
    database: str
    schema: str
    table: str
    number: int
    shape: str | None

    @staticmethod
    def of(table: TableId, number: int, shape: str | None) -> KnownTable:
        return KnownTable(table.name, table.database, table.schema, table.table, number, shape)

    @property
    def id(self) -> TableId:
        return TableId(self.name, self.database, self.schema, self.table)


class CacheState(msgspec.Struct, frozen=True):
    """The state at the end of a process. ``settings`` are the options on which cached values depend.

    ``clock`` is the final time of the clock for the store times of cells, in milliseconds, and ``wall`` the Unix time
    then.
    """

    settings: str
    clock: int
    wall: int
    last_generation: int
    partitions: list[ParkedPartition] = []
    tables: list[KnownTable] = []


_STATE_ENCODER = msgspec.msgpack.Encoder()
_STATE_DECODER = msgspec.msgpack.Decoder(CacheState)


def encode_state(state: CacheState) -> bytes:
    return _STATE_ENCODER.encode(state)


def decode_state(encoded: bytes | None, settings: str) -> CacheState | None:
    """Return the state if it can be read and was written with the same settings, else None."""
    if encoded is None:
        return None
    try:
        state = _STATE_DECODER.decode(encoded)
    except msgspec.DecodeError:
        return None
    return state if state.settings == settings else None
