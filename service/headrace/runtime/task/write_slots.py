"""Share the writing threads of a worker between the tables of all its connectors.

A lane takes a slot before it closes a batch, so that a batch contains what arrived until a thread was free, and keeps
the slot for all steps of one write. The lane whose oldest event has waited longest is served first. A connector never
holds all slots while the worker runs another one, so that one connector's slow tables do not stop the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class WriteSlot:
    """A writing thread that a lane has taken."""

    connector: str
    _slots: WriteSlots
    _held: bool = True

    def release(self) -> None:
        """Release the slot. Idempotent."""
        if self._held:
            self._held = False
            self._slots.released(self)


@dataclass(slots=True, eq=False)
class _Waiter:
    connector: str
    oldest: Callable[[], float]
    granted: asyncio.Future[WriteSlot] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class WriteSlots:
    """The slots of one worker: as many as it has writing threads. Of one event loop."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._held: Counter[str] = Counter()
        self._tasks: Counter[str] = Counter()
        self._waiters: list[_Waiter] = []

    def join(self, connector: str) -> None:
        """Register a task of the connector."""
        self._tasks[connector] += 1

    def leave(self, connector: str) -> None:
        """Unregister a task of the connector."""
        self._tasks -= Counter({connector: 1})
        self._grant()

    async def acquire(self, connector: str, oldest: Callable[[], float]) -> WriteSlot:
        """Wait for a slot. ``oldest`` returns when the oldest event of the lane was read (monotonic seconds)."""
        waiter = _Waiter(connector, oldest)
        self._waiters.append(waiter)
        self._grant()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                waiter.granted.result().release()
            raise

    def released(self, slot: WriteSlot) -> None:
        """Grant a released slot to a waiting lane."""
        self._held -= Counter({slot.connector: 1})
        self._grant()

    def _grant(self) -> None:
        most = self._threads if len(self._tasks) <= 1 else max(1, self._threads - 1)  # of one connector
        while self._held.total() < self._threads:
            allowed = [
                waiter
                for waiter in self._waiters
                if self._held[waiter.connector] < most and not waiter.granted.done()  # done: cancelled
            ]
            if not allowed:
                return
            waiter = min(allowed, key=lambda each: each.oldest())
            self._waiters.remove(waiter)
            self._held[waiter.connector] += 1
            waiter.granted.set_result(WriteSlot(waiter.connector, self))
