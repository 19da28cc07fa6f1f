"""The memory that the key indexes of all tables share. The least recently used are dropped first.

Tests: ``tests/contracts/test_direct_limits.py``.
"""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakKeyDictionary


class IndexHolder(Protocol):
    """Has an index that takes memory."""

    def drop_index(self) -> bool:
        """Remove the index; return False if it is in use. Called in any thread."""


class IndexMemory:
    """``limit`` is in bytes. Thread-safe: each table is written by a thread of its own."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._lock = threading.Lock()
        self._sizes = WeakKeyDictionary[IndexHolder, int]()  # the least recently used first

    def use(self, holder: IndexHolder, size: int) -> None:
        """Register the size of an index that was just used, and drop others until the sum is within the limit."""
        with self._lock:
            self._sizes.pop(holder, None)
            self._sizes[holder] = size
            total = sum(self._sizes.values())
            for other in list(self._sizes):
                if total <= self.limit:
                    break
                if other is not holder and other.drop_index():
                    total -= self._sizes.pop(other)
