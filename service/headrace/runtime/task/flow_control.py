"""What limits the reads and writes of tasks: the memory and the threads of their worker, rebalances and pauses.

    MemoryBudget   changes of all tables that are not durable: who may read on
    WriteSlots     the writing threads of all connectors: who writes next
    WriteGate      of one assignment: whether a write may begin, and when the last one has ended

Tests: ``tests/unit/runtime/task/test_memory_budget.py``, ``test_write_slots.py``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.ports import OpenAgent
from headrace.runtime.threads import WorkerThreads


class MemoryBudget:
    """``limit`` bytes for the tables of all tasks of a worker. Of one event loop."""

    def __init__(self, limit: float) -> None:
        self._half = limit / 2
        self._held: dict[Hashable, int] = {}
        self._total = 0
        self._listeners: list[Callable[[], None]] = []

    @property
    def total(self) -> int:
        return self._total

    @property
    def is_scarce(self) -> bool:
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
            self._slots.on_release(self)


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
        self._tasks[connector] += 1

    def leave(self, connector: str) -> None:
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

    def on_release(self, slot: WriteSlot) -> None:
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
            waiter = min(allowed, key=lambda waiter: waiter.oldest())
            self._waiters.remove(waiter)
            self._held[waiter.connector] += 1
            waiter.granted.set_result(WriteSlot(waiter.connector, self))


class WriteGate:
    """Open until it is closed, unless the connector is paused: then it is held. Not thread-safe."""

    def __init__(self, *, held: bool = False) -> None:
        self._is_closed = False
        self._is_held = held
        self.is_dropped = False
        """Whether errors of a write in progress count no more."""
        self._writes = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_open(self) -> bool:
        return not (self._is_closed or self._is_held)

    def close(self) -> None:
        """Close the gate. It does not open again: the next assignment has its own."""
        self._is_closed = True

    def drop(self) -> None:
        self.is_dropped = True
        self.close()

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        self._is_held = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Register a write for the duration of the block. Closing the gate does not interrupt it."""
        self._writes += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if self._writes == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        await self._quiet.wait()


@dataclass(frozen=True, slots=True)
class TaskResources:
    """Threads, the slots of the writing ones, the memory for changes that are not durable, and agents."""

    threads: WorkerThreads
    slots: WriteSlots
    memory: MemoryBudget
    open_agent: OpenAgent
