"""The behaviour of Kafka Connect's HTTP server outside of the resources (``connect.md`` section 1.1).

ASGI middleware around the routes: a trailing slash is ignored, HEAD works on every GET, OPTIONS lists the methods,
ambiguous paths and large bodies are rejected, errors become answers, and every request is logged in one line (at DEBUG
for probes, whose results ``worker_resources.py`` logs when they change, and for successful scrapes).

Tests: ``tests/rest/test_access_log.py``, ``tests/rest/test_limits.py``.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.config.rest_options import RestAccessSettings
from headrace.rest.errors import error_response, unexpected_error

log = logging.getLogger("headrace.rest")

MAX_BODY_BYTES = 1024 * 1024
"""A configuration is one record of the config topic, and brokers accept no larger record (``max.message.bytes``)."""
_RECEIVE = RestAccessSettings().receive_timeout
_PROBES = ("/health", "/health/live", "/health/ready")
_SCRAPED = "/metrics"
"""Prometheus requests it every few seconds, and probes their paths. Only errors of scrapes are logged at INFO."""
_METHOD_ORDER = ("HEAD", "POST", "DELETE", "GET", "OPTIONS", "PUT", "PATCH")
# Two servers may interpret a segment differently if it decodes to a separator, a dot segment or a control character.
_AMBIGUOUS = re.compile(r"%2f|%5c|%25|%0.|%1.|%7f|/(?:\.|%2e){1,2}(?=/|$)|//|[\x00-\x20]", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class ConnectTransport:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute], receive_timeout: float = _RECEIVE) -> None:
        """``receive_timeout``: the seconds that a client has to send a body."""
        self._app = app
        self._receive_timeout = receive_timeout
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._handle(exchange.scope, receive, exchange.send)
        except Exception as error:  # any: the framework would log its message, which may have data
            response = unexpected_error(scope["method"], scope["path"], error)
            if not exchange.answer_started:
                await response(exchange.scope, receive, exchange.send)
        exchange.log()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = path_problem(scope["raw_path"].decode("latin-1"))
        allowed: set[str] = set()
        if scope["method"] == "OPTIONS" and problem is None:
            for route in self._routes:
                if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                    allowed |= route.methods or set()
        if problem is not None:
            await error_response(400, problem)(scope, receive, send)
        elif allowed:
            allowed |= {"OPTIONS", *({"HEAD"} if "GET" in allowed else ())}
            methods = [method for method in _METHOD_ORDER if method in allowed]
            allow = {"Allow": ",".join(methods)}
            await PlainTextResponse(", ".join(methods), headers=allow)(scope, receive, send)
        else:
            await self._app(scope, _limit_body(receive, self._receive_timeout), send)


def _limit_body(receive: Receive, seconds: float) -> Receive:
    """Wrap ``receive`` so that it raises HTTPException 413 for a large request body, 408 for one that comes slowly."""
    received = 0
    ends = asyncio.get_running_loop().time() + seconds
    complete = False

    async def receive_limit_body() -> Message:
        nonlocal received, complete
        if complete:  # what follows is the end of the connection, which may be far away
            return await receive()
        try:
            async with asyncio.timeout_at(ends):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(408) from error
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise HTTPException(413)
        complete = not message.get("more_body", False)
        return message

    return receive_limit_body


def path_problem(raw_path: str) -> str | None:
    """Return why a path is rejected, or None. The check is before percent-decoding."""
    if _BROKEN_ESCAPE.search(raw_path):
        return "Bad Request: broken percent-encoding in the path"
    ambiguous = _AMBIGUOUS.search(raw_path)
    if ambiguous is not None:
        return f"Ambiguous URI path: {ambiguous[0]!r} is not allowed in a path"
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return "Bad Request: the path is not UTF-8"
    return None


class _Exchange:
    """One request with its normalized scope, and the status of its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._began = time.perf_counter()
        self._send = send
        self._status = 0
        self._method, self._path = scope["method"], scope["raw_path"].decode("latin-1")
        self._client = (scope.get("client") or ("-",))[0]
        path = scope["path"]
        if len(path) > 1 and path.endswith("/"):
            scope = {**scope, "path": path[:-1]}
        self.scope = {**scope, "method": "GET"} if self._method == "HEAD" else scope

    @property
    def answer_started(self) -> bool:
        return self._status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif self._method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def log(self) -> None:
        milliseconds = (time.perf_counter() - self._began) * 1000
        path = self.scope["path"]
        polled = path in _PROBES or (path == _SCRAPED and self._status < 400)
        level = logging.DEBUG if polled else logging.INFO
        line = '%s "%s %s" %d %.0f ms'
        log.log(level, line, self._client, self._method, self._path, self._status, milliseconds)
