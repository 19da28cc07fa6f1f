"""Tokens for SASL/OAUTHBEARER: fetched when a connection needs one, kept, and replaced before they expire.

Clients run on several event loops, so a thread of its own fetches the tokens, one request at a time.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import logging
import random
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace_connectors.client_credentials import ClientCredentials, NoToken
from headrace_connectors.http_transport import TooLarge

log = logging.getLogger(__name__)

_LOGIN = "sasl.jaas.config"
_URL = "sasl.oauthbearer.token.endpoint.url"
_ADVICE = (
    "compare the token's issuer, audience and scope with the broker's sasl.oauthbearer.expected.*, and its keys with "
    "those of the issuer"
)
_REFUSED_CLIENT = ("invalid_client", "unauthorized_client", "access_denied")


class LoginError(KafkaError):
    """There is no token or ticket. aiokafka treats it as a failed connection; ``failure`` is for the operator."""

    retriable = True

    def __init__(self, failure: HeadraceError) -> None:
        super().__init__(str(failure))
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Token:
    """A token; times are seconds since 1970. ``ends`` is None if the token does not show it."""

    text: str = field(repr=False)
    begins: float
    ends: float | None


class TokenSource(Protocol):
    """Fetches a new token. It may block."""

    @property
    def name(self) -> str:
        """What tokens come from, for messages."""

    def fetch(self) -> Token:
        """Return a token. Raises ConfigError or Retriable."""


@dataclass(frozen=True, slots=True)
class RefreshWindow:
    """Kafka's ``sasl.login.refresh.*``: share of the lifetime, its random part, seconds between and before the end."""

    factor: float
    jitter: float
    period: float
    buffer: float

    def refresh_at(self, token: Token, now: float) -> float:
        """Return when ``token`` is to be replaced, as Kafka's ``ExpiringCredentialRefreshingLogin`` does."""
        if token.ends is None:
            return now
        share = self.factor + self.jitter * random.random()
        if self.period + self.buffer > token.ends - now:
            return now + (token.ends - now) * share
        begins = min(token.begins, now)
        planned = begins + (token.ends - begins) * share
        return max(min(planned, token.ends - self.buffer), now + self.period)


class TokenProvider(AbstractTokenProvider):
    """The tokens of all clients with the same credentials. Methods are called on any event loop."""

    def __init__(
        self,
        source: TokenSource,
        window: RefreshWindow,
        backoff: tuple[float, float],
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
        advice: str = _ADVICE,
    ) -> None:
        """``backoff`` is the first and the longest pause after failed requests, in seconds.

        ``advice`` is what to do if a broker rejects a token.
        """
        self.advice = advice
        self.name = source.name
        self._source, self._window, self._now = source, window, now
        self._first_pause, self._longest_pause = backoff
        self._extensions = dict(extensions or {})
        self._token: Token | None = None
        self._refresh_at = self._pause = self._next_try = 0.0
        self._failure: HeadraceError | None = None
        self._thread = ThreadPoolExecutor(1, "kafka-token")

    async def token(self) -> str:
        """Return a token that is valid now. Raises LoginError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._current)

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions (KIP-342)."""
        return self._extensions

    def reject(self, text: str) -> None:
        """Do not use a token again that a broker has rejected: the provider may have changed its keys."""
        if self._token is not None and self._token.text == text:
            self._token = None

    def _current(self) -> str:
        now, token = self._now(), self._token
        if token is not None and now < self._refresh_at:
            return token.text
        try:
            token = self._fetched(now)
        except HeadraceError as error:
            if token is None or token.ends is None or token.ends <= now:
                raise LoginError(error) from error
            log.warning("%s; the current token stays in use until it ends in %.0f s", error, token.ends - now)
        return token.text

    def _fetched(self, now: float) -> Token:
        """Fetch a token, not again within the pause after a failure. Raises ConfigError or Retriable."""
        if self._failure is not None and now < self._next_try:
            raise self._failure
        try:
            token = self._source.fetch()
        except HeadraceError as error:
            self._pause = min(max(2 * self._pause, self._first_pause), self._longest_pause)
            self._next_try, self._failure = self._now() + self._pause, error
            raise
        self._failure, self._pause = None, 0.0
        self._token, self._refresh_at = token, self._window.refresh_at(token, self._now())
        return token


@dataclass(frozen=True, slots=True)
class FileTokens:
    """The token in a file, which is read again for each connection; ``option`` names the file."""

    path: str
    option: str

    @property
    def name(self) -> str:
        """The option and its file."""
        return f"{self.option}: {self.path}"

    def fetch(self) -> Token:
        """Return the token of the file. Raises Retriable, because the file may be replaced."""
        try:
            text = Path(self.path).read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            cause = error.strerror if isinstance(error, OSError) else "it is not text"
            raise Retriable(f"{self.name} cannot be read: {cause}; correct the path") from error
        begins, _ = _times(text)
        return Token(text, begins or time.time(), None)


@dataclass(frozen=True, slots=True)
class HttpTokens:
    """Tokens for OAuth's client credentials, from a token endpoint."""

    url: str
    client: str
    secret: str = field(repr=False)
    scope: str | None
    urlencode: bool
    connect_seconds: float
    read_seconds: float
    tls: ssl.SSLContext | None

    def fetch(self) -> Token:
        """Request a token. Raises ConfigError if the endpoint refuses the client, else Retriable."""
        asked = time.time()
        try:
            granted = self._client().fetch()
        except NoToken as answer:
            raise self._refusal(answer) from answer
        except TooLarge as error:
            raise ConfigError(f"{self.name}: its answer is too large for a token; correct {_URL}", _URL) from error
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"{self.name}: its certificate is not accepted: {error.verify_message.rstrip('.')}; correct "
                f"ssl.truststore.location in {_LOGIN}",
                _LOGIN,
            ) from error
        except OSError as error:
            raise Retriable(f"{self.name}: cannot be reached: {error.strerror or error}; check {_URL}") from error
        begins, ends = _times(granted.text)
        if ends is None and granted.seconds:
            ends = asked + granted.seconds
        return Token(granted.text, begins or asked, ends)

    @property
    def name(self) -> str:
        """The endpoint, without a query or user of its URL."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"Token endpoint {parts.scheme}://{parts.hostname}:{port}{parts.path}"

    def _client(self) -> ClientCredentials:
        return ClientCredentials(
            self.url,
            self.client,
            self.secret,
            self.scope,
            self.tls,
            encodes=self.urlencode,
            seconds=self.connect_seconds + self.read_seconds,
            connect_seconds=self.connect_seconds,
        )

    def _refusal(self, answer: NoToken) -> HeadraceError:
        if answer.status >= http.client.INTERNAL_SERVER_ERROR or answer.status in (408, 429):
            return Retriable(f"{self.name}: answers {answer.status}; check the identity provider")
        if answer.code == "invalid_scope":
            return ConfigError(
                f"{self.name}: rejects the scope (invalid_scope); correct sasl.oauthbearer.scope",
                "sasl.oauthbearer.scope",
            )
        if answer.code in _REFUSED_CLIENT or answer.status in (401, 403):
            return ConfigError(
                f"{self.name}: rejects the client {self.client}: {answer.code or answer.status}; correct client id and "
                "secret",
                _LOGIN,
            )
        cause = answer.code or "without an access token"
        return ConfigError(f"{self.name}: answers {answer.status} {cause}; correct {_URL}", _URL)


def _times(text: str) -> tuple[float | None, float | None]:
    """Return when a JSON Web Token begins and ends, None for what it does not show. The broker verifies it."""
    payload = text.split(".")[1] if text.count(".") == 2 else ""  # header, claims, signature
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(claims, dict):
        return None, None
    begins, ends = (claims.get(name) for name in ("iat", "exp"))
    return (
        begins if isinstance(begins, int | float) else None,
        ends if isinstance(ends, int | float) else None,
    )
