"""``/connectors/{name}/tables`` and ``/tables``: lake tables of one and of all connectors, unknown to Kafka Connect."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import RestError
from headrace.rest.cluster_tables import ClusterTables, unknown_table
from headrace.rest.route import ConnectRoute, Forwarder, is_forwarded
from headrace.runtime.worker.cluster import RequestTargetError
from headrace.runtime.worker.herder import Herder


def router(herder: Herder, tables: ClusterTables, forwarder: Forwarder) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/tables")
    async def get_all_tables(request: Request) -> Response:
        return JSONResponse(await tables.all(request))

    @routes.get("/connectors/{name}/tables")
    async def get_tables(name: str, request: Request) -> Response:
        return JSONResponse(await tables.of(name, request))

    @routes.get("/connectors/{name}/tables/{table}")
    async def get_table(name: str, table: str, request: Request) -> Response:
        return JSONResponse(await tables.one(name, table, request))

    @routes.put("/connectors/{name}/tables/{table}/pause")
    async def pause_table(name: str, table: str, request: Request) -> Response:
        await herder.pause_table(name, table, await tables.topics(name, table, request))
        return Response(status_code=HTTPStatus.ACCEPTED)

    @routes.put("/connectors/{name}/tables/{table}/resume")
    async def resume_table(name: str, table: str, request: Request) -> Response:
        await herder.resume_table(name, table, await tables.topics(name, table, request))
        return Response(status_code=HTTPStatus.ACCEPTED)

    @routes.post("/connectors/{name}/tables/{table}/restart")
    async def restart_table(name: str, table: str, request: Request) -> Response:
        missing = request.query_params.get("missing", "fail")
        if missing not in ("fail", "recreate"):
            raise RestError("missing: must be fail (default) or recreate, as the option table.missing", 400)
        if herder.restart_table(name, table, recreate=missing == "recreate"):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        for worker in () if is_forwarded(request.scope) else herder.other_owners(name):
            answer = await forwarder.forward(request, RequestTargetError(worker))
            if answer.status_code != HTTPStatus.NOT_FOUND:
                return answer
        raise unknown_table(name, table)

    return routes
