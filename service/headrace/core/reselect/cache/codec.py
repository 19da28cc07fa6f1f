"""Serialize rows of the column cache, for stores outside of the process's memory (``reselect.md`` section 10).

A decoded value equals the encoded one, including its type: text and bytes are distinct, numbers keep their width and
decimals their scale (an Arrow array of one row contains its type). Truncated or modified bytes are rejected.

The state of the cache besides its rows is written when the cache is closed, and removed when it is read. After a crash
it does not exist, and the cache drops the rows. A partition's rows are valid again only if the consumer resumes exactly
at their end (section 5.4).

Tests: ``tests/unit/core/reselect/cache/test_cache_codec.py``.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pyarrow as pa

from headrace.core.model.events import TableId
from headrace.core.reselect.cache.rows import Cell, CellValue, Origin, Partition, Row, Stamp

_CHECKSUM_BYTES = 4
_VALUE_COLUMN = "value"


class _StoredCell(msgspec.Struct, array_like=True, gc=False):
    """A cell in a store. ``value`` is an array in Arrow's stream format if ``arrow`` is true."""

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
    except (TypeError, pa.ArrowException) as error:  # UnicodeEncodeError (half of a surrogate pair) is a ValueError
        raise ValueError("the cached value cannot be encoded") from error
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") + body


def decode_row(data: bytes) -> Row:
    """Decode a row from ``encode_row``. Raises ValueError for anything else."""
    body = data[_CHECKSUM_BYTES:]
    if zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "big") != data[:_CHECKSUM_BYTES]:
        raise ValueError("the cached row is truncated or modified")
    try:
        return {stored_cell.column: _from_stored(stored_cell) for stored_cell in _DECODER.decode(body)}
    except (msgspec.DecodeError, pa.ArrowException) as error:
        raise ValueError("the cached row has another format") from error


def _to_stored(column: str, cell: Cell) -> _StoredCell:
    if not isinstance(cell.fingerprint, str | bytes | None):
        raise TypeError("the fingerprint is neither text nor bytes")
    arrow = isinstance(cell.value, pa.Array)
    value: Any = cell.value
    if arrow:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([value], [_VALUE_COLUMN])
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


def _from_stored(cell: _StoredCell) -> Cell:
    value: CellValue | None = cell.value
    if cell.arrow:
        with pa.ipc.open_stream(cell.value) as reader:
            value = reader.read_next_batch().column(0)
    stamp = Stamp(Partition(cell.topic, cell.partition), cell.offset, cell.position)
    return Cell(value, cell.fingerprint, stamp, cell.generation, cell.origin, cell.stored, cell.size)


class ParkedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition without an assignment whose rows are kept for one that resumes at ``next_offset``.

    All earlier events are applied to the rows, except for lost ones: cells from before ``lost``, the offset of the last
    of them (-1 for none), are invalid.
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
    """The state when a process closes its cache. ``settings`` are the options on which cached values depend.

    ``clock`` is the last time of the cache's clock, by which the ages of cells are measured, and ``wall`` the Unix time
    at the same moment; both in milliseconds.
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
