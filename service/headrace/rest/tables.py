"""``/connectors/{name}/tables`` and ``/tables``: lake tables of one and of all connectors, unknown to Kafka Connect.

Each worker has the reports of the tables of its own tasks. It requests those of the other workers that have tasks of
the connector, with ``forward=false``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.status import worst_first
from headrace.core.model.errors import RestError
from headrace.rest.route import ConnectRoute, Forwarder, is_forwarded
from headrace.runtime.worker.cluster import RequestTargetError
from headrace.runtime.worker.herder import Herder

Json = dict[str, Any]


def router(herder: Herder, forwarder: Forwarder) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    async def tables_of(name: str, request: Request) -> list[Json]:
        now, waits_for = time.time(), herder.waits_for
        reports = [dict(report.document(task, now, waits_for)) for task, report in herder.tables(name)]
        reports += await tables_of_others(request, herder.other_owners(name))
        return sorted(reports, key=lambda report: str(report["table"]))

    async def tables_of_others(request: Request, workers: Collection[str]) -> list[Json]:
        """Return the answers of other workers to this request, none to a request of one of them."""
        if is_forwarded(request.scope):
            return []
        reports: list[Json] = []
        for answer in await asyncio.gather(
            *(forwarder.forward(request, RequestTargetError(worker)) for worker in workers)
        ):
            if answer.status_code == HTTPStatus.OK:
                theirs = json.loads(bytes(answer.body))
                reports += theirs if isinstance(theirs, list) else [theirs]
        return reports

    @routes.get("/tables")
    async def get_all_tables(request: Request) -> Response:
        now, waits_for = time.time(), herder.waits_for
        reports: list[Json] = [
            {"connector": name, **report.document(task, now, waits_for)} for name, task, report in herder.all_tables()
        ]
        reports += await tables_of_others(request, herder.other_owners())
        return JSONResponse(worst_first(reports))

    @routes.get("/connectors/{name}/tables")
    async def get_tables(name: str, request: Request) -> Response:
        return JSONResponse(await tables_of(name, request))

    @routes.get("/connectors/{name}/tables/{table}")
    async def get_table(name: str, table: str, request: Request) -> Response:
        for report in await tables_of(name, request):
            if report["table"] == table:
                return JSONResponse(report)
        raise _unknown_table(name, table)

    @routes.post("/connectors/{name}/tables/{table}/restart")
    async def restart_table(name: str, table: str, request: Request) -> Response:
        if herder.restart_table(name, table):
            return Response(status_code=HTTPStatus.NO_CONTENT)
        for worker in () if is_forwarded(request.scope) else herder.other_owners(name):
            answer = await forwarder.forward(request, RequestTargetError(worker))
            if answer.status_code != HTTPStatus.NOT_FOUND:
                return answer
        raise _unknown_table(name, table)

    return routes


def _unknown_table(name: str, table: str) -> RestError:
    return RestError(f"Connector {name} has no table {table}; GET /connectors/{name}/tables lists its tables", 404)
