"""Requests that another worker has to answer are sent on to it, once (``connect.md`` section 1.6).

The only file that imports aiohttp. Workers are reached by the addresses that they advertise.
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
_TOO_FAR = "Cannot complete request because of a conflicting operation (e.g. worker rebalance)"
_KEPT = ("content-type", "location")


async def forwarded(request: Request, elsewhere: RequestTargetError, seconds: float) -> Response:
    """The other worker's answer. Raises RestError 409 when it gives none yet, or has sent the request here itself.

    Clients repeat a 409 and nothing else, so one that starts or stops counts as one that cannot be reached.
    """
    if request.query_params.get(_FLAG) == "false":
        raise RestError(_TOO_FAR, 409)
    path = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    query = "&".join(part for part in (request.url.query, f"{_FLAG}=false") if part)
    headers = {name: value for name in ("accept", "content-type") if (value := request.headers.get(name))}
    url = f"http://{elsewhere.worker}{path}?{query}"
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
            kept = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
            return Response(await answer.read(), answer.status, kept)
    except (aiohttp.ClientError, OSError) as error:
        log.warning("Worker %s, which has to answer, cannot be reached: %s", elsewhere.worker, type(error).__name__)
        raise RestError(NO_LEADER, 409) from error
