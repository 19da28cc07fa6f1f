"""The routes of the console: pages, their live parts, and the files that browsers load.

A page is complete without a script, except for the form of a new connector. Its parts are sent again as server-sent
events whenever their content changes: each event is the complete content of a part, so that a browser replaces and
never merges. Buttons send requests of the REST API, with the roles, the audit log and the protection against other
sites that these have.

Every address is relative, so that the console works behind a proxy that adds a prefix to paths.

Tests: ``tests/rest/test_console.py``.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.staticfiles import StaticFiles

from headrace.config.source_connector import URL
from headrace.core.connect.config_def import HIDDEN
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import RestError
from headrace.rest import entities
from headrace.rest.access import Role
from headrace.rest.cluster_tables import ClusterTables
from headrace.rest.console import views
from headrace.rest.console.rendering import FOLDER, Parts, Renderer, role_of
from headrace.rest.dead_letters import ClusterReplays, letter_filter
from headrace.rest.doctor import ConnectorDoctor
from headrace.rest.stages import ConnectorStages
from headrace.rest.table_queries import TableQueries
from headrace.rest.timeline import TimelineEvents, requested_kinds
from headrace.rest.workers import ClusterWorkers
from headrace.runtime.dead_letters.letters import QUEUE
from headrace.runtime.dead_letters.replays import DeadLetters
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker

PATH = "/ui"
_CONNECTORS_AT_ONCE = 100
_NOT_FOUND = "Not found"


@dataclass(frozen=True, slots=True)
class Documents:
    """What answers the requests of the REST API that the pages show, beside the herder."""

    tables: ClusterTables
    stages: ConnectorStages
    workers: ClusterWorkers
    queries: TableQueries
    doctor: ConnectorDoctor
    letters: DeadLetters
    replays: ClusterReplays
    timeline: TimelineEvents


class Console:
    """The pages of a worker, which show the complete cluster."""

    def __init__(self, worker: Worker, herder: Herder, documents: Documents) -> None:
        self._worker = worker
        self._herder = herder
        self._documents = documents
        self._renderer = Renderer(worker)

    def install(self, app: FastAPI) -> None:
        """Add the routes. They are no part of the API, whose description has what they show."""
        routes = APIRouter(prefix=PATH, include_in_schema=False)
        self._overview(routes)
        self._proof(routes)
        self._timeline(routes)
        self._new_connector(routes)
        self._connector(routes)
        self._doctor_page(routes)
        self._dead_letters(routes)
        self._table(routes)
        app.mount(f"{PATH}/static", StaticFiles(directory=FOLDER / "static"))
        app.include_router(routes)

    def _overview(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            tables, workers = await self._documents.tables.all(request), await self._documents.workers.all(request)
            return {"overview": views.overview(await self._statuses(), tables, workers)}

        self._renderer.add_events(routes, "", look)

        @routes.get("")
        async def page(request: Request) -> Response:
            return await self._renderer.live_page(request, "overview.html", look, {"title": "Overview"})

    def _proof(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            return {"proof": views.proof(await self._documents.tables.all(request))}

        self._renderer.add_events(routes, "/proof", look)

        @routes.get("/proof")
        async def page(request: Request) -> Response:
            return await self._renderer.live_page(request, "proof.html", look, {"title": "Proof"})

    def _timeline(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            name, table = request.path_params.get("name"), request.query_params.get("table") or None
            events, kinds, limit = self._documents.timeline, requested_kinds(request), views.MOST_SHOWN + 1
            if name is None:
                found = events.all(kinds=kinds, limit=limit)
            else:
                found = events.of(name, table=table, kinds=kinds, limit=limit)
            return {"timeline": views.timeline(found, name)}

        async def page(request: Request) -> Response:
            name, query = request.path_params.get("name"), request.query_params
            try:
                if name is not None:
                    self._documents.timeline.of(name, limit=1)
            except RestError as error:
                return self._renderer.problem(request, _NOT_FOUND, error)
            shown = {
                "title": "Timeline" if name is None else f"Timeline of {name}",
                "name": name,
                "table": query.get("table", ""),
                "kind": query.get("kind", ""),
                "kinds": list(Kind),
            }
            return await self._renderer.live_page(request, "timeline.html", look, shown)

        for path in ("/timeline", "/connectors/{name}/timeline"):
            self._renderer.add_events(routes, path, look)
            routes.add_api_route(path, page, response_model=None)

    async def _statuses(self) -> dict[str, views.Json]:
        """Return the statuses of connectors by name, without those that have none yet; thousands take a while."""
        statuses: dict[str, views.Json] = {}
        for count, name in enumerate(self._herder.connectors(), 1):
            with suppress(RestError):
                statuses[name] = entities.connector_state_info(self._herder.status(name))
            if count % _CONNECTORS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return statuses

    def _new_connector(self, routes: APIRouter) -> None:
        @routes.get("/new-connector")
        async def page(request: Request) -> Response:
            """Show a form with the options of a validation; a script sends what is typed to the same request."""
            if role_of(request) is not Role.ADMIN:
                error = RestError(f"POST /connectors needs the role {Role.ADMIN}", 403)
                return self._renderer.problem(request, "Not allowed", error)
            plugin = self._worker.connector_class.names[1]
            infos = entities.config_infos(self._herder.validate(plugin, {"connector.class": plugin}))
            shown = {"title": "New connector", "plugin": plugin, "groups": views.form(infos)}
            return self._renderer.page(request, "new_connector.html", shown)

    def _connector(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            name, wanted = request.path_params["name"], request.query_params.get("table", "")
            status = entities.connector_state_info(self._herder.status(name))
            return {
                "connector": views.connector(status),
                "flow": views.flow(await self._documents.stages.of(name, request)),
                "tables": views.tables_of_connector(name, await self._documents.tables.of(name, request), wanted),
            }

        self._renderer.add_events(routes, "/connectors/{name}", look)

        @routes.get("/connectors/{name}")
        async def page(name: str, request: Request) -> Response:
            try:
                config = self._herder.config(name)
                definition = self._herder.plugin_config(config["connector.class"])
            except RestError as error:
                return self._renderer.problem(request, _NOT_FOUND, error)
            visible = views.configuration(config, definition)
            shown = {
                "title": name,
                "name": name,
                "wanted": request.query_params.get("table", ""),
                "options": views.options(visible, definition),
                "curl": views.curl_of_config(self._worker.url, name, visible),
                "has_queue": bool(config.get(QUEUE)),
                "hides": any(HIDDEN in value for value in visible.values()),
            }
            return await self._renderer.live_page(request, "connector.html", look, shown)

    def _doctor_page(self, routes: APIRouter) -> None:
        @routes.get("/connectors/{name}/doctor")
        async def page(name: str, request: Request) -> Response:
            """Show the findings of one check; it queries the database, so it is not repeated."""
            try:
                diagnosis = await self._documents.doctor.diagnose(name)
            except RestError as error:
                return self._renderer.problem(request, _NOT_FOUND, error)
            names_source = bool(self._herder.config(name).get(URL))
            shown = {"title": f"Doctor of {name}", "name": name, "diagnosis": diagnosis, "names_source": names_source}
            return self._renderer.page(request, "doctor.html", shown)

    def _dead_letters(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            return {"replay": {"replay": await self._documents.replays.last(request.path_params["name"], request)}}

        self._renderer.add_events(routes, "/connectors/{name}/dead-letters", look)

        @routes.get("/connectors/{name}/dead-letters")
        async def page(name: str, request: Request) -> Response:
            """Show the letters as they are now: reading the queue takes long, so only the replay is live."""
            try:
                wanted = letter_filter(request)
                listing = await self._documents.letters.listing(name, wanted)
            except RestError as error:
                return self._renderer.problem(request, "No dead letters", error)
            shown = {"title": f"Dead letters of {name}", "name": name, "listing": listing, "wanted": wanted}
            return await self._renderer.live_page(request, "dead_letters.html", look, shown)

    def _resnapshot(self, name: str, table: str) -> views.Json | None:
        with suppress(RestError):  # none was requested
            return self._herder.resnapshot(name, table)
        return None

    def _table(self, routes: APIRouter) -> None:
        async def look(request: Request) -> Parts:
            name, table = request.path_params["name"], request.path_params["table"]
            document = await self._documents.tables.one(name, table, request)
            return {"table": document, "resnapshot": self._resnapshot(name, table), **views.table(document)}

        self._renderer.add_events(routes, "/connectors/{name}/tables/{table}", look)

        @routes.get("/connectors/{name}/tables/{table}")
        async def page(name: str, table: str, request: Request) -> Response:
            try:
                queries = self._documents.queries.of(name, table)
            except RestError as error:
                return self._renderer.problem(request, _NOT_FOUND, error)
            shown = {"title": table, "name": name, "table": table, "queries": queries}
            return await self._renderer.live_page(request, "table.html", look, shown)
