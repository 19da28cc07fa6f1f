"""The socket on which a worker listens."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest
from fastapi import FastAPI
from support.rest.served import served

from headrace.rest import server
from headrace.rest.server import bind


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_no_answer_waits_for_the_clients_acknowledgement(host: str) -> None:
    """An answer in two packets on a kept-open connection would take 40 ms (Nagle, delayed ACK)."""
    with bind(host, 0) as listener, socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_server_that_updates_its_date_rarely_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the next date or for its stop, not in small steps that cost an idle worker CPU time."""
    monkeypatch.setattr(server, "_DATE_SECONDS", 3600.0)

    async def scenario() -> None:
        async with asyncio.timeout(60), served(FastAPI()) as url, httpx.AsyncClient() as client:
            await client.get(url)  # so that the server runs

    asyncio.run(scenario())
