"""Bearer tokens for a registry by OAuth's client credentials, with Confluent's options."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from headrace.config.registry_converters import ConfluentOptions
from headrace.core.model.errors import ConfigError, Retriable
from headrace_connectors.client_credentials import AccessToken, ClientCredentials, NoToken
from headrace_connectors.http_transport import TooLarge
from headrace_connectors.registry.http import failure

_ISSUER = "bearer.auth.issuer.endpoint.url"
_CLIENT_ID = "bearer.auth.client.id"
_CLIENT_SECRET = "bearer.auth.client.secret"  # noqa: S105 - the name of an option
_REFUSED = (400, 401, 403)
_DEFAULT_SECONDS = 300.0
"""The life of a token for which the provider states none."""


class BearerTokens:
    """Headers with a token, which is fetched again before it ends. Thread-safe."""

    def __init__(
        self,
        given: ConfluentOptions,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError for options that are missing or no URL; requests nothing yet."""
        for name, value in ((_ISSUER, given.issuer_url), (_CLIENT_ID, given.client_id)):
            if not value:
                raise ConfigError(f"bearer.auth.credentials.source=OAUTHBEARER needs {name}", name)
        if not given.client_secret:
            raise ConfigError(f"bearer.auth.credentials.source=OAUTHBEARER needs {_CLIENT_SECRET}", _CLIENT_SECRET)
        self._url = given.issuer_url or ""
        parts = urlsplit(self._url)
        if parts.scheme not in ("http", "https") or "@" in parts.netloc:
            raise ConfigError(f"{_ISSUER}: a URL begins with http:// or https:// and has no user", _ISSUER)
        self._client = ClientCredentials(self._url, given.client_id or "", given.client_secret, given.scope, tls)
        self._headers = headers
        self._buffer = given.expiry_buffer
        self._clock = clock
        self._lock = threading.Lock()
        self._current: Mapping[str, str] = {}
        self._until = 0.0

    def __call__(self, refused: Mapping[str, str] | None) -> Mapping[str, str]:
        """Return the headers, with another token than the refused one. Raises ConfigError or Retriable."""
        with self._lock:
            if self._clock() >= self._until or refused == self._current:
                self._fetch()
            return self._current

    def _fetch(self) -> None:
        begin = self._clock()
        token = self._token()
        life = _DEFAULT_SECONDS if token.seconds is None else token.seconds
        self._current = {"Authorization": f"Bearer {token.text}", **self._headers}
        self._until = begin + max(life - self._buffer, life / 2)

    def _token(self) -> AccessToken:
        provider = f"the OAuth provider at {self._url}"
        try:
            return self._client.fetch()
        except NoToken as error:
            raise _refusal(error, provider) from error
        except TooLarge as error:
            raise ConfigError(f"{_ISSUER}: the answer of {self._url} is too large for a token", _ISSUER) from error
        except OSError as error:
            raise failure(error, provider, _ISSUER) from error


def _refusal(answer: NoToken, provider: str) -> ConfigError | Retriable:
    if answer.status in _REFUSED:
        return ConfigError(
            f"{_CLIENT_ID}: {provider} refuses the client ({answer}); correct {_CLIENT_ID}, {_CLIENT_SECRET} and "
            "bearer.auth.scope",
            _CLIENT_ID,
        )
    if 300 <= answer.status < 400:
        return ConfigError(f"{_ISSUER}: {provider} redirects, which is not followed with credentials", _ISSUER)
    return Retriable(f"{provider} answers {answer.status} without an access token")
