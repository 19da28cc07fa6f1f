"""The HTTP servers of a worker, for ``listeners`` and ``admin.listeners``: uvicorn in the worker's event loop.

Sockets are bound before anything starts. An error after the start of other services would leave the process hanging
(``kafka-client.md`` section 4). The actual port must also be known early, because it is part of the worker's id.

Connections have limits that uvicorn does not have (``docs/security.md``). A client that sends a byte now and then keeps
its connection only for a limited time. A client that opens many connections without requests loses the oldest of them
to new clients, so that probes and operators still get an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headrace.config import WorkerConfig
from headrace.config.rest_options import HTTPS, Listener
from headrace.config.tls import server_context
from headrace.config.worker_options import ADMIN_TLS, LISTENER_TLS
from headrace.core.model.errors import ConfigError
from headrace.rest.app import WorkerParts, create_admin_app, create_app

_LINGER_SECONDS = 5.0
"""The time that a client has to read an answer that it got before it had sent its request completely."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of a server. ``receive_timeout`` is in seconds: for the head of a request, and for a TLS handshake."""

    connections: int = 1000
    receive_timeout: float = 30.0


class LimitedConnection(H11Protocol):
    """A connection that must send the head of a request in time, and that gives way at the limit of connections."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any], limits: ConnectionLimits
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._limits = limits
        self._deadline: asyncio.TimerHandle | None = None
        self.idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Accept the connection, or close it at once if all others have requests in progress."""
        others = [other for other in self.connections if isinstance(other, LimitedConnection)]
        super().connection_made(transport)
        if len(others) >= self._limits.connections:
            idle = (other for other in others if not other.is_busy)
            min(idle, key=lambda other: other.idle_since, default=self).abort()
        certificate = transport.get_extra_info("peercert") or {}  # a verified one of the client
        names = (pair for part in certificate.get("subject", ()) for pair in part)
        if subject := ",".join(f"{name}={value}" for name, value in names):
            self.app_state = {**self.app_state, "certificate": subject}
        self._set_deadline(self._limits.receive_timeout)

    def data_received(self, data: bytes) -> None:
        """Parse data. Once a request is complete up to its body, ``rest.request.timeout.ms`` limits it."""
        super().data_received(data)
        if self.is_busy:
            self._cancel_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request. A client that still sends the body of this one has only time to read."""
        self.idle_since = self.loop.time()
        unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if not self.is_busy:
            self._set_deadline(_LINGER_SECONDS if unfinished else self._limits.receive_timeout)

    @property
    def is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """Close without sending what is still to send."""
        self.connections.discard(self)
        self.transport.abort()

    def _set_deadline(self, seconds: float) -> None:
        self._cancel_deadline()
        self._deadline = self.loop.call_later(seconds, self._on_deadline)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        if not self.is_busy:
            self.abort()


_CLOSE_SECONDS = 3
_TLS_CLOSE_SECONDS = 1.0
"""The time that a client has to confirm the end of a connection. Many clients never do."""
_DATE_SECONDS = 1.0


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
        port: int = self.socket.getsockname()[1]
        return port


class _Server(uvicorn.Server):
    """Serves all endpoints, and leaves signals to the worker, which stops its parts in order."""

    def __init__(self, config: uvicorn.Config, endpoints: Sequence[Endpoint], limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._endpoints = endpoints
        self._limits = limits
        self._stopping = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections. uvicorn has one context for all sockets, and no time limit of a handshake."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                lambda: LimitedConnection(self.config, self.server_state, self.lifespan.state, self._limits),
                sock=endpoint.socket,
                ssl=endpoint.tls,
                backlog=self.config.backlog,
                ssl_handshake_timeout=self._limits.receive_timeout if endpoint.tls is not None else None,
                ssl_shutdown_timeout=_TLS_CLOSE_SECONDS if endpoint.tls is not None else None,
            )
            for endpoint in self._endpoints
        ]
        self.started = True

    async def main_loop(self) -> None:
        """Update the date in responses each second, until ``stop``. uvicorn wakes ten times a second for it."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._stopping.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()


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
        self._serving = asyncio.create_task(self._server.serve(), name="rest-server")

    async def stop(self) -> None:
        """Finish the requests in progress and close the sockets. Idempotent."""
        self._server.stop()
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving
        self.close()

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.socket.close()


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The sockets of ``listeners`` and of ``admin.listeners``, each in the order of the option."""

    main: Sequence[Endpoint]
    admin: Sequence[Endpoint]

    def port(self, config: WorkerConfig) -> int:
        return self.main[config.listeners.index(config.listener)].port

    @classmethod
    def listen(cls, config: WorkerConfig) -> Endpoints:
        """Listen on the addresses of the options. Raises ConfigError, and then listens on none."""
        main = _listen("listeners", config.listeners, config.tls(LISTENER_TLS))
        try:
            return cls(main, _listen("admin.listeners", config.admin_listeners, config.tls(ADMIN_TLS)))
        except ConfigError:
            _close(main)
            raise


def rest_servers(parts: WorkerParts, endpoints: Endpoints) -> Sequence[RestServer]:
    """Return the servers, which are not started. Raises ConfigError."""
    config = parts.worker.config
    limits = ConnectionLimits(config.access.connections, config.access.receive_timeout)
    servers = [RestServer(create_app(parts), endpoints.main, limits)]
    if endpoints.admin:
        servers.append(RestServer(create_admin_app(parts), endpoints.admin, limits))
    return servers


def _listen(option: str, listeners: Sequence[Listener], tls: tuple[Mapping[str, str], str]) -> list[Endpoint]:
    endpoints: list[Endpoint] = []
    try:
        for listener in listeners:
            context = server_context(*tls) if listener.scheme == HTTPS else None
            endpoints.append(Endpoint(bind(listener.host, listener.port, option), context))
    except ConfigError:
        _close(endpoints)
        raise
    return endpoints


def _close(endpoints: Sequence[Endpoint]) -> None:
    for endpoint in endpoints:
        endpoint.socket.close()
