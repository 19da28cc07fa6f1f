"""A client that sends recorded requests to an ASGI application: raw path, raw headers, raw body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers with lower-case names, and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def request(
    app: ASGIApp,
    method: str,
    target: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    sent: list[Message] | None = None,
) -> Answer:
    """Send one request; ``target`` is the path with its query, percent-encoded. ``sent`` gets the answer's messages."""
    path, _, query = target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path, errors="replace"),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8083),
    }
    sent = [] if sent is None else sent
    ended = asyncio.Event()
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if pending:
            return pending.pop()
        await ended.wait()  # the client stays until it has the answer
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            ended.set()

    await app(scope, receive, send)
    start = sent[0]
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return Answer(start["status"], {k.decode(): v.decode() for k, v in start["headers"]}, content)
