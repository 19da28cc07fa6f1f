"""The route class of resources: content negotiation, readiness, time limit (``connect.md`` section 1), forwarding.

A request is forwarded to the worker that can answer it, at most once (``connect.md`` section 1.6). Workers are reached
at the addresses that they advertise. A forwarded request has the credentials of its caller, and the other worker
verifies them again: a worker trusts no other worker (``docs/decisions/credentials.md``).

Tests: ``tests/rest/test_forward.py``, ``tests/rest/test_limits.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.types import Scope

from headrace.config import WorkerConfig
from headrace.config.tls import client_context
from headrace.config.worker_options import LISTENER_TLS
from headrace.core.connect.timeline import Trigger, TriggerType, short
from headrace.core.model.errors import RestError
from headrace.runtime.http_client import HttpClient, HttpResponse, TooLarge
from headrace.runtime.worker.cluster import NO_LEADER, RequestTargetError
from headrace.runtime.worker.timeline import triggered_by
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

FORWARD = "forward"
"""The parameter that is ``false`` in a forwarded request."""

_FORWARDED_TWICE = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_COPIED_HEADERS = ("content-type", "location")
_SENT_HEADERS = ("accept", "content-type", "authorization")
_HTTPS = "https://"
_JSON = "application/json"
_CONNECT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 256 * 1024 * 1024


class Forwarder:
    """Sends requests to the other workers of the cluster."""

    def __init__(self, config: WorkerConfig) -> None:
        """Read the stores of TLS if this worker advertises https, and so the others do. Raises ConfigError."""
        tls = client_context(*config.tls(LISTENER_TLS)) if config.advertises_https else None
        self._http = HttpClient(
            config.rest.request_timeout, tls, connect_seconds=_CONNECT_SECONDS, max_bytes=_MAX_ANSWER_BYTES
        )

    async def forward(self, request: Request, target: RequestTargetError) -> Response:
        """Return the other worker's answer.

        Raises RestError 409 if the worker cannot be reached, or if the request was already forwarded once. Clients
        retry only 409, so an answer 503 of a worker that starts or stops is treated like an unreachable worker.
        """
        if is_forwarded(request.scope):
            raise RestError(_FORWARDED_TWICE, 409)
        path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
        query = "&".join(part for part in (request.url.query, f"{FORWARD}=false") if part)
        headers = {name: value for name in _SENT_HEADERS if (value := request.headers.get(name))}
        answer = await self._send(request.method, target.worker, f"{path}?{query}", headers, await request.body())
        copied = {name: answer.headers[name] for name in _COPIED_HEADERS if name in answer.headers}
        return Response(answer.body, answer.status, copied)

    async def get(self, request: Request, worker: str, path: str) -> HttpResponse:
        """Return another worker's answer to a request of JSON, with the credentials of ``request``. Raises RestError.

        The other worker does not forward it again.
        """
        headers = {name: value for name in ("authorization",) if (value := request.headers.get(name))}
        return await self._send("GET", worker, f"{path}?{FORWARD}=false", {"accept": _JSON, **headers}, b"")

    async def collect(self, request: Request, path: str, workers: Collection[str]) -> list[dict[str, Any]]:
        """Return the lists or objects that other workers answer as one list, an empty one to another worker's request.

        A worker that does not know the resource has nothing. Raises RestError 409 if a worker does not answer.
        """
        return [] if is_forwarded(request.scope) else await self.lists(request, path, workers)

    async def lists(self, request: Request, path: str, workers: Collection[str]) -> list[dict[str, Any]]:
        """As ``collect``, also for a request of another worker: ``path`` must not request its own answer again."""
        documents: list[dict[str, Any]] = []
        for answer in await asyncio.gather(*(self.get(request, worker, path) for worker in workers)):
            if answer.status == HTTPStatus.OK:
                document = json.loads(answer.body)
                documents += document if isinstance(document, list) else [document]
        return documents

    async def _send(
        self, method: str, worker: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> HttpResponse:
        """Return the answer of a worker. Raises RestError 409 if it does not answer."""
        url = worker if "://" in worker else f"http://{worker}"
        if self._http.tls is not None and not url.startswith(_HTTPS):
            log.warning("Worker %s: does not advertise https, and gets no request in clear", worker)
            raise RestError(NO_LEADER, 409)
        try:
            answer = await self._http.request(method, f"{url}{target}", headers, body)
        except TooLarge as error:
            raise RestError(f"Worker {worker}: {error}; send the request to that worker", 500) from error
        except OSError as error:
            reason = getattr(error, "verify_message", "")  # OpenSSL's, if the error is about a certificate
            cause = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
            log.warning("Worker %s: cannot be reached to forward a request: %s", worker, cause)
            raise RestError(NO_LEADER, 409) from error
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise RestError(NO_LEADER, 409)
        return answer


def is_forwarded(scope: Scope) -> bool:
    """Return whether another worker has forwarded the request, according to the request."""
    return QueryParams(scope.get("query_string", b"")).get(FORWARD) == "false"


def user_of(scope: Scope) -> str:
    """Return who sends a request: the name that authentication has found, or the subject of a certificate, or ""."""
    state = scope.get("state", {})
    caller = state.get("caller")
    return str(caller.name if caller is not None else state.get("certificate", ""))


def path_of(scope: Scope) -> str:
    """Return the path of a request as the client has sent it, without the query, which may contain secrets."""
    return str(scope["raw_path"].decode("latin-1").partition("?")[0])


def request_trigger(scope: Scope) -> Trigger:
    return Trigger(TriggerType.REQUEST, scope["method"], short(path_of(scope)), short(user_of(scope)))


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class ConnectRoute(APIRoute):
    """A route that requires JSON, answers 503 while the worker is not ready, and 500 after the time limit."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            await negotiate(request)
            worker: Worker = request.app.state.worker
            if not worker.ready:
                raise RestError(worker.not_ready(), 503)
            try:
                async with asyncio.timeout(worker.config.rest.request_timeout):
                    try:
                        with triggered_by(request_trigger(request.scope)):
                            return await handler(request)
                    except RequestTargetError as target:
                        forwarder: Forwarder = request.app.state.forwarder
                        answer = await forwarder.forward(request, target)
                        # The client may read from this worker next, and expects to see its change.
                        await worker.catch_up()
                        return answer
            except TimeoutError as error:
                stage = worker.configs.change
                message = f"Request timed out. {stage.sentence()}" if stage else "Request timed out"
                raise RestError(message, 500) from error

        return handle


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
