"""Who may send which requests: roles, pages of other sites (CORS and cross-site requests), and response headers.

All middlewares wrap the complete application, so that errors and rejected paths have these headers too (``connect.md``
section 1.7).

Tests: ``tests/rest/test_access.py``, ``tests/rest/test_cross_site.py``, ``tests/rest/test_basic_auth.py``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from email.utils import formatdate
from enum import IntEnum
from urllib.parse import urlsplit

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.config import WorkerConfig
from headrace.config.rest_options import ROLES, HeaderRule
from headrace.rest.errors import error_response


class Role(IntEnum):
    """A role. Each one includes those before it."""

    READ = 1
    OPERATE = 2
    ADMIN = 3

    @classmethod
    def of(cls, name: str) -> Role:
        return cls(ROLES.index(name) + 1)

    def __str__(self) -> str:
        return ROLES[self - 1]


_READING = ("GET", "HEAD", "OPTIONS")
_OPERATIONS = (
    ("PUT", r"/connectors/[^/]+/(?:pause|resume|stop|topics/reset|tables/[^/]+/(?:pause|resume))"),
    (
        "POST",
        r"/connectors/[^/]+/(?:restart|tasks/[^/]+/restart|tables/[^/]+/(?:restart|resnapshot)|dead-letters/replay)",
    ),
    ("PATCH", r"/connectors/[^/]+/offsets"),
    ("DELETE", r"/connectors/[^/]+/(?:offsets|tables/[^/]+/resnapshot|dead-letters/replay)"),
)
"""The requests that change the state of a connector, but not what it does."""


def changes_state(method: str) -> bool:
    return method not in _READING


def required_role(method: str, path: str) -> Role:
    """Return the role that a request needs. A request that is not listed needs the role admin."""
    if not changes_state(method):
        return Role.READ
    if any(method == listed and re.fullmatch(pattern, path) for listed, pattern in _OPERATIONS):
        return Role.OPERATE
    return Role.ADMIN


_CORS_METHODS = ("GET", "POST", "HEAD")
"""The methods that pages of other origins may use by default (Jetty's default)."""
_CORS_HEADERS = ("X-Requested-With", "Content-Type", "Accept", "Origin")


def install(app: FastAPI, config: WorkerConfig) -> None:
    """Add the middlewares that the worker's options configure, if any."""
    origins = allowed_origins(config)
    if origins is not None:
        app.add_middleware(
            CORSMiddleware,
            # The answer repeats the origin of the request.
            allow_origin_regex=origins.pattern,
            allow_methods=config.rest.allow_methods or _CORS_METHODS,
            allow_headers=_CORS_HEADERS,
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
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for rule in self._rules:
                    value = rule.value
                    if rule.is_date:
                        value = formatdate(self._now() + int(rule.value) / 1000, usegmt=True)
                    if rule.replaces:
                        headers[rule.name] = value
                    else:
                        headers.append(rule.name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)


_OWN_SITES = ("same-origin", "none")
"""``none``: a person has entered the address."""


class CrossSiteProtection:
    """ASGI middleware. ``allowed`` matches the origins that ``access.control.allow.origin`` lists."""

    def __init__(self, app: ASGIApp, allowed: re.Pattern[str] | None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and changes_state(scope["method"]) and not self._accepts(Headers(scope=scope)):
            message = "Requests of another site's pages are refused; access.control.allow.origin lists those allowed"
            await error_response(403, message)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _accepts(self, headers: Headers) -> bool:
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin is not None and self._allowed is not None and self._allowed.fullmatch(origin):
            return True
        if site is not None:
            return site in _OWN_SITES
        if origin is None:
            return True  # no browser
        try:
            host = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        return bool(host) and host == headers.get("host", "").lower()
