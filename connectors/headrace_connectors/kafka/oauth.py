"""SASL/OAUTHBEARER: where a client fetches its token, with which credentials, and when again.

The properties are those of Kafka's ``ClientCredentialsJwtRetriever`` and ``FileJwtRetriever``. As in Kafka, TLS to the
token endpoint has the ``ssl.*`` options of the login module, not those of the connection to the brokers.
"""

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
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from headrace.config.rest_options import is_secure_url
from headrace.config.tls import client_context
from headrace.core.connect.config_def import Importance, InvalidValue, Type, between, one_of
from headrace.core.connect.typed_options import definition, option, parse_options, seconds
from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace.runtime.http_client import HttpClient, TooLarge
from headrace_connectors.tokens import RETRY_PAUSES, ClientCredentials, NoToken, Token, TokenCache

LOGIN = "sasl.jaas.config"
URL = "sasl.oauthbearer.token.endpoint.url"
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
        """The endpoint's URL without query and user."""
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
            raise ConfigError(f"{self.name}: its answer is too large for a token; correct {URL}", URL) from error
        except ssl.SSLCertVerificationError as error:
            raise ConfigError(
                f"{self.name}: its certificate is not accepted: {error.verify_message.rstrip('.')}; correct "
                f"ssl.truststore.location in {LOGIN}",
                LOGIN,
            ) from error
        except OSError as error:
            raise Retriable(f"{self.name}: cannot be reached: {error.strerror or error}; check {URL}") from error
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
                LOGIN,
            )
        cause = answer.code or "without an access token"
        return ConfigError(f"{self.name}: answers {answer.status} {cause}; correct {URL}", URL)


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
    return (begins if isinstance(begins, int | float) else None, ends if isinstance(ends, int | float) else None)


Properties = Mapping[str, str]

CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_HANDLER = "sasl.login.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_EXTENSION = "extension_"
_LOW = Importance.LOW


def _share(lowest: float, highest: float) -> Callable[[str, float], None]:
    def check(name: str, value: float) -> None:
        if not lowest <= value <= highest:
            raise InvalidValue(f"Invalid value {value} for configuration {name}: it must be {lowest:g} to {highest:g}")

    return check


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Kafka's options for a login with a token. Times are in seconds."""

    url: str | None = option(
        URL, Type.STRING, None, "https URL of the token endpoint, or file URL of a file with a token."
    )
    client_id: str | None = option(CLIENT_ID, Type.STRING, None, "Client id; before clientId of the login module.")
    client_secret: str | None = option(
        CLIENT_SECRET, Type.PASSWORD, None, "Client secret; before clientSecret of the login module."
    )
    scope: str | None = option(
        "sasl.oauthbearer.scope", Type.STRING, None, "Scope of the token; before scope of the login module."
    )
    urlencode: bool = option(
        "sasl.oauthbearer.header.urlencode",
        Type.BOOLEAN,
        False,
        "Whether id and secret are URL-encoded in the header, as RFC 6749 requires and some providers do not accept.",
        _LOW,
    )
    handler: str | None = option(
        _HANDLER,
        Type.STRING,
        None,
        "Kafka's OAuthBearerLoginCallbackHandler, or nothing.",
        _LOW,
        one_of(f"{_PACKAGE}.OAuthBearerLoginCallbackHandler", f"{_PACKAGE}.secured.OAuthBearerLoginCallbackHandler"),
    )
    retriever: str = option(
        "sasl.oauthbearer.jwt.retriever.class",
        Type.STRING,
        f"{_PACKAGE}.DefaultJwtRetriever",
        "Kafka's class that fetches tokens. The URL decides whether they come from an endpoint or a file.",
        _LOW,
        one_of(*(f"{_PACKAGE}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File"))),
    )
    connect_seconds: float = option(
        "sasl.login.connect.timeout.ms", Type.INT, 10_000, "Time to connect to the endpoint.", _LOW, read=seconds
    )
    read_seconds: float = option(
        "sasl.login.read.timeout.ms", Type.INT, 10_000, "Time for the endpoint's answer.", _LOW, read=seconds
    )
    backoff_seconds: float = option(
        "sasl.login.retry.backoff.ms", Type.LONG, 100, "First pause after a failed request.", _LOW, read=seconds
    )
    longest_backoff_seconds: float = option(
        "sasl.login.retry.backoff.max.ms", Type.LONG, 10_000, "Longest pause after failed requests.", _LOW, read=seconds
    )
    refresh_factor: float = option(
        "sasl.login.refresh.window.factor",
        Type.DOUBLE,
        0.8,
        "Share of a token's lifetime after which it is replaced.",
        _LOW,
        _share(0.5, 1),
    )
    refresh_jitter: float = option(
        "sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, "Random part of that share.", _LOW, _share(0, 0.25)
    )
    refresh_period: int = option(
        "sasl.login.refresh.min.period.seconds",
        Type.SHORT,
        60,
        "Shortest time between two refreshes.",
        _LOW,
        between(0, 900),
    )
    refresh_buffer: int = option(
        "sasl.login.refresh.buffer.seconds",
        Type.SHORT,
        300,
        "Time before a token's end at which it is replaced at the latest.",
        _LOW,
        between(0, 3600),
    )


OAUTH_PROPERTIES = tuple(definition(OAuthSettings).names())


def token_provider(properties: Properties, login: Properties) -> TokenProvider:
    """Return the tokens of a client; ``login`` are the options of its login module. Raises ConfigError.

    Clients with equal properties share them.
    """
    settings = parse_options(OAuthSettings, properties)
    return _provider(settings, tuple(sorted(login.items())))


@lru_cache(maxsize=64)
def _provider(settings: OAuthSettings, login: tuple[tuple[str, str], ...]) -> TokenProvider:
    options = dict(login)
    extensions = {
        name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
    }
    window = RefreshWindow(
        settings.refresh_factor, settings.refresh_jitter, settings.refresh_period, settings.refresh_buffer
    )
    backoff = settings.backoff_seconds, settings.longest_backoff_seconds
    url = (settings.url or "").strip()
    if not url:
        raise ConfigError(f"{URL}: is not set; sasl.mechanism=OAUTHBEARER fetches its token there", URL)
    if urlsplit(url).scheme == "file":
        return TokenProvider(FileTokens(unquote(urlsplit(url).path), URL), window, backoff, extensions)
    if not is_secure_url(url):
        raise ConfigError(f"{URL}: must be an https or file URL, because the client's secret is sent there", URL)
    client = settings.client_id or options.get("clientId")
    secret = settings.client_secret or options.get("clientSecret")
    if not client or not secret:
        missing, alternative = (CLIENT_SECRET, "clientSecret") if client else (CLIENT_ID, "clientId")
        raise ConfigError(f"{missing}: is not set; set it, or {alternative} in {LOGIN}", missing)
    try:
        context = client_context(options) if url.startswith("https:") else None
    except ConfigError as error:
        raise ConfigError(f"{LOGIN}: option {error}", LOGIN) from error
    http = HttpClient(
        settings.connect_seconds + settings.read_seconds,
        context,
        environment_proxies=True,
        connect_seconds=settings.connect_seconds,
    )
    scope = settings.scope or options.get("scope")
    credentials = ClientCredentials(url, client.strip(), secret.strip(), scope, http, settings.urlencode)
    return TokenProvider(HttpTokens(credentials), window, backoff, extensions)
