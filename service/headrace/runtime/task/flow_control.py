"""What limits the reads and writes of tasks: the memory and the threads of their worker, rebalances and pauses.

    MemoryBudget   changes of all tables that are not durable: who may read on
    WriteSlots     the writing threads of all connectors: who writes next (``core/batch/commit_scheduler.py``)
    WriteGate      of one assignment: whether a write may begin, and when the last one has ended

Tests: ``tests/unit/runtime/task/test_memory_budget.py``, ``test_write_slots.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from headrace.core.batch.commit_scheduler import CommitPace, CommitRequest, CommitScheduler
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


class WriteSlot:
    """The claim of one table to a writing thread, in one assignment. ``wake`` is called when the thread is free."""

    def __init__(self, request: CommitRequest, wake: Callable[[], None], slots: WriteSlots) -> None:
        self.request = request
        self.wake = wake
        self.is_granted = False
        self._slots = slots

    def ask(self, due: float, since: float, *, urgent: bool = False) -> None:
        """Wait for a thread, or change what is waited for (``CommitRequest``)."""
        self._slots.ask(self, due, since, urgent=urgent)

    def withdraw(self) -> None:
        """Wait no more. Idempotent."""
        self._slots.withdraw(self)

    def release(self, events: int | None = None) -> None:
        """Release the thread after a commit of ``events``, or None without a commit. Idempotent."""
        if self.is_granted:
            self.is_granted = False
            self._slots.end(self, events)

    def close(self) -> None:
        """Neither wait nor hold a thread any more. Idempotent."""
        self.withdraw()
        self.release()


class WriteSlots:
    """The writing threads of one worker; ``CommitScheduler`` decides who writes next. Of one event loop."""

    def __init__(self, threads: int, cores: float) -> None:
        self._scheduler = CommitScheduler(threads, cores)
        self._slots: dict[CommitRequest, WriteSlot] = {}  # those that wait
        self._timer: asyncio.TimerHandle | None = None
        self._wakes_at = inf

    def join(self, connector: str) -> None:
        self._scheduler.join(connector)

    def leave(self, connector: str) -> None:
        self._scheduler.leave(connector)
        self._wake(0.0)

    def open(self, connector: str, target: float, pace: CommitPace, wake: Callable[[], None]) -> WriteSlot:
        """Return the claim of a table with this freshness target (seconds), which does not wait yet."""
        return WriteSlot(CommitRequest(connector, target, pace), wake, self)

    def events_per_second(self) -> float:
        """Return what the commits of this worker have written in the last minute."""
        return self._scheduler.events_per_second(time.monotonic())

    # -- what slots call -----------------------------------------------------------------------------------------------

    def ask(self, slot: WriteSlot, due: float, since: float, *, urgent: bool) -> None:
        self._slots[slot.request] = slot
        if self._scheduler.ask(slot.request, due, since, urgent=urgent):
            self._wake(max(due - time.monotonic(), 0.0))

    def withdraw(self, slot: WriteSlot) -> None:
        if self._slots.pop(slot.request, None) is not None:
            self._scheduler.withdraw(slot.request)

    def end(self, slot: WriteSlot, events: int | None) -> None:
        self._scheduler.end(slot.request, time.monotonic(), events)
        self._wake(0.0)

    def observe_decoding(self, seconds: float, cpu_seconds: float) -> None:
        """Adjust how many commits run at the same time to the cores that decoding gets beside them."""
        self._scheduler.observe_decoding(seconds, cpu_seconds, time.monotonic())

    # -- granting ------------------------------------------------------------------------------------------------------

    def _wake(self, delay: float) -> None:
        """Grant threads in ``delay`` seconds. Requests that come until then are compared with each other."""
        wakes_at = time.monotonic() + delay
        if wakes_at < self._wakes_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wakes_at = wakes_at
            self._timer = asyncio.get_running_loop().call_later(delay, self._grant)

    def _grant(self) -> None:
        self._timer, self._wakes_at = None, inf
        now = time.monotonic()
        while (request := self._scheduler.start(now)) is not None:
            slot = self._slots.pop(request)
            slot.is_granted = True
            slot.wake()
        if self._scheduler.wakes_at < inf:
            self._wake(self._scheduler.wakes_at - now)


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
