"""OAuth's client credentials (RFC 6749, 4.4): a request for a token, as Kafka's logins and registries make it.

When a token is fetched again, and which option an error names, is up to the callers.
"""

from __future__ import annotations

import json
import math
import re
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode

from headrace_connectors.http_transport import SECONDS, Reply, basic, send

_OK = 200
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, 2.1
_CODES = {
    *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
    *("invalid_scope", "access_denied", "server_error", "temporarily_unavailable"),
}
"""OAuth's error codes. Other texts of an answer are not shown: they may quote the request."""


class NoToken(Exception):
    """The endpoint has answered ``status`` without a token that can be sent. ``code`` is one of OAuth's, or empty."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}".strip())
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and the seconds that it lasts from its request, None if the endpoint does not say."""

    text: str = field(repr=False)
    seconds: float | None


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A client of the token endpoint ``url``, which begins with http:// or https://.

    The client's secret is sent to that endpoint only: redirects are not followed. ``encodes`` is whether id and secret
    are encoded for a URL first, as the RFC requires. The whole answer has to be there within ``seconds``.
    """

    url: str
    client: str
    secret: str = field(repr=False)
    scope: str | None
    tls: ssl.SSLContext | None
    encodes: bool = True
    seconds: float = SECONDS
    connect_seconds: float = SECONDS

    def fetch(self) -> AccessToken:
        """Request a token. Raises NoToken; TooLarge, SSLCertVerificationError or another OSError."""
        client, secret = (quote_plus(each) if self.encodes else each for each in (self.client, self.secret))
        headers = {
            "Accept": "application/json",
            "Authorization": basic(f"{client}:{secret}"),
            "Cache-Control": "no-cache",
        }
        scope = (self.scope or "").strip()
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        request = urllib.request.Request(self.url, urlencode(form).encode(), headers)  # noqa: S310 - scheme is checked
        reply = send(request, self.tls, redirects=False, seconds=self.seconds, connect_seconds=self.connect_seconds)
        document = _document(reply)
        text = document.get("access_token")
        if reply.status != _OK or not isinstance(text, str) or not _TOKEN.fullmatch(text):
            code = document.get("error")
            raise NoToken(reply.status, code if isinstance(code, str) and code in _CODES else "")
        return AccessToken(text, _seconds(document.get("expires_in")))


def _document(reply: Reply) -> Mapping[str, Any]:
    try:
        document = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _seconds(stated: Any) -> float | None:
    try:
        seconds = float(stated)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
