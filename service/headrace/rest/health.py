"""``/health`` for probes (KIP-1017) and ``/metrics`` for Prometheus: both answer from the first moment."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.rest.route import negotiate
from headrace.runtime.worker import Worker

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_STARTING = "Worker is still starting up."

Exposition = Callable[[], tuple[bytes, str]]
"""Gives the metrics as text, and its content type."""


def router(worker: Worker, metrics: Exposition) -> APIRouter:
    """The routes of ``/health`` and ``/metrics``.

    Failed connectors do not make a worker unhealthy. Nothing blocks the event loop that answers here, so a probe that
    times out is what tells a stuck worker.
    """
    routes = APIRouter()

    @routes.get("/health")
    async def health(request: Request) -> Response:
        await negotiate(request)
        if not worker.ready:
            return _answer(503, "starting", f"{_STARTING} {worker.stage.sentence()}")
        return _answer(200, "healthy", _HEALTHY)

    @routes.get("/metrics")
    async def scrape() -> Response:
        body, content_type = metrics()
        return Response(body, headers={"content-type": content_type})

    return routes


def _answer(status: int, word: str, message: str) -> JSONResponse:
    return JSONResponse({"status": word, "message": message}, status)
