"""Access tokens: how a client fetches them with OAuth's client credentials, and how it keeps them.

Kafka's logins and the clients of schema registries use it. They decide which options configure a client, and which
option an error names.

Tests: ``tests/unit/test_access_tokens.py``.
"""

from __future__ import annotations

import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote_plus, urlencode

from headrace.core.model.errors import HeadraceError
from headrace.runtime.http_client import HttpClient, HttpResponse, basic

log = logging.getLogger(__name__)

RETRY_PAUSES = 0.1, 10.0
"""Seconds of the first and the longest pause after requests that failed: Kafka's defaults."""
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
_CODES = {
    *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
    *("invalid_scope", "access_denied", "server_error", "temporarily_unavailable"),
}
"""OAuth's error codes. Other texts of an answer are not shown: they may quote the request."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token; times are seconds since 1970. ``ends`` is None if it is not known."""

    text: str = field(repr=False)
    begins: float
    ends: float | None


class TokenCache:
    """The current token of one source: fetched when a caller needs it, kept, and replaced before it ends. Thread-safe.

    One request for a token runs at a time; other callers wait for its result. A request that fails is repeated after a
    pause that doubles. Until the kept token ends, callers get that one.
    """

    def __init__(
        self,
        fetch: Callable[[], Token],
        refresh_at: Callable[[Token, float], float],
        pauses: tuple[float, float] = RETRY_PAUSES,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``fetch`` raises ConfigError or Retriable. ``refresh_at(token, now)`` is when a new token is replaced."""
        self._fetch, self._refresh_at, self._now = fetch, refresh_at, now
        self._first_pause, self._longest_pause = pauses
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._discarded: str | None = None
        self._replace_at = self._pause = self._next_try = 0.0
        self._failure: HeadraceError | None = None

    def token(self) -> str:
        """Return a token that is valid now. Blocks. Raises ConfigError or Retriable."""
        with self._lock:
            now = self._now()
            kept = self._token if self._token is not None and self._token.text != self._discarded else None
            if kept is not None and now < self._replace_at:
                return kept.text
            try:
                return self._fetch_token(now).text
            except HeadraceError as error:
                if kept is None or kept.ends is None or kept.ends <= now:
                    raise
                log.warning("%s; the current token stays in use until it ends in %.0f s", error, kept.ends - now)
                return kept.text

    def discard(self, text: str) -> None:
        """Do not return a token again that a server has refused: the provider may have changed its keys.

        Does not block. A token that has been replaced already changes nothing.
        """
        self._discarded = text

    def _fetch_token(self, now: float) -> Token:
        if self._failure is not None and now < self._next_try:
            raise self._failure
        try:
            token = self._fetch()
        except HeadraceError as error:
            self._pause = min(max(2 * self._pause, self._first_pause), self._longest_pause)
            self._next_try, self._failure = self._now() + self._pause, error
            raise
        self._failure, self._pause = None, 0.0
        self._token, self._discarded, self._replace_at = token, None, self._refresh_at(token, self._now())
        return token


class NoToken(Exception):
    """The endpoint has answered ``status`` without a token that can be sent. ``code`` is one of OAuth's, or empty."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}".strip())
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """OAuth's client credentials (RFC 6749, 4.4) for the token endpoint ``url``, which begins with http:// or https://.

    The client's secret is sent to that endpoint only, so ``http`` follows no redirects. ``encodes`` is whether id and
    secret are encoded for a URL first, as the RFC requires.
    """

    url: str
    client: str
    secret: str = field(repr=False)
    scope: str | None
    http: HttpClient
    encodes: bool = True

    def fetch(self) -> Token:
        """Request a token. Blocks. Raises NoToken; TooLarge, SSLCertVerificationError or another OSError."""
        client, secret = (quote_plus(part) if self.encodes else part for part in (self.client, self.secret))
        headers = {
            "Accept": "application/json",
            "Authorization": basic(f"{client}:{secret}"),
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        scope = (self.scope or "").strip()
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        begins = time.time()
        answer = self.http.send("POST", self.url, headers, urlencode(form).encode())
        document = _document(answer)
        text = document.get("access_token")
        if answer.status != HTTPStatus.OK or not isinstance(text, str) or not _TOKEN.fullmatch(text):
            code = document.get("error")
            raise NoToken(answer.status, code if isinstance(code, str) and code in _CODES else "")
        seconds = _seconds(document.get("expires_in"))
        return Token(text, begins, None if seconds is None else begins + seconds)


def _document(answer: HttpResponse) -> Mapping[str, Any]:
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(lifetime: Any) -> float | None:
    try:
        seconds = float(lifetime)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
