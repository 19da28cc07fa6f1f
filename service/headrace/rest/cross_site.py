"""Refuse requests that another site's page makes a browser send (cross-site request forgery).

A browser sends credentials, and reaches workers in its network, on behalf of any page. It names the page's site in
``Sec-Fetch-Site`` or ``Origin``, which a page cannot change. Other clients send neither: curl, kc, Terraform, and the
servers of consoles.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.rest.errors import error_response
from headrace.rest.roles import changes_state

_OWN_SITES = ("same-origin", "none")
"""``none``: a person has entered the address."""


class CrossSiteProtection:
    """ASGI middleware. ``allowed`` matches the origins that ``access.control.allow.origin`` lists."""

    def __init__(self, app: ASGIApp, allowed: re.Pattern[str] | None) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
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
        return origin is None or _host(origin) == headers.get("host", "").lower()


def _host(origin: str) -> str | None:
    """Return ``host:port`` of an origin as in the ``Host`` header, None for one without a host."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
