"""One connection of the HTTP server, with limits that uvicorn does not have (``docs/security.md``).

A client that sends a byte now and then keeps its connection only for a limited time. A client that opens many
connections without requests loses the oldest of them to new clients, so that probes and operators still get an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

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
        others = [each for each in self.connections if isinstance(each, LimitedConnection)]
        super().connection_made(transport)
        if len(others) >= self._limits.connections:
            _closed_for_another(others, self).abort()
        if subject := _subject(transport):
            self.app_state = {**self.app_state, "certificate": subject}
        self._limit(self._limits.receive_timeout)

    def data_received(self, data: bytes) -> None:
        """Parse data. Once a request is complete up to its body, ``rest.request.timeout.ms`` limits it."""
        super().data_received(data)
        if self.busy:
            self._unlimit()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the deadline."""
        self._unlimit()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request. A client that still sends the body of this one has only time to read."""
        self.idle_since = self.loop.time()
        unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if not self.busy:
            self._limit(_LINGER_SECONDS if unfinished else self._limits.receive_timeout)

    @property
    def busy(self) -> bool:
        """Whether a request is in progress."""
        return self.cycle is not None and not self.cycle.response_complete

    def abort(self) -> None:
        """Close without sending what is still to send."""
        self.connections.discard(self)
        self.transport.abort()

    def _limit(self, seconds: float) -> None:
        self._unlimit()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _unlimit(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if not self.busy:
            self.abort()


def _closed_for_another(others: Collection[LimitedConnection], newest: LimitedConnection) -> LimitedConnection:
    """Return the connection that has been idle the longest, the newest one if no other is idle."""
    return min((each for each in others if not each.busy), key=lambda each: each.idle_since, default=newest)


def _subject(transport: asyncio.Transport) -> str:
    """Return the subject of the client's certificate, empty without a verified one."""
    certificate = transport.get_extra_info("peercert") or {}
    names = (pair for part in certificate.get("subject", ()) for pair in part)
    return ",".join(f"{name}={value}" for name, value in names)
