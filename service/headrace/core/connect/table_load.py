"""The progress of a table's load: of the rows that a snapshot of the source sends (``r`` events).

Kafka's end offsets say how much is left to read, not how much the source will still send. Time is an argument, in
seconds since the epoch.

Tests: ``tests/unit/core/connect/test_table_load.py``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

RATE_SECONDS = 300.0
"""The time from which the rate is taken: long enough for batches that take half a minute each."""
RESUME_SECONDS = 60.0
"""The time after the last row in which further rows belong to the same load: those of an incremental snapshot."""
_LONGEST_SECONDS = 365 * 86_400.0
"""What would take longer has no estimate: the writer hangs."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of one load in a run of its task.

    ``rows`` is the number of rows of the snapshot that the table contains. ``remaining`` is the number of records in
    Kafka, of the table's topics, that are not committed: with what the snapshot has sent so far, the rows that are
    missing. ``rate`` is in events per second. ``estimated_end`` is None after the end, and while nothing is written.
    ``ended`` is None until the table has what Kafka has.
    """

    rows: int
    remaining: int
    rate: float
    began: float
    estimated_end: float | None
    ended: float | None


class TableLoad:
    """The load of one table, from its first batch with rows of a snapshot on."""

    __slots__ = ("_batches", "_began", "_ended", "_last_read", "_rows")

    def __init__(self) -> None:
        self._rows = 0
        self._began = 0.0
        self._last_read = 0.0
        self._ended: float | None = None
        self._batches: deque[tuple[float, int]] = deque()
        """When batches became durable, with their events; the first entry is the begin of what is measured."""

    @property
    def is_running(self) -> bool:
        return bool(self._batches) and self._ended is None

    def on_batch(self, reads: int, events: int, opened: float, now: float) -> None:
        """Register a durable batch with ``reads`` rows of a snapshot; ``opened`` is when its oldest event was read.

        A batch without them ends the load: a table may always have changes that wait.
        """
        if not reads:
            self.end(self._last_read)
            return
        if not self._batches or (self._ended is not None and now > self._last_read + RESUME_SECONDS):
            self._rows, self._began = 0, opened
            self._batches = deque([(opened, 0)])
        self._rows, self._last_read, self._ended = self._rows + reads, now, None
        self._batches.append((now, events))
        while len(self._batches) > 2 and self._batches[1][0] <= now - RATE_SECONDS:
            self._batches.popleft()

    def end(self, now: float) -> None:
        """Register that the table has what Kafka has. Idempotent."""
        if self.is_running:
            self._ended = now

    def progress(self, remaining: int, now: float) -> LoadProgress | None:
        """Return the progress with ``remaining`` records in Kafka; None if no snapshot has sent rows."""
        if not self._batches:
            return None
        if self._ended is not None:
            rate = self._rows / max(self._ended - self._began, 0.001)
            return LoadProgress(self._rows, 0, rate, self._began, None, self._ended)
        since = self._batches[0][0]
        rate = sum(events for _, events in self._batches) / max(now - since, 0.001)
        left = remaining / rate
        return LoadProgress(
            self._rows, remaining, rate, self._began, now + left if left < _LONGEST_SECONDS else None, None
        )
