"""``/health`` for probes (KIP-1017) and ``/metrics`` for Prometheus: both answer from the first moment."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.rest.route import negotiate
from headrace.runtime.worker.worker import Worker

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."

Exposition = Callable[[], tuple[bytes, str]]
"""Gives the metrics as text, and its content type."""


def router(worker: Worker, metrics: Exposition) -> APIRouter:
    """The routes of ``/health`` and ``/metrics``.

    Failed connectors do not make a worker unhealthy, nor do brokers that are gone: a restart would not help. One change
    of a configuration that takes longer than Connect's check would wait does, as all others wait behind it; so does an
    event loop that is blocked, since nobody answers then.
    """
    routes = APIRouter()

    @routes.get("/health")
    async def health(request: Request) -> Response:
        await negotiate(request)
        if not worker.ready:
            return _answer(503, "stopping" if worker.stopping else "starting", worker.not_ready())
        if (stage := worker.stuck()) is not None:
            return _answer(500, "unhealthy", f"{_UNHEALTHY} {stage.sentence()}")
        return _answer(200, "healthy", _HEALTHY)

    @routes.get("/metrics")
    async def scrape() -> Response:
        body, content_type = metrics()
        return Response(body, headers={"content-type": content_type})

    return routes


def _answer(status: int, word: str, message: str) -> JSONResponse:
    return JSONResponse({"status": word, "message": message}, status)
