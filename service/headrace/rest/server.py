"""The HTTP server of a worker: uvicorn in the worker's event loop, on a socket that is bound before anything starts.

An error after the start of other services would leave the process hanging (``kafka-client.md`` section 4). The actual
port must also be known early, because it is part of the worker's id.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from headrace.core.model.errors import ConfigError
from headrace.rest.connection import ConnectionLimits, LimitedConnection

_CLOSE_SECONDS = 3
_TLS_CLOSE_SECONDS = 1.0
"""The time that a client has to confirm the end of a connection. Many clients never do."""


def bind(host: str, port: int, option: str = "listeners") -> socket.socket:
    """Listen on ``host`` (empty: every interface) and ``port`` (0: a free one). Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host or (not host and socket.has_dualstack_ipv6()) else socket.AF_INET
    try:
        dualstack = not host and family is socket.AF_INET6
        listener = socket.create_server((host, port), family=family, dualstack_ipv6=dualstack)
    except OSError as error:
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ConfigError(f"{option}: {host or '*'}:{port} {reason}; choose another port", option) from error
    # Connections inherit the option. asyncio sets it only for sockets that it creates itself. Without it each answer
    # after the first waits 40 ms for the client's acknowledgement, because head and body are sent separately.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A socket that accepts connections, and the context of its TLS if it is an https listener."""

    socket: socket.socket
    tls: ssl.SSLContext | None = None

    @property
    def port(self) -> int:
        """The actual port."""
        port: int = self.socket.getsockname()[1]
        return port


class _Server(uvicorn.Server):
    """Serves all endpoints, and leaves signals to the worker, which stops its parts in order."""

    def __init__(self, config: uvicorn.Config, endpoints: Sequence[Endpoint], limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._endpoints = endpoints
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections. uvicorn knows one context for all sockets, and no time limit of a handshake."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                self._connection,
                sock=each.socket,
                ssl=each.tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=self._limits.receive_timeout if each.tls is not None else None,
                ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if each.tls is not None else None,
            )
            for each in self._endpoints
        ]
        self.started = True

    def _connection(self) -> asyncio.Protocol:
        return LimitedConnection(self.config, self.server_state, self.lifespan.state, self._limits)


class RestServer:
    """Serves one application on its endpoints until it is stopped."""

    def __init__(self, app: ASGIApp, endpoints: Sequence[Endpoint], limits: ConnectionLimits | None = None) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # anybody could write another address into the audit log
            ws="none",
            timeout_graceful_shutdown=_CLOSE_SECONDS,
        )
        self._server = _Server(config, endpoints, limits or ConnectionLimits())
        self._endpoints = endpoints
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start serving. The sockets have accepted connections since they were bound."""
        self._serving = asyncio.create_task(self._server.serve(), name="rest-server")

    async def stop(self) -> None:
        """Finish the requests in progress and close the sockets. Idempotent."""
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving
        self.close()

    def close(self) -> None:
        """Close the sockets. Idempotent."""
        for each in self._endpoints:
            each.socket.close()
