"""The threads of a worker.

Its work runs in separate pools, so that slow merges do not stop decoding, nor upkeep the merges. Clients of other
servers run on event loops beside the worker's: REST answers quickly while they are busy, and they while it is blocked.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")

MAINTENANCE_THREADS = 2


@dataclass(frozen=True, slots=True)
class WorkerThreads:
    """``decoding`` has what a task does between two writes as well; ``writing`` one thread for each write slot.

    ``cores`` is how many of them the machine can run at the same time.
    """

    decoding: Executor
    writing: Executor
    maintenance: Executor
    writers: int
    cores: float = 1.0

    @classmethod
    def start(cls, writers: int) -> WorkerThreads:
        """Make the pools; ``writers`` threads write tables, the others follow from the machine."""
        cores = available_cores()
        decoders = min(4, os.cpu_count() or 1)
        return cls(
            ThreadPoolExecutor(decoders, "decode"),
            ThreadPoolExecutor(writers, "write"),
            ThreadPoolExecutor(MAINTENANCE_THREADS, "maintain"),
            writers,
            cores,
        )

    def __enter__(self) -> WorkerThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Start nothing more; what runs is not waited for."""
        for pool in (self.decoding, self.writing, self.maintenance):
            pool.shutdown(wait=False, cancel_futures=True)


def available_cores(cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many cores the process may use: those of its affinity, or fewer if a cgroup (1 or 2) limits them."""
    cores = float(len(os.sched_getaffinity(0)))
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((cgroups / file).read_text(encoding="ascii") for file in files).split()
            if int(quota) > 0:
                cores = min(cores, int(quota) / int(period))
        except (OSError, ValueError):  # there is no such file, or its quota is "max"
            continue
    return cores


async def run_in(executor: Executor | None, function: Callable[..., _T], *args: Any) -> _T:
    """Run a function in a pool with the caller's context; None is the loop's own pool."""
    return await asyncio.get_running_loop().run_in_executor(executor, partial(copy_context().run, function, *args))


class LoopThread:
    """A daemon thread that runs an event loop from ``start`` to ``close``."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. Call it before all other methods."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` on the thread and wait for it. A cancellation of the caller cancels ``work``."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def result(self, work: Coroutine[Any, Any, _T], seconds: float | None = None) -> _T:
        """Run ``work`` on the thread, and block the calling thread until it ends. Raises TimeoutError."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(seconds)
        finally:
            running.cancel()

    def soon(self, callback: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancel all tasks and end the thread. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        with suppress(OSError):  # a name for ``top -H``, which Python 3.14 sets itself; no /proc on some systems
            Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(self._thread.name)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._cancel_all()
            self._loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
