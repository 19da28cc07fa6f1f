"""``/``: version and cluster of the worker."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from headrace import __version__
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.worker import Worker

KAFKA_VERSION = "4.3.1"
"""The version of the Kafka Connect API. kcctl parses it as integers and enables features by it."""


def router(worker: Worker) -> APIRouter:
    """Return the route of ``/``."""
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/")
    async def server_info() -> Response:
        return JSONResponse(
            {"version": KAFKA_VERSION, "commit": f"headrace-{__version__}", "kafka_cluster_id": worker.cluster_id}
        )

    return routes
