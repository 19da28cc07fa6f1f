"""Resources of the worker: ``/``, ``/connector-plugins``, ``/admin/loggers``, ``/health`` and ``/metrics``.

``/health`` (KIP-1017), ``/health/live`` and ``/health/ready`` for probes, and ``/metrics`` for Prometheus, answer as
soon as the port is bound. Tests: ``tests/rest/test_health.py``, ``tests/rest/test_transcript.py``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from headrace import __version__
from headrace.core.model.errors import RestError
from headrace.rest import bodies, entities
from headrace.rest.route import ConnectRoute, negotiate
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

KAFKA_VERSION = "4.3.1"
"""The version of the Kafka Connect API. kcctl parses it as integers and enables features by it."""


def root_router(worker: Worker) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/")
    async def server_info() -> Response:
        return JSONResponse(
            {"version": KAFKA_VERSION, "commit": f"headrace-{__version__}", "kafka_cluster_id": worker.cluster_id}
        )

    return routes


def plugin_router(herder: Herder) -> APIRouter:
    routes = APIRouter(prefix="/connector-plugins", route_class=ConnectRoute)

    @routes.get("")
    async def list_plugins(request: Request) -> Response:
        connectors_only = request.query_params.get("connectorsOnly", "true").lower() == "true"
        return JSONResponse(
            [entities.plugin_info(plugin) for plugin in herder.plugins(connectors_only=connectors_only)]
        )

    @routes.get("/{plugin}/config")
    async def plugin_config(plugin: str, request: Request) -> Response:
        definitions = herder.plugin_config(plugin, request.query_params.get("version"))
        return JSONResponse([entities.config_key_info(key) for key in definitions.keys])

    @routes.put("/{plugin}/config/validate")
    async def validate(plugin: str, request: Request) -> Response:
        infos = herder.validate(plugin, await bodies.string_map(request))
        return JSONResponse(entities.config_infos(infos))

    return routes


def logger_router(herder: Herder) -> APIRouter:
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
        scope = request.query_params.get("scope", "worker").lower()
        if scope not in ("worker", "cluster"):  # as in Kafka Connect
            log.warning("PUT /admin/loggers: the scope is neither worker nor cluster; the scope worker is used")
        if scope == "cluster":
            await herder.set_cluster_level(name, level)
            return Response(status_code=204)
        return JSONResponse(herder.set_worker_level(name, level))

    return routes


_HEALTHY = "Worker has completed startup and is ready to handle requests."
_UNHEALTHY = "Worker was unable to handle this request and may be unable to handle other requests."

Exposition = Callable[[], Awaitable[tuple[Sequence[bytes], str]]]
"""Returns the metrics as text in parts, and the content type."""


def health_router(worker: Worker, probes: WorkerHealth, metrics: Exposition) -> APIRouter:
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
        parts, content_type = await metrics()
        length = str(sum(map(len, parts)))

        async def body() -> AsyncIterator[bytes]:  # of a plain list, Starlette would send each part from a thread
            for part in parts:
                yield part

        return StreamingResponse(body(), headers={"content-type": content_type, "content-length": length})

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
