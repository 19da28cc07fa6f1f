"""Requests that are made to do harm: each gets an answer or loses its connection, and the worker goes on answering."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from support.rest.secured import SecuredWorker, secured_workers
from support.rest.worker_api import SHOP

pytestmark = pytest.mark.anyio
JSON = "Content-Type: application/json\r\n"
PLAIN = {"listeners": "http://127.0.0.1:0", "rest.receive.timeout.ms": "1000"}
DEEP = b"[" * 100_000
BODIES = {
    "deep arrays": DEEP,
    "deep objects": b'{"a":' * 100_000,
    "a deep configuration": b'{"name": "x", "config": ' + DEEP,
    "a huge number": b'{"name": "x", "config": {"tasks.max": ' + b"9" * 500_000 + b"}}",
    "a huge exponent": b'{"name": "x", "config": {"tasks.max": 1e999999999}}',
    "not a number": b'{"name": "x", "config": {"tasks.max": NaN}}',
    "a name with a separator": b'{"name": "../../etc/passwd", "config": {}}',
    "a name with a line break": b'{"name": "a\\r\\nSet-Cookie: b", "config": {}}',
    "half of a character": b'{"name": "\\ud800", "config": {}}',
    "no UTF-8": b'{"name": "\xff"}',
    "nothing": b"\x00" * 1000,
    "many keys": json.dumps({"name": "x", "config": {str(n): "" for n in range(20_000)}}).encode(),
    "one key many times": b'{"name": "x", "config": {' + b'"a": "b",' * 50_000 + b'"a": "b"}}',
}
TARGETS = (
    "/connectors/..%2f..%2fetc",
    "/connectors/%2e%2e/%2e%2e",
    "/connectors/a%00b",
    "/connectors/a%0d%0aX:b",
    "/connectors/%c0%af",
    "/connectors/%zz",
    "/connectors/%",
    "/connectors/a\\..\\b",
    "//connectors",
    "/connectors/" + "a" * 10_000,
    "/connectors?expand=" + "&expand=".join(["status"] * 1000),
    "/docs/static/../../../../etc/passwd",
    "http://169.254.169.254/latest/meta-data",
    "*",
)
HEADS = {
    "two lengths": "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "length and chunks": "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
    "a negative length": "Content-Length: -1\r\n\r\n",
    "a huge length": "Content-Length: 99999999999999999999\r\n\r\n{}",
    "a huge chunk": "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    "compressed": "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b",
    "a folded header": "X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a wrong charset": "Content-Type: application/json; charset=utf-7\r\nContent-Length: 2\r\n\r\n{}",
    "another type": "Content-Type: application/xml\r\nContent-Length: 2\r\n\r\n{}",
    "a header bomb": "".join(f"X-{n}: {n}\r\n" for n in range(100_000)) + "\r\n",
    "a long header": "X: " + "x" * 1_000_000 + "\r\n\r\n",
    "an upgrade": "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
}


async def answer(worker: SecuredWorker, request: bytes) -> bytes:
    """The status line of the answer, empty if the worker closes the connection without one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.endpoints.main[0].port)
    try:
        async with asyncio.timeout(30):
            writer.write(request)
            return await reader.readline()
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_hostile_requests_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    """No request ends the worker, makes a connector, or is answered with an unexpected error."""
    async with secured_workers(1, **PLAIN) as [worker]:
        requests = {
            name: f"POST /connectors HTTP/1.1\r\nHost: a\r\n{JSON}Content-Length: {len(body)}\r\n\r\n".encode() + body
            for name, body in BODIES.items()
        }
        requests |= {target: f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for target in TARGETS}
        requests |= {
            name: f"POST /connectors HTTP/1.1\r\nHost: a\r\n{head}".encode("latin-1") for name, head in HEADS.items()
        }
        for name, request in requests.items():
            line = await answer(worker, request)
            assert line[:12] not in (b"HTTP/1.1 201", b"HTTP/1.1 204"), name
            assert line == b"" or line.startswith(b"HTTP/1.1 "), name
            healthy = await answer(worker, b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert healthy.startswith(b"HTTP/1.1 200"), name
        assert [each.getMessage() for each in caplog.records if each.name == "headrace.rest.errors"] == []
        assert worker.api.worker.configs.state.connectors() == []
        assert (await worker.api.create(**{"topics": SHOP["topics"]})).status == 201
