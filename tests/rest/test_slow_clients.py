"""Clients that are slow, silent or many do not keep others from an answer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import AsyncExitStack

import httpx
import pytest
from support.rest.secured import SecuredWorker, secured_workers

pytestmark = pytest.mark.anyio
PLAIN = {"listeners": "http://127.0.0.1:0"}
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connected(worker: SecuredWorker, sent: bytes = b"") -> Stream:
    """A connection that has sent this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.endpoints.main[0].port)
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection, which the worker may have closed before."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def received(reader: asyncio.StreamReader) -> bytes:
    """Return everything that the worker sends before it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := await reader.read(1000):
            parts.append(part)
    return b"".join(parts)


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send a byte now and then for longer than the deadline, or until the worker closes the connection."""
    try:
        for _ in range(125):
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)
    except OSError:
        return


@pytest.mark.parametrize(
    ("head", "answer"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b""),
        (
            b"POST /connectors HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{",
            b"HTTP/1.1 408 ",
        ),
        (
            b"POST /connectors HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
            b"HTTP/1.1 408 ",
        ),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX: ", b"HTTP/1.1 200 "),
    ],
    ids=["nothing", "a slow head", "a slow body", "a slow chunk", "a slow second request"],
)
async def test_a_slow_request_ends_and_blocks_nobody(
    head: bytes, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then does not move the deadline."""
    monkeypatch.setattr("headrace.rest.server._LINGER_SECONDS", 2)
    async with secured_workers(1, **PLAIN, **{"rest.receive.timeout.ms": "2000"}) as [worker]:
        streams = [await connected(worker, head) for _ in range(10)]
        # From the beginning: what was not read when the worker resets a connection that still sends, is lost.
        answers = [asyncio.create_task(received(reader)) for reader, _ in streams]
        dripping = [asyncio.create_task(drip(writer)) for _, writer in streams if b"chunked" not in head]
        async with httpx.AsyncClient() as http:
            began = time.monotonic()
            assert (await http.get(f"{worker.url}/connectors")).status_code == 200
            assert time.monotonic() - began < 2
        async with asyncio.timeout(10):
            found = await asyncio.gather(*answers)
        assert all(each.startswith(answer) if answer else not each for each in found), found
        await asyncio.gather(*dripping, *(closed(writer) for _, writer in streams))


async def test_at_the_limit_idle_connections_give_way() -> None:
    """Those that hold all connections do not keep a probe from its answer, and a request in progress is finished."""
    async with AsyncExitStack() as stack:
        [worker] = await stack.enter_async_context(secured_workers(1, **PLAIN, **{"rest.connections.max": "10"}))
        body = b'{"name": "x"}'
        head = b"POST /connectors HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
        busy, sending = await connected(worker, head)
        silent = [await connected(worker) for _ in range(30)]
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"{worker.url}/health")).status_code == 200
        for reader, _ in silent[:20]:
            async with asyncio.timeout(10):
                await _ended(reader)
        sending.write(body)
        assert (await busy.readline()).startswith(b"HTTP/1.1 500 ")
        for _, writer in (*silent, (busy, sending)):
            await closed(writer)


async def _ended(reader: asyncio.StreamReader) -> None:
    try:
        assert await reader.read() == b""
    except ConnectionResetError:
        return


async def test_an_idle_connection_is_closed_in_time() -> None:
    """Also one that had requests before."""
    async with secured_workers(1, **PLAIN, **{"rest.receive.timeout.ms": "300"}) as [worker]:
        reader, writer = await connected(worker, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(4):  # uvicorn alone would wait for 5 s
            await reader.read()
        await closed(writer)
