"""``/timeline`` and ``/connectors/{name}/timeline``: what has happened, newest first, unknown to Kafka Connect.

Every worker reads the events of all workers from the status topic, and answers without asking others.

Tests: ``tests/rest/test_timeline.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.timeline import EVENTS, Kind
from headrace.core.model.errors import RestError
from headrace.rest import parameters
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.worker import Worker

DEFAULT_LIMIT = 100


class TimelineEvents:
    """Answers from the events that this worker has read."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def all(
        self, *, table: str | None = None, kinds: Collection[Kind] = (), limit: int = DEFAULT_LIMIT
    ) -> list[dict[str, Any]]:
        """Return the events of all connectors and workers as JSON, newest first."""
        events = self._worker.timeline.state.events(table=table, kinds=kinds, limit=limit)
        return [dict(event.document()) for event in events]

    def of(
        self, name: str, *, table: str | None = None, kinds: Collection[Kind] = (), limit: int = DEFAULT_LIMIT
    ) -> list[dict[str, Any]]:
        """Return those of a connector, also of one that was deleted. Raises RestError 404 for an unknown one."""
        state = self._worker.timeline.state
        if not state.has_events(name) and not self._worker.configs.state.has_connector(name):
            raise RestError(f"Connector {name} not found", 404)
        return [dict(event.document()) for event in state.events(name, table=table, kinds=kinds, limit=limit)]


def router(events: TimelineEvents) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/timeline")
    async def get_timeline(request: Request) -> Response:
        return JSONResponse(
            events.all(
                table=_table(request),
                kinds=requested_kinds(request),
                limit=parameters.number(request, "limit", DEFAULT_LIMIT, EVENTS),
            )
        )

    @routes.get("/connectors/{name}/timeline")
    async def get_timeline_of_connector(name: str, request: Request) -> Response:
        kinds, limit = requested_kinds(request), parameters.number(request, "limit", DEFAULT_LIMIT, EVENTS)
        return JSONResponse(events.of(name, table=_table(request), kinds=kinds, limit=limit))

    return routes


def _table(request: Request) -> str | None:
    return request.query_params.get("table") or None


def requested_kinds(request: Request) -> Collection[Kind]:
    """Return the kinds of events that a request names, in any case; none for all. Raises RestError 400."""
    names = [name.upper() for name in request.query_params.getlist("kind") if name]
    if unknown := [name for name in names if name not in Kind.__members__]:
        raise RestError(f"kind: {unknown[0][:50]!r} is no kind of event; the kinds are {', '.join(Kind)}", 400)
    return [Kind(name) for name in names]
