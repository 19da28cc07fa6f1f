"""How many bytes the upkeep of a table may write: in proportion to its merges, and per hour."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

RATIO = 3
"""Bytes that upkeep may write for each byte that merges have written: together four times the merges alone."""

_HOUR = 3600.0


class HourlyBytes:
    """An allowance that fills evenly to ``per_hour`` bytes; 0 is no limit. Thread-safe.

    A full allowance also pays for more than ``per_hour`` at once, so that no file is too large for ever.
    """

    def __init__(self, per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._lock = threading.Lock()
        self._left = float(per_hour)
        self._since = clock()

    @property
    def available(self) -> float:
        """Bytes that may be written now."""
        with self._lock:
            left = self._refilled()
            return math.inf if not self._per_hour or left >= self._per_hour else left

    def spend(self, written: int) -> None:
        """Take written bytes out of the allowance, which may become negative."""
        with self._lock:
            self._left = self._refilled() - written

    def _refilled(self) -> float:
        now = self._clock()
        self._left = min(float(self._per_hour), self._left + (now - self._since) * self._per_hour / _HOUR)
        self._since = now
        return self._left


class WriteBudget:
    """The budget of one table: ``RATIO`` times what its merges write, within its own and the worker's allowance.

    One thread may ``earn`` while another one uses the rest.
    """

    def __init__(self, table: HourlyBytes, worker: HourlyBytes) -> None:
        self._hourly = (table, worker)
        self._earned = 0.0
        self._spent = 0

    def earn(self, merged: int | None) -> None:
        """Register the bytes of a merge. None if the format does not report them: then only the allowances count."""
        self._earned = math.inf if merged is None else self._earned + RATIO * merged

    @property
    def available(self) -> float:
        """Bytes that upkeep may write now."""
        return max(0.0, min(self._earned - self._spent, *(each.available for each in self._hourly)))

    def spend(self, written: int) -> None:
        """Register the bytes that upkeep has written."""
        self._spent += written
        for each in self._hourly:
            each.spend(written)
