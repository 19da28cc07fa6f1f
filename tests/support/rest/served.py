"""A worker's application behind its real HTTP server on a free port, for clients that open connections themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from headrace.rest.server import Endpoint, RestServer, bind


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """The URL of ``app``, which is served within the block."""
    listener = bind("127.0.0.1", 0)
    server = RestServer(app, [Endpoint(listener)])
    server.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        await server.stop()
