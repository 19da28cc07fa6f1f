"""The HTTP server of a worker: uvicorn inside the worker's own event loop, on a socket that is bound first.

Bound first, because an error after live services have started would leave the process hanging (``kafka-client.md``
section 4), and because port 0 must be known before the worker has a name.
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
    try:
        listener = _listener(host, port)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ConfigError(f"listeners: {host or '*'}:{port} {reason}; choose another port", "listeners") from error
    # Inherited by every connection. asyncio sets it for sockets of its own only, and without it each answer after the
    # first waits 40 ms for the client's acknowledgement: head and body are sent apart.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _listener(host: str, port: int) -> socket.socket:
    if not host and socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


class _Server(uvicorn.Server):
    """Signals are the worker's business: it stops in its own order."""

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
        """Begin to serve; connections are accepted from the moment the socket was bound."""
        self._serving = asyncio.create_task(self._server.serve([self._listener]), name="rest-server")

    async def stop(self) -> None:
        """Finish the requests in hand and close the socket. Idempotent."""
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving
        self._listener.close()
