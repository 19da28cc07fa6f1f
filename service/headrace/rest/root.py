"""``/``: who answers here."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from headrace import __version__
from headrace.rest.route import ConnectRoute
from headrace.runtime.worker.worker import Worker

KAFKA_VERSION = "4.3.1"
"""The Kafka Connect whose API this is. kcctl reads it as integers and switches features by it."""


def router(worker: Worker) -> APIRouter:
    """The routes of ``/``."""
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/")
    async def server_info() -> Response:
        return JSONResponse(
            {"version": KAFKA_VERSION, "commit": f"headrace-{__version__}", "kafka_cluster_id": worker.cluster_id}
        )

    return routes
