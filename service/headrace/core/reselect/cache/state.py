"""The state of the column cache besides its rows, for stores that outlive the process.

It is written when the cache is closed, and removed when it is read. After a crash it does not exist, and the rows are
dropped. A partition's rows are valid again only if the consumer resumes exactly at their end (``reselect.md`` section
5.4).
"""

from __future__ import annotations

import msgspec

from headrace.core.model.events import TableId
from headrace.core.reselect.cache.rows import Partition


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
        """Return the partition."""
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
        """Return the table with its number."""
        return KnownTable(table.name, table.database, table.schema, table.table, number, shape)

    @property
    def id(self) -> TableId:
        """Return the table's name at the source."""
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


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(CacheState)


def encode_state(state: CacheState) -> bytes:
    """Return the state as bytes."""
    return _ENCODER.encode(state)


def decode_state(encoded: bytes | None, settings: str) -> CacheState | None:
    """Return the state if it can be read and was written with the same settings, else None."""
    if encoded is None:
        return None
    try:
        state = _DECODER.decode(encoded)
    except msgspec.DecodeError:
        return None
    return state if state.settings == settings else None
