"""Forward a request to the worker that can answer it, at most once (``connect.md`` section 1.6).

This is the only module that imports aiohttp. Workers are reached at the addresses that they advertise.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

import aiohttp
from fastapi import Request, Response
from yarl import URL

from headrace.core.model.errors import RestError
from headrace.runtime.worker.cluster import NO_LEADER, RequestTargetError

log = logging.getLogger(__name__)

_FLAG = "forward"
_FORWARDED_TWICE = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_COPIED_HEADERS = ("content-type", "location")


async def forwarded(request: Request, target: RequestTargetError, seconds: float) -> Response:
    """Return the other worker's answer.

    Raises RestError 409 if the worker cannot be reached, or if the request was already forwarded once. Clients
    retry only 409, so an answer 503 of a worker that starts or stops is treated like an unreachable worker.
    """
    if request.query_params.get(_FLAG) == "false":
        raise RestError(_FORWARDED_TWICE, 409)
    path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    query = "&".join(part for part in (request.url.query, f"{_FLAG}=false") if part)
    headers = {name: value for name in ("accept", "content-type") if (value := request.headers.get(name))}
    url = f"http://{target.worker}{path}?{query}"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(seconds, connect=5)) as session,
            session.request(
                request.method,
                URL(url, encoded=True),
                data=await request.body(),
                headers=headers,
                allow_redirects=False,
            ) as answer,
        ):
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                raise RestError(NO_LEADER, 409)
            copied = {name: answer.headers[name] for name in _COPIED_HEADERS if name in answer.headers}
            return Response(await answer.read(), answer.status, copied)
    except (aiohttp.ClientError, OSError) as error:
        log.warning("Worker %s: cannot be reached to forward a request: %s", target.worker, type(error).__name__)
        raise RestError(NO_LEADER, 409) from error
