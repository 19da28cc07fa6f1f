"""Connections whose login is renewed before it ends, and which report a token that the broker rejects.

A broker with ``connections.max.reauth.ms`` (KIP-368) ends a connection with the first request after that time, and
after the end of its token; aiokafka 0.14 does not log in again. The next request after three quarters of that time goes
to a new connection, which is logged in first. The old one is closed when its last request has been answered, so nothing
is interrupted (``docs/decisions/kafka.md``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from typing import Any

import aiokafka.client
from aiokafka.client import AIOKafkaClient, ConnectionGroup
from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.protocol.admin import SaslAuthenticateRequest

from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.oauth import LoginError, TokenProvider

log = logging.getLogger(__name__)

_EARLIEST, _LATEST = 0.7, 0.8
"""The share of a session after which it is renewed: random, so that connections are not renewed all at once."""
_RETRY_SECONDS = 1.0


class Connection(AIOKafkaConnection):
    """aiokafka's connection with the end of its session."""

    _renew_at = math.inf

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._renew_at

    def postpone(self) -> None:
        """Be due again in a moment, because no new connection could be opened."""
        self._renew_at = time.monotonic() + _RETRY_SECONDS

    def send(self, request: Any, expect_response: bool = True) -> Any:
        answer = super().send(request, expect_response)
        return self._await_authentication(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    async def _await_authentication(self, answer: Any) -> Any:
        response = await answer
        lifetime = getattr(response, "session_lifetime_ms", 0) / 1000
        if lifetime > 0:
            self._renew_at = time.monotonic() + lifetime * random.uniform(_EARLIEST, _LATEST)
        return response

    def retire(self) -> None:
        """Close the connection as soon as all its requests have been answered, or nobody waits for their answers."""
        waiting = [answer for *_, answer in self._requests if not answer.done()]
        if not waiting:
            self.close(CloseReason.IDLE_DROP)
        for answer in waiting:  # an answer that somebody awaits keeps its callback, and thereby this connection
            answer.add_done_callback(self._close_if_unused)

    def _close_if_unused(self, _: object) -> None:
        if all(answer.done() for *_, answer in self._requests):
            self.close(CloseReason.IDLE_DROP)

    def authenticator_oauth(self) -> TokenAuthenticator:
        return TokenAuthenticator(self._sasl_oauth_token_provider)

    def authenticator_gssapi(self) -> KerberosAuthenticator:
        return KerberosAuthenticator(super().authenticator_gssapi(), self.sasl_principal)


class TokenAuthenticator:
    """The client's side of SASL/OAUTHBEARER (RFC 7628). aiokafka's treats a rejected token as accepted."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._token: str | None = None

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next message and whether the broker answers it, None at the end. Raises LoginError."""
        if self._token is None:
            self._token = await self._provider.token()
            extensions = "".join(f"\x01{name}={value}" for name, value in self._provider.extensions().items())
            return f"n,,\x01auth=Bearer {self._token}{extensions}\x01\x01".encode(), True
        if answer:
            self._provider.reject(self._token)
            return b"\x01", True  # the broker sends the failure only after this message
        return None


class KerberosAuthenticator:
    """aiokafka's authenticator for Kerberos, with errors that aiokafka's clients handle.

    The Kerberos library's own errors, as for an expired ticket, would end the background tasks of a client.
    """

    def __init__(self, authenticator: Any, principal: str) -> None:
        self._authenticator, self._principal = authenticator, principal

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next message and whether the broker answers it, None at the end. Raises LoginError."""
        try:
            message: tuple[bytes, bool] | None = await self._authenticator.step(answer)
        except Exception as error:
            cause = " ".join(str(error).split())
            raise LoginError(
                ConfigError(
                    f"Kerberos: no login at {self._principal}: {cause}; get a ticket, or set the environment variable "
                    "KRB5_CLIENT_KTNAME to a keytab",
                    "sasl.mechanism",
                )
            ) from error
        return message


async def create_connection(host: str, port: int, **options: Any) -> Connection:
    """Return an open connection, logged in. Raises KafkaError, OSError or TimeoutError."""
    connection = Connection(host, port, **options)
    await connection.connect()
    return connection


async def close_connection(connection: AIOKafkaConnection, seconds: float = 1.0) -> None:
    """Close a connection and wait until it is closed, for a time."""
    closed = connection.close()
    if closed is not None:
        await asyncio.wait({closed}, timeout=seconds)


def install() -> None:
    """Make all clients of aiokafka in this process use ``Connection``.

    Consumers, producers and admin clients create their connections inside of aiokafka, and some before their creator
    could change them.
    """
    aiokafka.client.create_conn = create_connection
    AIOKafkaClient._get_conn = _get_connection


_reused_or_opened = AIOKafkaClient._get_conn


async def _get_connection(
    client: AIOKafkaClient, node: Any, *, group: ConnectionGroup = ConnectionGroup.DEFAULT, no_hint: bool = False
) -> AIOKafkaConnection | None:
    """Return a connection to a broker, a new one if the session of the current one ends soon."""
    key = node, group
    current = client._conns.get(key)
    if not (isinstance(current, Connection) and current.is_due and current.connected()):
        return await _reused_or_opened(client, node, group=group, no_hint=no_hint)
    del client._conns[key]
    opened = None
    try:
        opened = await _reused_or_opened(client, node, group=group, no_hint=no_hint)
    finally:
        if opened is not None:
            current.retire()
        else:
            current.postpone()  # its session has not ended yet
            opened = client._conns.setdefault(key, current)
    return opened
