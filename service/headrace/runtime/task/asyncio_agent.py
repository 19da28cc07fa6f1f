"""Agents without Faust, an asyncio task each: for one-off runs and tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Generic, TypeVar

from headrace.ports import Messages

_Message = TypeVar("_Message")


class AsyncioAgent(Generic[_Message]):
    """``headrace.ports.Agent`` on the running event loop."""

    def __init__(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> None:
        self._name = name
        self._body = body
        self._messages: _Queue[_Message] = _Queue()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self) -> None:
        if not self._is_stopped:
            self._task = asyncio.create_task(self._run(), name=self._name)

    async def _run(self) -> None:
        await self._body(self._messages)

    def send(self, message: _Message) -> None:
        if not self._is_stopped:
            self._messages.queue.put_nowait(message)

    async def stop(self) -> None:
        """Cancel the body. Idempotent."""
        self._is_stopped = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Queue(Generic[_Message]):
    def __init__(self) -> None:
        self.queue: asyncio.Queue[_Message] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[_Message]:
        return self

    async def __anext__(self) -> _Message:
        return await self.queue.get()

    def waiting(self) -> Iterator[_Message]:
        while not self.queue.empty():
            yield self.queue.get_nowait()
