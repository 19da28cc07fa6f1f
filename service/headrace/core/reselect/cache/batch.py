"""One batch's view of the column cache: an overlay over the shared rows, which others see after the table commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.reselect.cache.rows import Cell, CellValue, Hit, Origin, RowKey, Stamp


class SharedRows(Protocol):
    """The rows below the overlays, and the rules for their cells (``cache.ReselectColumnCache``)."""

    counts: Counter[tuple[str, ...]]

    def epoch(self, table: int) -> int:
        """Return the number of drops of the complete table."""

    def read(self, key: RowKey, column: str, stamp: Stamp, fingerprint: object) -> Hit | None:
        """Return the value of a cell for the event of ``stamp``; None if it must not be used."""

    def new_cell(self, value: CellValue | None, fingerprint: object, stamp: Stamp, origin: Origin) -> Cell | None:
        """Return a cell for the value, or None if it must not be cached."""

    def apply(self, key: RowKey, pending: PendingRow, valid: bool) -> None:
        """Publish a batch's changes of a row; ``valid`` is False if the table was dropped since the batch began."""

    def drop_row(self, key: RowKey, cause: str) -> None:
        """Remove a row."""

    def release(self) -> None:
        """End a batch."""


@dataclass(slots=True)
class PendingRow:
    """A batch's changes of a row: dropped at an offset, and then these cells (None: the column is invalid)."""

    dropped: int | None = None
    cells: dict[str, Cell | None] = field(default_factory=dict)


class CacheBatch:
    """The overlay of one batch of one table. Its changes reach other batches with ``publish``."""

    def __init__(self, cache: SharedRows, table: int, fingerprints: Mapping[str, object]) -> None:
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
            self.cache.drop_row(RowKey(self._table, key), "failure")

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
        """Invalidate one column."""
        self._pending().cells[column] = None

    def drop(self) -> None:
        """Drop the row: it was deleted, or is a new incarnation."""
        self._batch.pending[self._key.key] = PendingRow(dropped=self._stamp.offset)

    def _pending(self) -> PendingRow:
        return self._batch.pending.setdefault(self._key.key, PendingRow())
