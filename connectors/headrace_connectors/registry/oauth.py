"""Bearer tokens for a registry by OAuth's client credentials (RFC 6749), with Confluent's options."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from headrace.config.registry_converters import ConfluentOptions
from headrace.core.model.errors import ConfigError, Retriable
from headrace_connectors.registry.http import basic, failure
from headrace_connectors.registry.transport import Reply, TooLarge, send

_ISSUER = "bearer.auth.issuer.endpoint.url"
_CLIENT_ID = "bearer.auth.client.id"
_CLIENT_SECRET = "bearer.auth.client.secret"  # noqa: S105 - the name of an option
_OK = 200
_REFUSED = (400, 401, 403)
_DEFAULT_SECONDS = 300
"""The life of a token for which the provider states none."""


class ClientCredentials:
    """Headers with a token, which is fetched again before it ends. Thread-safe.

    The client's secret is sent to the endpoint only: redirects are not followed.
    """

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
        form = {"grant_type": "client_credentials"} | ({"scope": given.scope} if given.scope else {})
        client = f"{quote_plus(given.client_id or '')}:{quote_plus(given.client_secret)}"
        self._form = urlencode(form).encode()
        self._client = basic(client)
        self._tls = tls
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
        document = self._document(self._ask())
        token, seconds = document.get("access_token"), document.get("expires_in", _DEFAULT_SECONDS)
        try:
            life = max(float(seconds), 0.0)
        except (TypeError, ValueError):
            life = float(_DEFAULT_SECONDS)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise Retriable(f"the OAuth provider at {self._url} returns no access token")
        self._current = {"Authorization": f"Bearer {token}", **self._headers}
        self._until = begin + max(life - self._buffer, life / 2)

    def _ask(self) -> Reply:
        headers = {"Authorization": self._client, "Accept": "application/json"}
        request = urllib.request.Request(self._url, self._form, headers)  # noqa: S310 - scheme is checked
        try:
            return send(request, self._tls, redirects=False)
        except TooLarge as error:
            raise ConfigError(f"{_ISSUER}: the answer of {self._url} is too large for a token", _ISSUER) from error
        except OSError as error:
            raise failure(error, f"the OAuth provider at {self._url}", _ISSUER) from error

    def _document(self, reply: Reply) -> Mapping[str, Any]:
        try:
            document = json.loads(reply.body)
        except (ValueError, RecursionError):
            document = None
        if reply.status == _OK and isinstance(document, dict):
            return document
        if reply.status in _REFUSED:
            cause = document.get("error") if isinstance(document, dict) else None
            known = f" {cause}" if cause in _CAUSES else ""
            raise ConfigError(
                f"{_CLIENT_ID}: the OAuth provider at {self._url} refuses the client ({reply.status}{known}); correct "
                f"{_CLIENT_ID}, {_CLIENT_SECRET} and bearer.auth.scope",
                _CLIENT_ID,
            )
        if 300 <= reply.status < 400:
            raise ConfigError(f"{_ISSUER}: {self._url} redirects, which is not followed with credentials", _ISSUER)
        raise Retriable(f"the OAuth provider at {self._url} answers {reply.status} without a token")


_CAUSES = ("invalid_client", "invalid_scope", "unauthorized_client", "invalid_grant", "unsupported_grant_type")
"""OAuth's error codes. Other texts of an answer are not shown."""
