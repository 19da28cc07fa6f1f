"""The column cache of one task: its lock, the open batches, and the events that invalidate its entries.

The rules are those of ``core/reselect/cache/``; docs/design/reselect.md, "The column cache", describes them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa

from headrace.core.model.events import TableId, TopicPartition
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cache.admission import Admission
from headrace.core.reselect.cache.column_cache import CacheBatch, ReselectColumnCache
from headrace.core.reselect.cache.rows import CacheUse, MemoryRowStore, Partition, RowStore
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rules import TableRules


class ColumnCacheService:
    """The cache that the tables of a task share; without ``reselect.cache.enabled`` it stays empty.

    The entries of a table's batch are visible to other batches after ``commit``. Every method holds ``lock``. A caller
    holds it itself from ``batch`` to its last access to the result, and releases it while it queries the database.
    ``rows`` stores the entries (None: in memory), and is closed with the service. ``clock`` returns monotonic seconds.
    """

    def __init__(
        self, options: ReselectOptions, placeholder: Placeholder, rows: RowStore | None, clock: Callable[[], float]
    ) -> None:
        self.enabled = options.cache_enabled
        self.lock = threading.RLock()
        self._cache = ReselectColumnCache(
            MemoryRowStore(options.cache_limits) if rows is None else rows,
            options.cache_limits,
            lambda: int(clock() * 1000),
            placeholder.is_form,
            options.cache_settings,
            lambda: int(time.time() * 1000),
        )
        self._batches: dict[TableId, CacheBatch] = {}
        self._admission = Admission()
        self._admits_all = options.cache_admission == "always"

    # -- batches ------------------------------------------------------------------------------------------------------

    def batch(self, table: TableId, rules: TableRules) -> CacheBatch | None:
        """Return the overlay of the table's batch, or None if no column and no row of the table is cached.

        A table with cached rows needs an overlay even if the rules no longer cache any of its columns.
        """
        with self.lock:
            if not (rules.caches or table in self._batches or self._cache.holds(table)):
                return None
            batch = self._batches.get(table)
            if batch is None:
                batch = self._batches[table] = self._cache.begin(table, rules.shape, rules.fingerprints)
            else:
                batch.fingerprints = {**batch.fingerprints, **rules.fingerprints}
            return batch

    def commit(self, table: TableId) -> None:
        """Publish the entries of the table's batch, which is durable."""
        with self.lock:
            if batch := self._batches.pop(table, None):
                batch.publish()

    def discard(self, table: TableId) -> None:
        """Discard the entries of the table's batch, which was not written, and drop the rows that it touched."""
        with self.lock:
            if batch := self._batches.pop(table, None):
                batch.discard()

    # -- admission ----------------------------------------------------------------------------------------------------

    def admits(self, table: TableId) -> bool:
        """Return whether cells of a table are cached (``reselect.cache.admission``)."""
        with self.lock:
            return self._admits_all or self._admission.admits(table) or self._cache.holds(table)

    def observe_reads(self, table: TableId, keys: pa.StringArray) -> None:
        """Remember that the source was queried for the rows under ``keys``."""
        if not self._admits_all:
            with self.lock:
                self._admission.observe(table, keys)

    # -- events that invalidate entries -------------------------------------------------------------------------------

    def truncate(self, table: TableId) -> None:
        with self.lock:
            self._cache.drop_table(table, "truncate")  # proven: S3

    def begin_snapshot(self, table: TableId | None) -> None:
        """Drop the rows of a table (None: of all) that a snapshot reads: they may have changed without events."""
        with self.lock:
            if table is None:
                self._cache.clear("snapshot")  # proven: S17-all
            else:
                self._cache.drop_table(table, "snapshot")  # proven: S17-table

    def alter(self, table: TableId) -> None:
        """Drop the rows of a table whose schema has changed at the source."""
        with self.lock:
            self._cache.drop_table(table, "schema")

    def lose(self, topic: str, partition: int, offset: int) -> None:
        """Invalidate the entries of a partition that are older than an event that was not applied."""
        with self.lock:
            self._cache.lose(Partition(topic, partition), offset)

    def exclude_topic(self, topic: str) -> None:
        with self.lock:
            self._cache.drop_topic(topic, "excluded")

    # -- partitions ---------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Invalidate the entries of partitions that were assigned to this task, or whose offsets were set."""
        with self.lock:
            self._cache.assign([Partition(*partition) for partition in partitions])

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Invalidate the entries of partitions that were revoked from this task."""
        with self.lock:
            self._cache.revoke([Partition(*partition) for partition in partitions])

    def resume(self, topic: str, partition: int, position: int) -> None:
        """Set the offset of an assignment's first event; call it before that event is resolved."""
        with self.lock:
            self._cache.resume(Partition(topic, partition), position)

    def mark_durable(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Mark the events before these offsets as durable; the offsets are committed."""
        with self.lock:
            self._cache.mark_durable({Partition(*partition): offset for partition, offset in offsets.items()})

    # -- life cycle ---------------------------------------------------------------------------------------------------

    def take_counts(self) -> tuple[CacheUse, Counter[tuple[str, ...]]]:
        """Return the use of the cache now, and its outcomes since the last call."""
        with self.lock:
            use = self._cache.use()  # which counts the evictions
            counts = self._cache.counts.copy()
            self._cache.counts.clear()
            return use, counts

    def close(self) -> None:
        with self.lock:
            self._cache.close()
