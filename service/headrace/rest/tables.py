"""``/connectors/{name}/tables``: the lake tables of a connector, which Kafka Connect does not know.

Each worker knows the tables of its own tasks. It asks the other workers that have tasks of the connector, and is asked
by them with ``forward=false``.
"""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import RestError
from headrace.rest.forward import Forwarder, is_forwarded
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.cluster import RequestTargetError
from headrace.runtime.worker.herder import Herder

Json = dict[str, Any]


def router(herder: Herder, forwarder: Forwarder) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(prefix="/connectors", route_class=ConnectRoute)

    async def tables(name: str, request: Request) -> list[Json]:
        found = [dict(report.document(task, time.time())) for task, report in herder.tables(name)]
        for worker in _others(name, request):
            answer = await forwarder.forwarded(request, RequestTargetError(worker))
            if answer.status_code == HTTPStatus.OK:
                theirs = json.loads(bytes(answer.body))
                found += theirs if isinstance(theirs, list) else [theirs]
        return sorted(found, key=lambda each: str(each["table"]))

    def _others(name: str, request: Request) -> list[str]:
        return [] if is_forwarded(request.scope) else list(herder.other_owners(name))

    @routes.get("/{name}/tables")
    async def get_tables(name: str, request: Request) -> Response:
        return JSONResponse(await tables(name, request))

    @routes.get("/{name}/tables/{table}")
    async def get_table(name: str, table: str, request: Request) -> Response:
        for each in await tables(name, request):
            if each["table"] == table:
                return JSONResponse(each)
        raise _unknown(name, table)

    @routes.post("/{name}/tables/{table}/restart")
    async def restart_table(name: str, table: str, request: Request) -> Response:
        if herder.restart_table(name, table):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        for worker in _others(name, request):
            answer = await forwarder.forwarded(request, RequestTargetError(worker))
            if answer.status_code != HTTPStatus.NOT_FOUND:
                return answer
        raise _unknown(name, table)

    return routes


def _unknown(name: str, table: str) -> RestError:
    return RestError(f"Connector {name} has no table {table}; GET /connectors/{name}/tables lists its tables", 404)
