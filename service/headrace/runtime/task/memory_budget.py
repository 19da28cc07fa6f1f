"""Share the memory for changes that are not durable fairly between all tables of a worker.

While all tables together hold more than half of the budget, tables that hold more than their share of that half are not
read any further. Each other table may still fill its share, so that the sum stays within the budget, and a table that
snapshots cannot starve the others.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class MemoryBudget:
    """``limit`` bytes for the tables of all tasks of a worker. Of one event loop."""

    def __init__(self, limit: float) -> None:
        self._half = limit / 2
        self._held: dict[Hashable, int] = {}
        self._total = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def total(self) -> int:
        """Bytes that all tables hold."""
        return self._total

    @property
    def is_scarce(self) -> bool:
        """Whether all tables together hold more than half of the limit."""
        return self._total > self._half

    def hold(self, table: Hashable, size: int) -> None:
        """Note the bytes of a table's changes that are not durable."""
        was_scarce = self.is_scarce
        self._total += size - self._held.pop(table, 0)
        if size:
            self._held[table] = size
        if was_scarce and not self.is_scarce:
            for listener in tuple(self._listeners):
                listener()

    def is_exceeded_by(self, table: Hashable) -> bool:
        """Whether no more should be read for a table now."""
        return self.is_scarce and self._held.get(table, 0) > self._half / len(self._held)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when memory is not scarce any more, so that reading may go on."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Callable[[], None]) -> None:
        """Do not call it any more. Idempotent."""
        if listener in self._listeners:
            self._listeners.remove(listener)


def unlimited() -> MemoryBudget:
    """A budget that nothing exceeds, for one-off runs."""
    return MemoryBudget(float("inf"))
