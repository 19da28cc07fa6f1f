"""CORS and additional response headers, as the worker's options configure them (``connect.md`` section 1.7).

Both middlewares wrap the whole application, so that errors and rejected paths have these headers too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.config import WorkerConfig
from headrace.config.response_headers import HeaderRule

_METHODS = ("GET", "POST", "HEAD")
"""The methods that pages of other origins may use by default (Jetty's default)."""
_HEADERS = ("X-Requested-With", "Content-Type", "Accept", "Origin")


def install(app: FastAPI, config: WorkerConfig) -> None:
    """Add the middlewares that the worker's options configure, if any."""
    origins = allowed_origins(config)
    if origins is not None:
        app.add_middleware(
            CORSMiddleware,
            # The answer repeats the origin of the request.
            allow_origin_regex=origins.pattern,
            allow_methods=config.rest.allow_methods or _METHODS,
            allow_headers=_HEADERS,
        )
    rules = config.rest.response_headers
    if rules:
        app.add_middleware(ResponseHeaders, rules=rules)


def allowed_origins(config: WorkerConfig) -> re.Pattern[str] | None:
    """Return what the origins match whose pages may use the API, None if no page may."""
    origins = config.rest.allow_origins
    if not origins:
        return None
    # An origin may contain ``*`` for any text.
    return re.compile("|".join(re.escape(origin).replace(re.escape("*"), ".*") for origin in origins))


class ResponseHeaders:
    """ASGI middleware that adds the headers of ``rules`` to every answer. ``now`` returns Unix time in seconds."""

    def __init__(self, app: ASGIApp, rules: Sequence[HeaderRule], now: Callable[[], float] = time.time) -> None:
        self._app = app
        self._rules = rules
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._apply(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _apply(self, headers: MutableHeaders) -> None:
        for rule in self._rules:
            value = formatdate(self._now() + int(rule.value) / 1000, usegmt=True) if rule.is_date else rule.value
            if rule.replaces:
                headers[rule.name] = value
            else:
                headers.append(rule.name, value)
