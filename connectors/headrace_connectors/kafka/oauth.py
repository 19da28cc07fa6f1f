"""The properties of SASL/OAUTHBEARER: where a client fetches its token, with which credentials, and when again.

They are those of Kafka's ``ClientCredentialsJwtRetriever`` and ``FileJwtRetriever``. As in Kafka, TLS to the token
endpoint has the ``ssl.*`` options of the login module, not those of the connection to the brokers.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from headrace.config.rest_options import is_secure_url
from headrace.config.tls import client_context
from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.config_validators import InvalidValue, between, one_of
from headrace.core.connect.typed_options import definition, option, parsed, seconds
from headrace.core.model.errors import ConfigError
from headrace.runtime.http_client import HttpClient
from headrace_connectors.kafka.jaas import LOGIN, LoginModule
from headrace_connectors.kafka.tokens import FileTokens, HttpTokens, RefreshWindow, TokenProvider
from headrace_connectors.tokens import ClientCredentials

Properties = Mapping[str, str]

URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_HANDLER = "sasl.login.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_EXTENSION = "extension_"
_LOW = Importance.LOW


def _share(lowest: float, highest: float) -> Any:
    def check(name: str, value: Any) -> None:
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


def token_provider(properties: Properties, module: LoginModule) -> TokenProvider:
    """Return the tokens of a client. Clients with equal properties share them. Raises ConfigError."""
    settings = parsed(OAuthSettings, properties)
    return _provider(settings, tuple(sorted(module.options.items())))


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
    client, secret = (
        settings.client_id or options.get("clientId"),
        settings.client_secret or options.get("clientSecret"),
    )
    if not client or not secret:
        missing, alternative = (CLIENT_SECRET, "clientSecret") if client else (CLIENT_ID, "clientId")
        raise ConfigError(f"{missing}: is not set; set it, or {alternative} in {LOGIN}", missing)
    http = HttpClient(
        settings.connect_seconds + settings.read_seconds,
        _tls(options) if url.startswith("https:") else None,
        environment_proxies=True,
        connect_seconds=settings.connect_seconds,
    )
    scope = settings.scope or options.get("scope")
    credentials = ClientCredentials(url, client.strip(), secret.strip(), scope, http, settings.urlencode)
    return TokenProvider(HttpTokens(credentials), window, backoff, extensions)


def _tls(options: Properties) -> ssl.SSLContext:
    """Return the context of the login module's ``ssl.*`` options. Raises ConfigError that names the option."""
    try:
        return client_context(options)
    except ConfigError as error:
        raise ConfigError(f"{LOGIN}: option {error}", LOGIN) from error
