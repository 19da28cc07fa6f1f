"""``/connectors/{name}/dead-letters``: what a connector could not use, and its replay, unknown to Kafka Connect.

Any worker reads the queue. The leader replays, so requests of a replay are forwarded to it.

Tests: ``tests/rest/test_dead_letters.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headrace.core.connect.dead_letters import Replay
from headrace.core.model.errors import RestError
from headrace.rest import parameters
from headrace.rest.route import ConnectRoute, Forwarder
from headrace.runtime.dead_letters.letters import LetterFilter
from headrace.runtime.dead_letters.replays import DeadLetters
from headrace.runtime.worker.cluster import RequestTargetError

_LIMIT, _MOST = 100, 1_000


class ClusterReplays:
    """Answers for the replays of the leader, which may be another worker."""

    def __init__(self, letters: DeadLetters, forwarder: Forwarder) -> None:
        self._letters = letters
        self._forwarder = forwarder

    async def last(self, name: str, request: Request) -> Mapping[str, Any] | None:
        """Return the document of the connector's last replay, None if there was none. Raises RestError 404 and 409."""
        try:
            replay = self._letters.replay(name)
        except RequestTargetError as target:
            path = f"/connectors/{quote(name, safe='')}/dead-letters/replay"
            answer = await self._forwarder.get(request, target.worker, path)
            document: Mapping[str, Any] = json.loads(answer.body)
            if answer.status == HTTPStatus.NOT_FOUND:
                return None
            if answer.status != HTTPStatus.OK:
                raise RestError(str(document["message"]), answer.status) from target
            return document
        return None if replay is None else _document(name, replay)


def router(letters: DeadLetters) -> APIRouter:
    routes = APIRouter(prefix="/connectors/{name}/dead-letters", route_class=ConnectRoute)

    @routes.get("")
    async def get_dead_letters(name: str, request: Request) -> Response:
        return JSONResponse(await letters.listing(name, letter_filter(request)))

    @routes.get("/replay")
    async def get_replay(name: str) -> Response:
        replay = letters.replay(name)
        if replay is None:
            raise RestError(f"The dead letters of connector {name} have not been replayed over REST", 404)
        return JSONResponse(_document(name, replay))

    @routes.post("/replay")
    async def begin_replay(name: str, request: Request) -> Response:
        dry_run, old = parameters.flag(request, "dry_run"), parameters.flag(request, "old")
        replay = await letters.begin(name, dry_run=dry_run, old=old)
        return JSONResponse(_document(name, replay), HTTPStatus.ACCEPTED)

    @routes.delete("/replay")
    async def cancel_replay(name: str) -> Response:
        return JSONResponse(_document(name, letters.cancel(name)), HTTPStatus.ACCEPTED)

    return routes


def letter_filter(request: Request) -> LetterFilter:
    """Return the letters that a request wants to see. Raises RestError 400."""
    given = request.query_params
    limit = parameters.number(request, "limit", _LIMIT, _MOST)
    return LetterFilter(limit, given.get("topic") or None, given.get("reason") or None)


def _document(name: str, replay: Replay) -> Mapping[str, Any]:
    return {"connector": name, **replay.document()}
