"""``/admin/loggers``: read and set the levels of loggers of one or all workers (``connect.md`` section 6.2)."""

from __future__ import annotations

import logging

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import RestError
from headrace.rest import bodies, entities
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.herder import Herder

log = logging.getLogger(__name__)


def router(herder: Herder) -> APIRouter:
    """Return the routes of ``/admin/loggers``."""
    routes = APIRouter(prefix="/admin/loggers", route_class=ConnectRoute)

    @routes.get("")
    async def list_loggers() -> Response:
        return JSONResponse({name: entities.logger_level(level) for name, level in herder.loggers().items()})

    @routes.get("/{name}")
    async def get_logger(name: str) -> Response:
        return JSONResponse(entities.logger_level(herder.logger(name)))

    @routes.put("/{name}")
    async def set_level(name: str, request: Request) -> Response:
        level = (await bodies.string_map(request)).get("level")
        if level is None:
            raise RestError("Desired 'level' parameter was not specified in request.", 400)
        if _scope(request) == "cluster":
            await herder.set_cluster_level(name, level)
            return Response(status_code=204)
        return JSONResponse(herder.set_worker_level(name, level))

    return routes


def _scope(request: Request) -> str:
    """Return the scope of a request. An unknown scope is ``worker``, as in Kafka Connect."""
    scope = request.query_params.get("scope", "worker").lower()
    if scope not in ("worker", "cluster"):
        log.warning("PUT /admin/loggers: the scope is neither worker nor cluster; the scope worker is used")
    return scope
