"""The route class of resources: content negotiation, readiness, forwarding, time limit (``connect.md`` section 1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from headrace.core.model.errors import RestError
from headrace.rest.forward import Forwarder
from headrace.runtime.worker.cluster import RequestTargetError
from headrace.runtime.worker.worker import Worker

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_JSON = "application/json"


class ConnectRoute(APIRoute):
    """A route that requires JSON, answers 503 while the worker is not ready, and 500 after the time limit."""

    def get_route_handler(self) -> Handler:
        """Wrap the handler of the resource."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            await negotiate(request)
            worker: Worker = request.app.state.worker
            if not worker.ready:
                raise RestError(worker.not_ready(), 503)
            return await _in_time(_answered(handler, request, worker), worker)

        return handle


async def _answered(handler: Handler, request: Request, worker: Worker) -> Response:
    """Return the answer of this worker, or of the worker that the handler names."""
    try:
        return await handler(request)
    except RequestTargetError as target:
        forwarder: Forwarder = request.app.state.forwarder
        answer = await forwarder.forwarded(request, target)
        await worker.catch_up()
        return answer


def _seconds(worker: Worker) -> float:
    return worker.config.rest.request_timeout


async def _in_time(answer: Coroutine[Any, Any, Response], worker: Worker) -> Response:
    try:
        async with asyncio.timeout(_seconds(worker)):
            return await answer
    except TimeoutError as error:
        stage = worker.configs.change
        raise RestError(f"Request timed out. {stage.sentence()}" if stage else "Request timed out", 500) from error


async def negotiate(request: Request) -> None:
    """Raises HTTPException 415 for a body that is not JSON, 406 for a client that does not accept JSON."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != _JSON and await request.body():
        raise HTTPException(415)
    if not accepts_json(request.headers.get("accept", "")):
        raise HTTPException(406)


def accepts_json(accept: str) -> bool:
    """Return whether an ``Accept`` header allows JSON. An empty one does."""
    ranges = [entry.replace(" ", "").lower() for entry in accept.split(",") if entry.strip()]
    return not ranges or any(
        entry.partition(";")[0] in ("*/*", "application/*", _JSON) and not entry.endswith(("q=0", "q=0.0"))
        for entry in ranges
    )
