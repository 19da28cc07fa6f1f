"""Tokens for SASL/OAUTHBEARER: where they come from, and when Kafka's clients replace them."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace.runtime.http_client import TooLarge
from headrace_connectors.tokens import RETRY_PAUSES, ClientCredentials, NoToken, Token, TokenCache

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
        backoff: tuple[float, float] = RETRY_PAUSES,
        extensions: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
        advice: str = _ADVICE,
    ) -> None:
        """``backoff`` is the first and the longest pause after failed requests, in seconds.

        ``advice`` is what to do if a broker rejects a token.
        """
        self.advice = advice
        self.name = source.name
        self._cache = TokenCache(source.fetch, window.refresh_at, backoff, now)
        self._extensions = dict(extensions or {})
        self._thread = ThreadPoolExecutor(1, "kafka-token")  # clients run on several event loops

    async def token(self) -> str:
        """Return a token that is valid now. Raises LoginError."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._cache.token)
        except HeadraceError as error:
            raise LoginError(error) from error

    def extensions(self) -> Mapping[str, str]:
        """Return the SASL extensions (KIP-342)."""
        return self._extensions

    def reject(self, text: str) -> None:
        """Do not use a token again that a broker has rejected."""
        self._cache.discard(text)


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

    credentials: ClientCredentials

    @property
    def name(self) -> str:
        """The endpoint, without a query or user of its URL."""
        parts = urlsplit(self.credentials.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"Token endpoint {parts.scheme}://{parts.hostname}:{port}{parts.path}"

    def fetch(self) -> Token:
        """Request a token. Raises ConfigError if the endpoint refuses the client, else Retriable."""
        try:
            granted = self.credentials.fetch()
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
        return Token(granted.text, begins or granted.begins, granted.ends if ends is None else ends)

    def _refusal(self, answer: NoToken) -> HeadraceError:
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR or answer.status in (408, 429):
            return Retriable(f"{self.name}: answers {answer.status}; check the identity provider")
        if answer.code == "invalid_scope":
            return ConfigError(
                f"{self.name}: rejects the scope (invalid_scope); correct sasl.oauthbearer.scope",
                "sasl.oauthbearer.scope",
            )
        if answer.code in _REFUSED_CLIENT or answer.status in (401, 403):
            return ConfigError(
                f"{self.name}: rejects the client {self.credentials.client}: {answer.code or answer.status}; correct "
                "client id and secret",
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
