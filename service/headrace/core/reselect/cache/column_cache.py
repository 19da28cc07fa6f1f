"""The reselect column cache: the last known values of columns that later events may omit.

    cache.begin(table) -> CacheBatch          one batch of one table: an overlay over the shared rows
    batch.for_row(key, stamp) -> RowCache     get | put | invalidate | drop
    batch.publish() | batch.discard()         after the table commit | when the batch failed

The contract is ``reselect.md`` section 5. The two main laws are: a delete or truncate makes every later get of that row
a miss, and a real value in an event replaces the cached one before any lookup. A miss is always safe. A row that should
have been dropped is never safe: if the store cannot drop it, the row is poisoned until a write succeeds.

A store may outlive the process. It keeps the rows of a revoked partition until an assignment that resumes at exactly
their end (``resume``), also after a clean restart; after a crash they are dropped.

Names are Debezium's (``ReselectColumnCache``, ``RowCache``, ``Hit``). Unlike Debezium's cache, one LRU contains all
rows, with limits on rows and bytes. Not thread-safe: ``runtime/pipeline/column_cache_service.py`` locks each use.

Tests: ``tests/unit/core/reselect/cache/test_cache.py``, ``tests/reselect_cases/test_cache_rules.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.core.model.events import TableId
from headrace.core.reselect.cache.assignments import CacheAssignments
from headrace.core.reselect.cache.codec import CacheState, KnownTable, decode_state, encode_state
from headrace.core.reselect.cache.rows import (
    CELL_OVERHEAD,
    CacheLimits,
    CacheUse,
    Cell,
    CellValue,
    GuardedRows,
    Hit,
    Origin,
    Partition,
    Row,
    RowKey,
    RowStore,
    Stamp,
    StoreFailed,
    value_size,
)

_OLDEST_INTERVAL_MS = 10_000
"""The interval of searches for the oldest cell, for which a store reads all rows."""


class ReselectColumnCache:
    """The rules of the cache over a store of rows. ``clock`` returns monotonic milliseconds, ``wall`` Unix time.

    ``is_placeholder`` identifies values that must never be cached; ``settings`` are the options on which cached values
    depend, as one text. ``counts`` contains the outcomes of section 9: ``("requests", result)``, ``("writes", origin,
    result)`` and ``("drops", cause)``.
    """

    def __init__(
        self,
        store: RowStore,
        limits: CacheLimits,
        clock: Callable[[], int],
        is_placeholder: Callable[[object], bool],
        settings: str = "",
        wall: Callable[[], int] = lambda: 0,
    ) -> None:
        self.limits = limits
        self.counts: Counter[tuple[str, ...]] = Counter()
        self._rows = GuardedRows(store)
        self._clock = clock
        self._is_placeholder = is_placeholder
        self._tables: dict[TableId, int] = {}
        self._shapes: dict[TableId, object] = {}
        self._epochs: Counter[int] = Counter()
        self._assignments = CacheAssignments()
        self._drop_markers: dict[RowKey, int] = {}
        """The offset of the last drop of a row, while batches are open that began before the drop.

        Example: batch A queries row 1 for an event at offset 5; batch B publishes the delete of row 1 at offset 8. The
        row is not stored any more, so only the marker rejects the older value that A publishes later.
        """
        self._open_batches = 0
        self._counted_evictions = 0
        self._settings = settings
        self._wall = wall
        self._clock_base = 0
        self._closed = False
        self._oldest_read: int | None = None  # when, by the cache's clock
        self._oldest_stored: int | None = None
        self._restore()

    def begin(self, table: TableId, shape: object, fingerprints: Mapping[str, object]) -> CacheBatch:
        """Start a batch of one table. A shape (key, columns) other than the last one drops the table's rows.

        ``fingerprints`` describes the current form of values by cacheable column; a cell with another one is a miss.
        """
        if self._shapes.get(table, shape) != shape:
            self.drop_table(table, "schema")  # proven: N13
        self._rows.retry()
        self._shapes[table] = shape
        self._open_batches += 1
        return CacheBatch(self, self._number(table), fingerprints)

    def holds(self, table: TableId) -> bool:
        return self._rows.store.holds(self._number(table))

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Begin an assignment: entries of an earlier one are dropped, or wait for ``resume``."""
        assigned = list(partitions)
        if not self._rows.store.durable:
            for partition in assigned:
                self._drop_partition(partition, "assign")  # proven: S6-assigned
        self._assignments.begin(assigned)

    def resume(self, partition: Partition, position: int) -> None:
        """Resume at ``position``, the assignment's first event: entries that end exactly there are valid again."""
        self._assignments.resume(partition, position)

    def mark_durable(self, offsets: Mapping[Partition, int]) -> None:
        """Mark the events before these offsets as durable: they are in all tables, and applied to the cache."""
        self._assignments.mark_durable(offsets)

    def revoke(self, partitions: Iterable[Partition]) -> None:
        """Reject puts for the partitions, and serve none of their entries."""
        for partition in partitions:
            self._assignments.end(partition, park=self._rows.store.durable)
            if not self._rows.store.durable:
                self._drop_partition(partition, "revoke")  # proven: S6-revoked

    def lose(self, partition: Partition, offset: int) -> None:
        """Register an event that was not applied (undecodable, dead-lettered): the values that it changed are unknown.

        The row that it changed may be unknown, so all entries of the partition are dropped. Older ones that batches in
        flight contain are rejected (section 5.2).
        """
        self._assignments.lose(partition, offset)
        if not self._rows.store.durable:  # a durable store keeps the rows but does not serve them
            self._drop_partition(partition, "lost")

    def drop_table(self, table: TableId, cause: str) -> None:
        """Drop all rows of a table and raise its epoch, so that reads in flight are rejected."""
        number = self._number(table)
        self._epochs[number] += 1  # proven: drop-ends-reads
        self.counts["drops", cause] += self._rows.drop_table(number)

    def drop_topic(self, topic: str, cause: str) -> None:
        """Drop the rows that came from a topic (its partition count changed, its offsets were set…)."""
        for partition in self._assignments.of_topic(topic):
            self._drop_partition(partition, cause)

    def clear(self, cause: str) -> None:
        for number in self._tables.values():
            self._epochs[number] += 1
        self.counts["drops", cause] += self._rows.drop_table(None)

    def close(self) -> None:
        """Close the store; idempotent. A durable one keeps its rows for the next process if no write has failed."""
        closed, self._closed = self._closed, True
        if not closed and self._rows.store.durable and self._rows.sound:
            with suppress(StoreFailed):
                shapes = {table: shape for table, shape in self._shapes.items() if isinstance(shape, str)}
                tables = [KnownTable.of(table, number, shapes.get(table)) for table, number in self._tables.items()]
                last, parked = self._assignments.park_all()
                state = CacheState(self._settings, self._now(), self._wall(), last, parked, tables)
                self._rows.store.save(encode_state(state))
        self._rows.store.close()

    def __len__(self) -> int:
        return len(self._rows.store)

    @property
    def size(self) -> int:
        return self._rows.store.size

    def use(self) -> CacheUse:
        """Return the use of the cache; add the evictions since the last call to ``counts``."""
        evicted = self._rows.store.evicted
        self.counts["drops", "evicted"] += evicted - self._counted_evictions
        self._counted_evictions = evicted
        now = self._now()
        if self._oldest_read is None or now - self._oldest_read >= _OLDEST_INTERVAL_MS:
            self._oldest_read, self._oldest_stored = now, self._rows.store.oldest()
        oldest = None if self._oldest_stored is None else now - self._oldest_stored
        return CacheUse(len(self), self.size, self._rows.poisoned, oldest)

    # -- for CacheBatch and RowCache ------------------------------------------------------------------------

    def epoch(self, table: int) -> int:
        return self._epochs[table]

    def read(self, key: RowKey, column: str, stamp: Stamp, fingerprint: object) -> Hit | None:
        """Return a hit only if all conditions of section 5.3 rule 3 are met."""
        row = self._rows.get(key) or {}
        cell = row.get(column)
        verdict = "poisoned" if self._rows.is_poisoned(key) else self._verdict(cell, stamp, fingerprint)
        self.counts["requests", verdict] += 1
        if verdict == "expired":
            self._rows.write(key, {name: kept for name, kept in row.items() if name != column})
        if cell is None or verdict != "hit":
            return None
        # At the limit of columns, the least recently used column is evicted first: keep the order of use.
        if self.limits.max_columns and len(row) >= self.limits.max_columns:
            self._rows.write(key, {**{name: kept for name, kept in row.items() if name != column}, column: cell})
        return Hit(cell.value)

    def _verdict(self, cell: Cell | None, stamp: Stamp, fingerprint: object) -> str:
        if cell is None:
            return "miss"
        # proven: S27
        if cell.stamp.partition != stamp.partition or cell.generation != self._assignments.generation(stamp.partition):
            return "foreign_partition"
        if cell.stamp.offset < self._assignments.lost(stamp.partition):  # proven: lost-partitions
            return "lost"
        if cell.fingerprint != fingerprint:  # proven: S22
            return "fingerprint"
        if cell.stamp.offset > stamp.offset or _goes_back(cell.stamp, stamp):  # proven: S11
            return "ahead"
        if self.limits.ttl and self._now() - cell.stored >= self.limits.ttl:  # proven: S23
            return "expired"
        return "hit"

    def new_cell(self, value: CellValue | None, fingerprint: object, stamp: Stamp, origin: Origin) -> Cell | None:
        """Return a cell, or None if the value must not be cached: a placeholder, too large, partition not assigned."""
        generation = self._assignments.generation(stamp.partition)
        refused = self._refusal(value, generation)
        if refused or generation is None:
            self.counts["writes", origin, refused or "generation"] += 1
            return None
        return Cell(value, fingerprint, stamp, generation, origin, self._now(), CELL_OVERHEAD + value_size(value))

    def _refusal(self, value: CellValue | None, generation: int | None) -> str | None:
        if generation is None:
            return "generation"
        if self.limits.max_value_bytes and value_size(value) > self.limits.max_value_bytes:
            return "size"
        plain = value[0].as_py() if isinstance(value, pa.Array) and _may_be_placeholder(value) else value
        return "placeholder" if self._is_placeholder(plain) else None

    def apply(self, key: RowKey, pending: PendingRow, valid: bool) -> None:
        """Publish a batch's changes of a row; ``valid`` is False if the table was dropped since the batch began."""
        replaces_row = pending.dropped is not None or not valid
        base: Row | None = {} if replaces_row else self._rows.base(key)
        dropped_by_others = self._drop_markers.get(key, -1)
        if pending.dropped is not None:
            self.counts["drops", "event"] += 1
            if self._open_batches > 1:
                self._drop_markers[key] = max(pending.dropped, dropped_by_others)
        if not valid or base is None:  # a row that cannot be read may be newer
            self._rows.write(key, {})
            return

        merged = dict(base)
        newest = max((cell.stamp.offset for cell in base.values()), default=-1)
        newest = max(newest, dropped_by_others)
        for column, cell in pending.cells.items():
            verdict = "invalidated" if cell is None else self._put_verdict(cell, base.get(column), newest)
            self.counts["writes", Origin.EVENT if cell is None else cell.origin, verdict] += 1
            if verdict == "position":
                self._rows.write(key, {})
                return
            if verdict in ("stored", "invalidated"):
                merged.pop(column, None)
            if verdict == "stored" and cell is not None:
                merged[column] = cell
        # Keep the most recently written columns.
        excess = len(merged) - self.limits.max_columns if self.limits.max_columns else 0
        self._rows.write(key, dict(list(merged.items())[excess:]) if excess > 0 else merged)

    def _put_verdict(self, cell: Cell, old: Cell | None, newest: int) -> str:
        """Return "stored", or why not (section 5.3 rules 1 and 2).

        ``newest`` is the offset of the newest change of the row that is known.
        """
        if cell.generation != self._assignments.generation(cell.stamp.partition):  # proven: S7
            return "generation"
        if cell.stamp.offset < self._assignments.lost(cell.stamp.partition):
            return "lost"
        if cell.origin is Origin.DB:
            return "offset" if newest > cell.stamp.offset else "stored"  # proven: S8
        if old is None or old.stamp.partition != cell.stamp.partition:
            return "stored"
        if old.stamp.offset > cell.stamp.offset:  # proven: newer-value
            return "offset"
        return "position" if _goes_back(old.stamp, cell.stamp) else "stored"

    def release(self) -> None:
        """End a batch. Discard the drop markers when no batch is open that may have begun before a drop."""
        self._open_batches -= 1
        if self._open_batches == 0:
            self._drop_markers.clear()

    def drop_row(self, key: RowKey, cause: str) -> None:
        """Remove a row, or poison it if the store cannot."""
        self.counts["drops", cause] += 1
        self._rows.write(key, {})

    def _drop_partition(self, partition: Partition, cause: str) -> None:
        """Drop the rows of a partition. A durable store may have too many rows to scan: a new generation hides them."""
        if self._rows.store.durable:
            self.counts["drops", cause] += 1
            self._assignments.renew(partition)
            return
        for key in list(self._rows.store.keys(None)):
            row = self._rows.get(key)
            if row is None or any(cell.stamp.partition == partition for cell in row.values()):
                self.drop_row(key, cause)

    # -- across restarts --------------------------------------------------------------------------------------

    def _restore(self) -> None:
        """Restore the state of a clean stop of the last process; without it, drop all rows."""
        if not self._rows.store.durable:
            return
        state = decode_state(self._rows.load(), self._settings)
        if state is None:
            self._rows.drop_table(None)
            return
        self._clock_base = state.clock + max(self._wall() - state.wall, 0) - self._clock()
        self._assignments = CacheAssignments(state.last_generation, state.partitions)
        self._tables = {table.id: table.number for table in state.tables}
        self._shapes = {table.id: table.shape for table in state.tables if table.shape is not None}

    def _now(self) -> int:
        """The milliseconds for the ages of cells: they continue after restarts and are independent of clock changes."""
        return self._clock_base + self._clock()

    def _number(self, table: TableId) -> int:
        return self._tables.setdefault(table, len(self._tables))


def _goes_back(earlier: Stamp, later: Stamp) -> bool:
    """Return whether the source position decreases from the ``earlier`` offset to the ``later`` one."""
    return bool(earlier.position and later.position and later.position < earlier.position)


def _may_be_placeholder(value: pa.Array) -> bool:
    """Return whether the type of the array has a placeholder; times and decimals have none."""
    item = value.type.value_type if pa.types.is_list(value.type) else value.type
    return bool(
        pa.types.is_string(item) or pa.types.is_binary(item) or pa.types.is_integer(item) or pa.types.is_map(item)
    )


@dataclass(slots=True)
class PendingRow:
    """A batch's changes of a row: dropped at an offset, and then these cells (None: the column is invalid)."""

    dropped: int | None = None
    cells: dict[str, Cell | None] = field(default_factory=dict)


class CacheBatch:
    """The overlay of one batch of one table. Its changes reach other batches with ``publish``."""

    def __init__(self, cache: ReselectColumnCache, table: int, fingerprints: Mapping[str, object]) -> None:
        self.cache = cache
        self.fingerprints = fingerprints
        self.pending: dict[str, PendingRow] = {}
        self._table = table
        self._epoch = cache.epoch(table)
        self._ended = False

    def for_row(self, key: str, stamp: Stamp) -> RowCache:
        """Return the cells of one row, as of the event that ``stamp`` identifies."""
        return RowCache(self, RowKey(self._table, key), stamp)

    def publish(self) -> None:
        """Make the batch's puts and drops visible; call it after the table commit."""
        valid = self.cache.epoch(self._table) == self._epoch
        for key in self._end():
            self.cache.apply(RowKey(self._table, key), self.pending[key], valid)

    def discard(self) -> None:
        """Discard the changes of a failed batch, and drop every row that it changed."""
        for key in self._end():
            self.cache.drop_row(RowKey(self._table, key), "failure")  # proven: S31

    def _end(self) -> Iterator[str]:
        if self._ended:
            return
        self._ended = True
        yield from self.pending
        self.cache.release()


class RowCache:
    """One row's cells for one event (Debezium's ``RowCache``)."""

    __slots__ = ("_batch", "_key", "_stamp")

    def __init__(self, batch: CacheBatch, key: RowKey, stamp: Stamp) -> None:
        self._batch = batch
        self._key = key
        self._stamp = stamp

    def get(self, column: str) -> Hit | None:
        """Return the value of ``column`` when the event was written, or None (a miss, which is always safe)."""
        pending = self._batch.pending.get(self._key.key)
        if pending is not None and column in pending.cells:
            cell = pending.cells[column]
            return Hit(cell.value) if cell is not None and cell.stamp.offset <= self._stamp.offset else None
        if pending is not None and pending.dropped is not None:
            return None
        return self._batch.cache.read(self._key, column, self._stamp, self._batch.fingerprints.get(column))

    def put(self, column: str, value: CellValue | None, origin: Origin = Origin.EVENT) -> None:
        """Cache a value or null. Values that must not be cached invalidate the column instead."""
        fingerprint = self._batch.fingerprints.get(column)
        self._pending().cells[column] = self._batch.cache.new_cell(value, fingerprint, self._stamp, origin)

    def invalidate(self, column: str) -> None:
        self._pending().cells[column] = None

    def drop(self) -> None:
        """Drop the row: it was deleted, or is a new incarnation."""
        self._batch.pending[self._key.key] = PendingRow(dropped=self._stamp.offset)

    def _pending(self) -> PendingRow:
        return self._batch.pending.setdefault(self._key.key, PendingRow())
