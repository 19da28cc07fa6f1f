"""Agents without Faust, an asyncio task each: for one-off runs and tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class AsyncioAgent:
    """``headrace.ports.Agent`` on the running event loop."""

    def __init__(self, name: str, body: Callable[[], Awaitable[None]]) -> None:
        self._name = name
        self._body = body
        self._wake_up = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to run the body."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    def wake(self) -> None:
        """Run the body once more."""
        self._wake_up.set()

    async def stop(self) -> None:
        """Cancel the body. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._wake_up.wait()
            self._wake_up.clear()
            await self._body()
