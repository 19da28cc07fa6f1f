"""``/workers``: the workers of the cluster with their tasks and memory, unknown to Kafka Connect.

Tests: ``tests/rest/test_workers.py``.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace import __version__
from headrace.rest.route import ConnectRoute, Forwarder
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.memory_plan import available_memory, used_memory
from headrace.runtime.worker.worker import Worker


class ClusterWorkers:
    """Answers for this worker and for those that have tasks: the group tells its members of no others."""

    def __init__(self, worker: Worker, herder: Herder, forwarder: Forwarder) -> None:
        self._worker = worker
        self._herder = herder
        self._forwarder = forwarder

    async def all(self, request: Request) -> list[dict[str, Any]]:
        """Return the workers by address. Raises RestError 409 if another worker does not answer."""
        workers: list[dict[str, Any]] = [
            {
                "worker_id": self._worker.worker_id,
                "version": __version__,
                "leader": self._worker.cluster.leads,
                "tasks": self._worker.cluster.task_count,
                "waits_for": self._worker.waits_for,
                "memory": {"used_bytes": used_memory(), "available_bytes": available_memory()},
            }
        ]
        workers += await self._forwarder.collect(request, "/workers", self._herder.other_owners())
        return sorted(workers, key=lambda worker: str(worker["worker_id"]))


def router(workers: ClusterWorkers) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/workers")
    async def get_workers(request: Request) -> Response:
        return JSONResponse(await workers.all(request))

    return routes
