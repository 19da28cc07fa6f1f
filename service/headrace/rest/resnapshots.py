"""``/connectors/{name}/tables/{table}/resnapshot``: fill a lake table again from its source, unknown to Kafka Connect.

The leader accepts requests, and the worker of the table runs them (``runtime/resnapshot/worker_resnapshots.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.model.errors import HeadraceError, RestError, remedy
from headrace.rest.bodies import string_map
from headrace.rest.cluster_tables import ClusterTables
from headrace.rest.route import ConnectRoute
from headrace.runtime.resnapshot.worker_resnapshots import WorkerResnapshots
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker

SOURCE_TABLE, TOPIC = "source.table", "topic"


def router(worker: Worker, herder: Herder, tables: ClusterTables, resnapshots: WorkerResnapshots) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.post("/connectors/{name}/tables/{table}/resnapshot")
    async def request_resnapshot(name: str, table: str, request: Request) -> Response:
        """Check the request on the leader, which stores it, so that it is refused at once if it cannot succeed."""
        herder.check_resnapshot(name, table)
        source_table, topic = await _body(request)
        topics: Collection[str] = () if source_table else await tables.topics(name, table, request)
        try:
            connector = worker.connector_class.resolve(herder.config(name), f"Connector {name}")
            target = await asyncio.to_thread(resnapshots.target, connector, table, topics, source_table, topic)
        except HeadraceError as error:
            raise RestError(str(error), remedy(error).http_status) from error
        document = await herder.request_resnapshot(name, table, target.table.name, target.table.topic)
        return JSONResponse(document, HTTPStatus.ACCEPTED)

    @routes.get("/connectors/{name}/tables/{table}/resnapshot")
    async def get_resnapshot(name: str, table: str) -> Response:
        return JSONResponse(herder.resnapshot(name, table))

    @routes.delete("/connectors/{name}/tables/{table}/resnapshot")
    async def cancel_resnapshot(name: str, table: str) -> Response:
        return JSONResponse(await herder.cancel_resnapshot(name, table), HTTPStatus.ACCEPTED)

    return routes


async def _body(request: Request) -> tuple[str, str]:
    """Return source table and topic of the body, which may be empty. Raises RestError 400 for another member."""
    given = await string_map(request) if (await request.body()).strip() else {}
    for name in given:
        if name not in (SOURCE_TABLE, TOPIC):
            raise RestError(f"The member {name!r} is unknown; the body may have {SOURCE_TABLE} and {TOPIC}", 400)
    source_table, topic = given.get(SOURCE_TABLE) or "", given.get(TOPIC) or ""
    if topic and not source_table:
        raise RestError(f"{TOPIC}: is of {SOURCE_TABLE}, which is missing", 400)
    return source_table, topic
