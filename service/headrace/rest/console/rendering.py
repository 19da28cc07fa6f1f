"""How the console makes pages from templates, and sends their live parts again when they have changed.

Tests: ``tests/rest/test_console.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headrace import __version__
from headrace.core.model.errors import RestError
from headrace.rest.access import Role
from headrace.rest.console import views
from headrace.runtime.worker.worker import Worker

FOLDER = Path(__file__).parent
_HEADERS = {
    # Only the files of this console: texts of connectors and tables must never become scripts.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_SECONDS = 2.0
"""Between two refreshes of a page's parts."""
_PAUSE = 20
"""A refresh that takes long is repeated less often: after this many times its duration."""
_STREAM_SECONDS = 300.0
"""A browser connects again afterwards, with credentials that are verified again."""

Parts = Mapping[str, Any]
Look = Callable[[Request], Awaitable[Parts]]
"""Returns what the templates of a page's live parts show, by the name of the part. Raises RestError."""


class Renderer:
    """Makes the pages of a worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["segment"] = lambda name: quote(name, safe="")
        self._templates.filters["age"] = views.age
        self._templates.filters["pieces"] = views.pieces
        self._templates.filters["moment"] = views.moment
        self._templates.filters["phrase"] = views.phrase
        self._templates.filters["size"] = views.size
        self._templates.globals["version"] = __version__

    def add_events(self, routes: APIRouter, path: str, look: Look) -> None:
        """Add the route of the events of a page with live parts: ``<path>/events``."""

        @routes.get(f"{path}/events", response_class=EventSourceResponse)
        async def events(request: Request) -> AsyncIterator[ServerSentEvent]:
            async for event in self._events(request, look):
                yield event

    async def live_page(self, request: Request, template: str, look: Look, shown: Mapping[str, Any]) -> Response:
        """Return a page with live parts, which ``look`` provides."""
        if _path(request).endswith("/"):
            return _without_slash(request)
        parts = await self._render(request, look, self._context(request))
        return self._answer(request, template, {**shown, "parts": parts, "events": _sibling(request, "/events")})

    def page(self, request: Request, template: str, shown: Mapping[str, Any]) -> Response:
        """Return a page without live parts."""
        return _without_slash(request) if _path(request).endswith("/") else self._answer(request, template, shown)

    def problem(self, request: Request, title: str, error: RestError) -> Response:
        """Return a page that says why there is no other one, with the status of the error."""
        return self._answer(request, "problem.html", {"title": title, "problem": str(error)}, error.status)

    def _answer(self, request: Request, template: str, shown: Mapping[str, Any], status: int = 200) -> Response:
        page = self._templates.get_template(template).render(**self._context(request), **shown)
        return HTMLResponse(page, status, headers=_HEADERS)

    async def _events(self, request: Request, look: Look) -> AsyncIterator[ServerSentEvent]:
        """Yield the parts that have changed, until the worker stops."""
        context = {**self._context(request), "root": _root(request, "/events")}
        sent: dict[str, str] = {}
        ends = time.monotonic() + _STREAM_SECONDS
        refresh = 0.0
        while time.monotonic() < ends and not self._worker.stopping:
            if (began := time.monotonic()) >= refresh:
                for part, content in (await self._render(request, look, context)).items():
                    if sent.get(part) != content:
                        sent[part] = content
                        yield ServerSentEvent(raw_data=content, event=part)
                refresh = began + (1 + _PAUSE) * (time.monotonic() - began)
            await asyncio.sleep(_SECONDS)

    async def _render(self, request: Request, look: Look, context: Mapping[str, Any]) -> dict[str, str]:
        """Return the HTML of the live parts. ``problem`` says why the others cannot be shown at present."""
        problem, parts = "", dict[str, str]()
        try:
            if not self._worker.ready:
                raise RestError(self._worker.not_ready(), 503)
            for part, shown in (await look(request)).items():
                parts[part] = self._templates.get_template(f"parts/{part}.html").render(**context, shown=shown)
        except RestError as error:
            problem = str(error)
        return {**parts, "problem": self._templates.get_template("parts/problem.html").render(problem=problem)}

    def _context(self, request: Request) -> dict[str, Any]:
        """Return what every template needs."""
        role = role_of(request)
        return {
            "root": _root(request),
            "may_operate": role is not None and role >= Role.OPERATE,
            "may_administer": role is not None and role >= Role.ADMIN,
            "caller": getattr(_caller(request), "name", ""),
        }


def role_of(request: Request) -> Role | None:
    """Return the role of who sends the request. Without authentication everybody may do everything."""
    caller = _caller(request)
    return Role.ADMIN if caller is None else caller.role


def _caller(request: Request) -> Any:
    return request.scope.get("state", {}).get("caller")


def _without_slash(request: Request) -> Response:
    """Redirect a browser from ``/ui/`` to ``/ui``: a page's relative addresses are those of its events as well."""
    return RedirectResponse(f"../{_sibling(request)}")


def _path(request: Request) -> str:
    """Return the path of the request as the browser has it."""
    return str(request.scope["raw_path"].decode("latin-1").partition("?")[0])


def _root(request: Request, suffix: str = "") -> str:
    """Return the relative address of the worker's root. ``suffix`` is what the browser's page does not have."""
    path = _path(request).removesuffix(suffix)
    return "../" * (path.count("/") - 1) or "./"


def _sibling(request: Request, suffix: str = "") -> str:
    """Return the address of the request relative to its folder, with ``suffix`` before the query."""
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{_path(request).rstrip('/').rpartition('/')[2]}{suffix}{query}"
