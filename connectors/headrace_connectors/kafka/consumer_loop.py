"""The event-loop thread that all Kafka clients of a worker share.

Fetching, decompressing and heartbeats stay off the worker's main loop: the REST server answers quickly under full load,
and a main loop that is blocked for seconds costs no group membership (``docs/decisions/kafka.md``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class ConsumerLoop:
    """A daemon thread that runs an event loop from ``start`` to ``close``."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-kafka", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it before all other methods."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the thread and wait for it. A cancellation of the caller cancels ``work``."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def result(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run ``work`` on the thread, and block the calling thread until it ends. Raises TimeoutError."""
        running = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return running.result(seconds)
        finally:
            running.cancel()

    def soon(self, callback: Callable[[], object]) -> None:
        """Schedule ``callback`` on the thread."""
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
