"""What Kafka Connect's HTTP server does before a resource is asked (``connect.md`` section 1.1).

Plain ASGI, outside of the routes: a trailing slash is the same resource, HEAD works on every GET, OPTIONS lists the
methods, ambiguous paths and large bodies are refused, no error goes further, and every request leaves one line in the
log (a poll that went well at DEBUG).
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.rest.errors import error_response, unexpected

log = logging.getLogger("headrace.rest")

MAX_BODY_BYTES = 1024 * 1024
"""A configuration is one record of the config topic, and brokers take no larger one (``max.message.bytes``)."""
_POLLED = ("/health", "/metrics")
"""What probes and Prometheus ask every few seconds: worth a line only when the answer is an error."""
_METHOD_ORDER = ("HEAD", "POST", "DELETE", "GET", "OPTIONS", "PUT", "PATCH")
# A segment that decodes to a separator, a dot segment or a control character can be read in two ways by two servers.
_AMBIGUOUS = re.compile(r"%2f|%5c|%25|%0.|%1.|%7f|/(?:\.|%2e){1,2}(?=/|$)|//|[\x00-\x20]", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class ConnectTransport:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or pass on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            await self._handle(exchange.scope, receive, exchange.send)
        except Exception as error:  # the border of a request; the framework's own would have the server log all of it
            response = unexpected(scope["method"], scope["path"], error)
            if not exchange.begun:
                await response(exchange.scope, receive, exchange.send)
        exchange.log()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = path_problem(scope["raw_path"].decode("latin-1"))
        if problem is not None:
            await error_response(400, problem)(scope, receive, send)
        elif scope["method"] == "OPTIONS" and (methods := self._methods(scope)):
            allow = {"Allow": ",".join(methods)}
            await PlainTextResponse(", ".join(methods), headers=allow)(scope, receive, send)
        else:
            await self._app(scope, _bounded(receive), send)

    def _methods(self, scope: Scope) -> list[str]:
        """The methods of the resource, in the order in which Connect lists them; none for an unknown path."""
        found: set[str] = set()
        for route in self._routes:
            found |= _route_methods(route, scope)
        if not found:
            return []
        found |= {"OPTIONS", *({"HEAD"} if "GET" in found else ())}
        return [method for method in _METHOD_ORDER if method in found]


def _bounded(receive: Receive) -> Receive:
    """``receive``, which raises HTTPException 413 when the request's body becomes too large."""
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY_BYTES:
            raise HTTPException(413)
        return message

    return receive_bounded


def _route_methods(route: BaseRoute, scope: Scope) -> set[str]:
    if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
        return set(route.methods or ())
    return set()


def path_problem(raw_path: str) -> str | None:
    """Why a path cannot be served at all, or None. It is looked at before it is decoded."""
    if _BROKEN_ESCAPE.search(raw_path):
        return "Bad Request: broken percent-encoding in the path"
    found = _AMBIGUOUS.search(raw_path)
    if found is not None:
        return f"Ambiguous URI path: {found[0]!r} is not allowed in a path"
    try:
        unquote_to_bytes(raw_path).decode()
    except UnicodeDecodeError:
        return "Bad Request: the path is not UTF-8"
    return None


class _Exchange:
    """One request with its normalised scope, and what is known of its answer."""

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
    def begun(self) -> bool:
        """Whether the client has a part of an answer."""
        return self._status != 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        elif self._method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def log(self) -> None:
        milliseconds = (time.perf_counter() - self._began) * 1000
        polled = self.scope["path"] in _POLLED and self._status < 400
        level = logging.DEBUG if polled else logging.INFO
        line = '%s "%s %s" %d %.0f ms'
        log.log(level, line, self._client, self._method, self._path, self._status, milliseconds)
