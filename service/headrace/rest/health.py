"""``/health`` (KIP-1017), ``/health/live`` and ``/health/ready`` for probes, and ``/metrics`` for Prometheus.

All answer as soon as the port is bound.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.rest.route import negotiate
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

_HEALTHY = "Worker has completed startup and is ready to handle requests."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."

Exposition = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns the metrics as text, and the content type."""


def router(worker: Worker, probes: WorkerHealth, metrics: Exposition) -> APIRouter:
    """Return the routes of ``/health`` and ``/metrics``.

    ``/health`` is Kafka Connect's: a worker stays healthy with failed connectors and unreachable brokers, which a
    restart would not repair. It is unhealthy if a change of a configuration takes longer than Kafka Connect's check
    would wait, because it blocks all other changes. If the event loop is blocked, ``/health`` does not answer.
    """
    routes = APIRouter()
    live_probe = _Probe("live", logging.ERROR)
    ready_probe = _Probe("ready", logging.INFO)

    @routes.get("/health")
    async def connect_health(request: Request) -> Response:
        await negotiate(request)
        if not worker.ready:
            return _answer(503, "stopping" if worker.stopping else "starting", worker.not_ready())
        if (stage := worker.stuck()) is not None:
            return _answer(500, "unhealthy", f"{_UNHEALTHY} {stage.sentence()}")
        return _answer(200, "healthy", _HEALTHY)

    @routes.get("/health/live")
    async def live() -> Response:
        return live_probe.answer(probes.not_live())

    @routes.get("/health/ready")
    async def ready() -> Response:
        return ready_probe.answer(probes.not_ready())

    @routes.get("/metrics")
    async def scrape() -> Response:
        body, content_type = await metrics()
        return Response(body, headers={"content-type": content_type})

    return routes


class _Probe:
    """The answers to one kind of probe. A change is logged once: the access log has probes at DEBUG only.

    So the log contains why an orchestrator restarts a worker, or sends it no requests.
    """

    def __init__(self, name: str, level: int) -> None:
        self._name = name
        self._level = level
        self._failed = False

    def answer(self, problems: Sequence[str]) -> JSONResponse:
        """Return 503 with the problems, or 200 if there are none."""
        message = "; ".join(problems)
        if problems and not self._failed:
            log.log(self._level, "Worker: is not %s: %s", self._name, message)
        elif self._failed and not problems:
            log.info("Worker: is %s", self._name)
        self._failed = bool(problems)
        return _answer(503, f"not {self._name}", message) if problems else _answer(200, self._name, "")


def _answer(status: int, health: str, message: str) -> JSONResponse:
    return JSONResponse({"status": health, "message": message}, status)
