"""The rows of the reselect column cache, and the store that keeps them in memory.

``reselect.md`` sections 5.1 and 5.5 describe the content of an entry, and the limits (rows, bytes, bytes per table).
The rules of the cache are in ``core/reselect/cache/column_cache.py``; a store only keeps rows and may fail.

``GuardedRows`` handles the failures of a store (section 5.5). A failed read is a miss. A failed write poisons the row,
and a failed drop of a table the table: the entries that may still be in the store are not served until a write has
succeeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias

import cachetools
import pyarrow as pa

CellValue: TypeAlias = "str | bytes | pa.Array"
"""A cached value: text or bytes, otherwise an Arrow array of one row that shares no buffer with others."""

ROW_OVERHEAD = 200  # approximate bytes of Python's objects for a row and for a cell, besides the values
CELL_OVERHEAD = 150


class Partition(NamedTuple):
    """A topic's partition."""

    topic: str
    number: int


class Origin(StrEnum):
    """The origin of a cached value: a change event, or a query."""

    EVENT = "event"
    DB = "db"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The event for which a cell is read or written: its coordinate, and its source position (b"" for none)."""

    partition: Partition
    offset: int
    position: bytes = b""


@dataclass(frozen=True, slots=True)
class Hit:
    """A cached value; None is a cached null, which is not a miss."""

    value: CellValue | None


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """Limits of a cache, 0 or None for none; ``ttl`` in milliseconds, 0 = never expires."""

    max_rows: int = 10_000
    max_bytes: int = 256 << 20
    max_columns: int = 200
    max_value_bytes: int = 8 << 20
    max_table_bytes: int | None = None
    ttl: int = 600_000


@dataclass(frozen=True, slots=True)
class CacheUse:
    """The use of a cache: rows, approximate bytes, and rows that must not be served because a write failed.

    ``oldest`` is the age of its oldest cell in milliseconds, None without cells, or if the store cannot determine it.
    """

    rows: int
    bytes: int
    poisoned: int
    oldest: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """An entry: the value and the conditions under which it may be served (section 5.1); ``size`` in bytes."""

    value: CellValue | None
    fingerprint: object
    stamp: Stamp
    generation: int
    origin: Origin
    stored: int
    size: int


def value_size(value: CellValue | None) -> int:
    if value is None:
        return 0
    return int(value.nbytes) if isinstance(value, pa.Array) else len(value)


class RowKey(NamedTuple):
    """A row: the number that the cache gave to the table and its key schema, and the canonical key text."""

    table: int
    key: str


Row = Mapping[str, Cell]
"""The cells of a row by column, least recently used first."""


class StoreFailed(Exception):
    """The store could not read or write a row. Failed reads are misses, failed writes poison the row."""


class RowStore(Protocol):
    """A store of rows. Every method may raise StoreFailed.

    ``durable`` is whether rows outlive the process. ``save`` and ``load`` are for the cache's state: it is saved after
    all rows were written, and removed when it is loaded, so that a crash leaves none. ``evicted`` counts the rows that
    were evicted because of a limit.
    """

    durable: bool
    evicted: int

    def get(self, key: RowKey) -> Row | None:
        """Return the row and mark it as used; None if it is missing."""

    def put(self, key: RowKey, row: Row) -> None:
        """Replace the row; older rows may be evicted."""

    def drop(self, key: RowKey) -> None:
        """Remove the row if it exists."""

    def keys(self, table: int | None) -> Collection[RowKey]:
        """Return the keys of a table, or of all tables."""

    def holds(self, table: int) -> bool:
        """Return whether a table has any row."""

    def drop_table(self, table: int | None) -> int:
        """Remove all rows of a table, or of all tables; return their number."""

    def oldest(self) -> int | None:
        """Return when the oldest cell was stored, by the cache's clock; None without cells, or if that is expensive."""

    def load(self) -> bytes | None:
        """Read and remove the state that was saved last; None if there is none."""

    def save(self, state: bytes) -> None:
        """Store a state for the next process."""

    def close(self) -> None:
        """Close the store. Idempotent."""

    @property
    def size(self) -> int:
        """Return the approximate bytes in use."""

    def __len__(self) -> int: ...


class MemoryRowStore:
    """Rows in memory: one LRU of all tables, with limits on rows and bytes, and an optional quota per table."""

    durable = False

    def __init__(self, limits: CacheLimits) -> None:
        self._limits = limits
        self._rows = _LruRows(limits.max_bytes or float("inf"), self._on_eviction)
        self._by_table: dict[int, dict[RowKey, None]] = {}
        self._table_bytes: Counter[int] = Counter()
        self._stored: dict[RowKey, int] = {}
        self.evicted = 0

    def get(self, key: RowKey) -> Row | None:
        row = self._rows.get(key)
        if row is not None:
            self._touch(key)
        return row

    def put(self, key: RowKey, row: Row) -> None:
        self.drop(key)
        size = row_size(row)
        if self._limits.max_bytes and size > self._limits.max_bytes:
            return
        self._rows[key] = row
        self._touch(key)
        self._table_bytes[key.table] += size
        self._stored[key] = min((cell.stored for cell in row.values()), default=0)
        self._evict(key.table)

    def drop(self, key: RowKey) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self._subtract(key, row)

    def keys(self, table: int | None) -> Collection[RowKey]:
        return list(self._rows) if table is None else list(self._by_table.get(table, ()))

    def holds(self, table: int) -> bool:
        return bool(self._by_table.get(table))

    def drop_table(self, table: int | None) -> int:
        keys = self.keys(table)
        for key in keys:
            self.drop(key)
        return len(keys)

    def oldest(self) -> int | None:
        return min(self._stored.values(), default=None)

    def load(self) -> bytes | None:
        return None

    def save(self, state: bytes) -> None:
        """Do nothing: no state outlives the process."""

    def close(self) -> None:
        """Do nothing."""

    @property
    def size(self) -> int:
        return int(self._rows.currsize)

    def __len__(self) -> int:
        return len(self._rows)

    def _evict(self, table: int) -> None:
        while self._limits.max_rows and len(self._rows) > self._limits.max_rows:
            self._rows.popitem()
        quota = self._limits.max_table_bytes
        while quota and self._table_bytes[table] > quota and self._by_table.get(table):  # proven: S35
            self.drop(next(iter(self._by_table[table])))
            self.evicted += 1

    def _touch(self, key: RowKey) -> None:
        order = self._by_table.setdefault(key.table, {})
        order.pop(key, None)
        order[key] = None

    def _on_eviction(self, key: RowKey, row: Row) -> None:
        self.evicted += 1
        self._subtract(key, row)

    def _subtract(self, key: RowKey, row: Row) -> None:
        self._by_table[key.table].pop(key, None)
        self._table_bytes[key.table] -= row_size(row)
        self._stored.pop(key, None)


class _LruRows(cachetools.LRUCache[RowKey, Row]):
    """An LRU with a limit on bytes, which reports evictions."""

    def __init__(self, max_bytes: float, on_eviction: Callable[[RowKey, Row], None]) -> None:
        super().__init__(max_bytes, getsizeof=row_size)
        self._on_eviction = on_eviction

    def popitem(self) -> tuple[RowKey, Row]:
        key, row = super().popitem()
        self._on_eviction(key, row)
        return key, row


def row_size(row: Row) -> int:
    return ROW_OVERHEAD + sum(cell.size for cell in row.values())


class GuardedRows:
    """Guards the rows of ``store``."""

    def __init__(self, store: RowStore) -> None:
        self.store = store
        self._poisoned: set[RowKey] = set()
        self._poisoned_tables: set[int | None] = set()

    @property
    def sound(self) -> bool:
        return not self._poisoned and not self._poisoned_tables

    @property
    def poisoned(self) -> int:
        """Return the number of rows that must not be served, without those of tables that could not be dropped."""
        return len(self._poisoned)

    def is_poisoned(self, key: RowKey) -> bool:
        if key in self._poisoned:
            return True
        return bool(self._poisoned_tables) and not self._poisoned_tables.isdisjoint((key.table, None))

    def get(self, key: RowKey) -> Row | None:
        """Return the row in the store; None if it is missing or cannot be read."""
        try:
            return self.store.get(key)
        except StoreFailed:
            return None

    def base(self, key: RowKey) -> Row | None:
        """Return the row that a change is applied to; None if it is unknown."""
        if self.is_poisoned(key):
            return {}
        try:
            return self.store.get(key) or {}
        except StoreFailed:
            return None

    def write(self, key: RowKey, row: Row) -> None:
        """Replace the row; an empty one is removed."""
        try:
            if row:
                self.store.put(key, row)
            else:
                self.store.drop(key)
        except StoreFailed:
            self._poisoned.add(key)  # proven: S29
        else:
            self._poisoned.discard(key)

    def drop_table(self, table: int | None) -> int:
        """Remove the rows of a table, or of all tables; return their number."""
        try:
            dropped = self.store.drop_table(table)
        except StoreFailed:
            self._poisoned_tables.add(table)
            return 0
        self._poisoned_tables.discard(table)
        self._poisoned = {key for key in self._poisoned if table is not None and key.table != table}
        return dropped

    def load(self) -> bytes | None:
        """Return the state that the last process stored; None if there is none."""
        try:
            return self.store.load()
        except StoreFailed:
            return None

    def retry(self) -> None:
        for table in list(self._poisoned_tables):
            self.drop_table(table)
