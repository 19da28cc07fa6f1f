"""The routes of the console: pages, their live parts, and the files that browsers load.

A page is complete without a script. Its parts are sent again as server-sent events whenever their content changes: each
event is the complete content of a part, so that a browser replaces and never merges. Buttons send requests of the REST
API, with the roles, the audit log and the protection against other sites that these have.

Every address is relative, so that the console works behind a proxy that adds a prefix to paths.

Tests: ``tests/rest/test_console.py``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.staticfiles import StaticFiles

from headrace import __version__
from headrace.core.connect.config_def import HIDDEN
from headrace.core.model.errors import RestError
from headrace.rest import entities
from headrace.rest.access import Role
from headrace.rest.cluster_tables import ClusterTables
from headrace.rest.console import views
from headrace.rest.doctor import ConnectorDoctor
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker

PATH = "/ui"
_HERE = Path(__file__).parent
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
_CONNECTORS_AT_ONCE = 100
_STREAM_SECONDS = 300.0
"""A browser connects again afterwards, with credentials that are verified again."""

Parts = Mapping[str, Any]
Look = Callable[[Request], Awaitable[Parts]]
"""Returns what the templates of a page's live parts show, by the name of the part. Raises RestError."""


class Console:
    """The pages of a worker, which show the complete cluster."""

    def __init__(self, worker: Worker, herder: Herder, tables: ClusterTables, doctor: ConnectorDoctor) -> None:
        self._worker = worker
        self._doctor = doctor
        self._herder = herder
        self._tables = tables
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["segment"] = lambda name: quote(name, safe="")
        self._templates.filters["age"] = views.age
        self._templates.globals["version"] = __version__

    def install(self, app: FastAPI) -> None:
        """Add the routes. They are no part of the API, whose description has what they show."""
        routes = APIRouter(prefix=PATH, include_in_schema=False)
        self._overview(routes)
        self._connector(routes)
        self._doctor_page(routes)
        self._table(routes)
        app.mount(f"{PATH}/static", StaticFiles(directory=_HERE / "static"))
        app.include_router(routes)

    # -- the pages ----------------------------------------------------------------------------------------------------

    def _overview(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            return {"overview": views.overview(await self._statuses(), await self._tables.all(request))}

        self._add_events(routes, "", look)

        @routes.get("")
        async def page(request: Request) -> Response:
            return await self._page(request, "overview.html", look, {"title": "Overview"})

    async def _statuses(self) -> dict[str, views.Json]:
        """Return the statuses of connectors by name, without those that have none yet; thousands take a while."""
        statuses: dict[str, views.Json] = {}
        for count, name in enumerate(self._herder.connectors(), 1):
            with suppress(RestError):
                statuses[name] = entities.connector_state_info(self._herder.status(name))
            if count % _CONNECTORS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return statuses

    def _connector(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            name, wanted = request.path_params["name"], request.query_params.get("table", "")
            status = entities.connector_state_info(self._herder.status(name))
            return {
                "connector": views.connector(status),
                "tables": views.tables_of_connector(name, await self._tables.of(name, request), wanted),
            }

        self._add_events(routes, "/connectors/{name}", look)

        @routes.get("/connectors/{name}")
        async def page(name: str, request: Request) -> Response:
            try:
                config = self._herder.config(name)
                definition = self._herder.plugin_config(config["connector.class"])
            except RestError as error:
                return self._missing(request, error)
            visible = views.configuration(config, definition)
            shown = {
                "title": name,
                "name": name,
                "wanted": request.query_params.get("table", ""),
                "options": views.options(visible, definition),
                "curl": views.curl_of_config(self._worker.url, name, visible),
                "hides": any(HIDDEN in value for value in visible.values()),
            }
            return await self._page(request, "connector.html", look, shown)

    def _doctor_page(self, routes: APIRouter) -> None:
        @routes.get("/connectors/{name}/doctor")
        async def page(name: str, request: Request) -> Response:
            """Show the findings of one check; it queries the database, so it is not repeated."""
            if _path(request).endswith("/"):
                return _without_slash(request)
            try:
                diagnosis = await self._doctor.diagnose(name)
            except RestError as error:
                return self._missing(request, error)
            shown = {"title": f"Doctor of {name}", "name": name, "diagnosis": diagnosis}
            page = self._templates.get_template("doctor.html").render(**self._context(request), **shown)
            return HTMLResponse(page, headers=_HEADERS)

    def _table(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            name, table = request.path_params["name"], request.path_params["table"]
            for document in await self._tables.of(name, request):
                if document["table"] == table:
                    return {"table": document}
            raise RestError(f"Connector {name} has no table {table} at present", 404)

        self._add_events(routes, "/connectors/{name}/tables/{table}", look)

        @routes.get("/connectors/{name}/tables/{table}")
        async def page(name: str, table: str, request: Request) -> Response:
            try:
                self._herder.config(name)
            except RestError as error:
                return self._missing(request, error)
            return await self._page(request, "table.html", look, {"title": table, "name": name, "table": table})

    # -- how pages are made -------------------------------------------------------------------------------------------

    def _add_events(self, routes: APIRouter, path: str, look: Look) -> None:
        @routes.get(f"{path}/events", response_class=EventSourceResponse)
        async def events(request: Request) -> AsyncIterator[ServerSentEvent]:
            async for event in self._events(request, look):
                yield event

    async def _page(self, request: Request, template: str, look: Look, shown: Mapping[str, Any]) -> Response:
        if _path(request).endswith("/"):
            return _without_slash(request)
        context = self._context(request)
        parts = await self._render(request, look, context)
        page = self._templates.get_template(template).render(
            **context, **shown, parts=parts, events=_sibling(request, "/events")
        )
        return HTMLResponse(page, headers=_HEADERS)

    def _missing(self, request: Request, error: RestError) -> Response:
        context = {**self._context(request), "title": "Not found", "problem": str(error)}
        page = self._templates.get_template("missing.html").render(context)
        return HTMLResponse(page, error.status, headers=_HEADERS)

    async def _events(self, request: Request, look: Look) -> AsyncIterator[ServerSentEvent]:
        """Yield the parts that have changed, until the worker stops."""
        context = {**self._context(request), "root": _root(request, "/events")}
        sent: dict[str, str] = {}
        ends = time.monotonic() + _STREAM_SECONDS
        while time.monotonic() < ends and not self._worker.stopping:
            began = time.monotonic()
            for part, content in (await self._render(request, look, context)).items():
                if sent.get(part) != content:
                    sent[part] = content
                    yield ServerSentEvent(raw_data=content, event=part)
            await asyncio.sleep(max(_SECONDS, _PAUSE * (time.monotonic() - began)))

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
        """Return what every template needs. Without authentication everybody may do everything."""
        caller = request.scope.get("state", {}).get("caller")
        role = Role.ADMIN if caller is None else caller.role
        return {
            "root": _root(request),
            "may_operate": role is not None and role >= Role.OPERATE,
            "caller": "" if caller is None else caller.name,
        }


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
