"""``/connectors/{name}/stages``: where the time of a connector's tasks goes, unknown to Kafka Connect.

Tests: ``tests/rest/test_stages.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.rest.route import ConnectRoute, Forwarder
from headrace.runtime.worker.herder import Herder

Flows = Callable[[str], Sequence[tuple[int, Mapping[str, object]]]]
"""Returns what the tasks of a connector on this worker did in the last minute, with their numbers."""


class ConnectorStages:
    """Answers for the tasks of all workers."""

    def __init__(self, herder: Herder, forwarder: Forwarder, worker_id: str, flows: Flows) -> None:
        self._herder = herder
        self._forwarder = forwarder
        self._worker_id = worker_id
        self._flows = flows

    async def of(self, name: str, request: Request) -> list[dict[str, Any]]:
        """Return the tasks by number. Raises RestError: 404, and 409 if another worker does not answer."""
        self._herder.config(name)
        tasks = [{"task": task, "worker_id": self._worker_id, **flow} for task, flow in self._flows(name)]
        path = f"/connectors/{quote(name, safe='')}/stages"
        tasks += await self._forwarder.collect(request, path, self._herder.other_owners(name))
        return sorted(tasks, key=lambda task: int(task["task"]))


def router(stages: ConnectorStages) -> APIRouter:
    routes = APIRouter(route_class=ConnectRoute)

    @routes.get("/connectors/{name}/stages")
    async def get_stages(name: str, request: Request) -> Response:
        return JSONResponse(await stages.of(name, request))

    return routes
