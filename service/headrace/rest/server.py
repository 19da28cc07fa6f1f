"""The HTTP server of a worker: uvicorn in the worker's event loop, on a socket that is bound before anything starts.

An error after the start of other services would leave the process hanging (``kafka-client.md`` section 4). The actual
port must also be known early, because it is part of the worker's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from headrace.core.model.errors import ConfigError

_CLOSE_SECONDS = 3


def bind(host: str, port: int) -> socket.socket:
    """Listen on ``host`` (empty: every interface) and ``port`` (0: a free one). Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host or (not host and socket.has_dualstack_ipv6()) else socket.AF_INET
    try:
        dualstack = not host and family is socket.AF_INET6
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=dualstack)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ConfigError(f"listeners: {host or '*'}:{port} {reason}; choose another port", "listeners") from error
    # Connections inherit the option. asyncio sets it only for sockets that it creates itself. Without it each answer
    # after the first waits 40 ms for the client's acknowledgement, because head and body are sent separately.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Server(uvicorn.Server):
    """Leaves signals to the worker, which stops its parts in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class RestServer:
    """Serves one application until it is stopped."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        self._server = _Server(config)
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start serving. The socket has accepted connections since it was bound."""
        self._serving = asyncio.create_task(self._server.serve([self._listener]), name="rest-server")

    async def stop(self) -> None:
        """Finish the requests in progress and close the socket. Idempotent."""
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving
        self._listener.close()
