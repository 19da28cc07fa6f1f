"""Run coroutine tests on asyncio: mark a module or class with ``pytest.mark.anyio`` (the plug-in comes with httpx)."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop of the service."""
    return "asyncio"


async def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until ``condition`` is true. Raises TimeoutError if it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():  # once more after the deadline: a busy machine may not have looked for seconds
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {seconds:g} s")
        await asyncio.sleep(0.005)


@asynccontextmanager
async def serving(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    port: int = 0,
    host: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Answer connections at a port, which is yielded; a client may give up. At the end each connection is closed.

    ``Server.wait_closed`` alone waits for no connection before Python 3.12.1 (python/cpython#79033).
    """
    connections = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await answer(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        async with asyncio.timeout(10):
            await asyncio.gather(*connections)
