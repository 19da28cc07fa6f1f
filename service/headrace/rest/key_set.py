"""The public keys of an OpenID provider, fetched when a token needs one, and kept (RFC 7517)."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from headrace.config.rest_options import is_secure_url
from headrace.runtime.http_client import HttpClient, TooLarge

log = logging.getLogger(__name__)
Key = RSAKey | ECKey | OKPKey

_PUBLIC = ("RSA", "EC", "OKP")
_FETCH_SECONDS = 10.0
_MAX_BYTES = 1024 * 1024
_MAX_AGE_SECONDS = 3600.0
"""A key that the provider has withdrawn is invalid here after this time."""
_PAUSE_SECONDS = 10.0
"""The shortest time between two requests, because anybody can send tokens with unknown keys."""


class KeysUnavailable(Exception):
    """The provider does not answer, or its answer has no keys. The message is the cause."""


class KeySet:
    """The keys of one issuer. All methods are called on one event loop."""

    def __init__(
        self, issuer: str, url: str | None, tls: ssl.SSLContext | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """``url`` is that of the keys; without it the issuer's OpenID configuration contains it."""
        self._issuer = issuer
        self._url = url
        self._http = HttpClient(_FETCH_SECONDS, tls, max_bytes=_MAX_BYTES)
        self._now = now
        self._keys: Mapping[str | None, Key] = {}
        self._fetched: float | None = None
        self._tried: float | None = None
        self._turn = asyncio.Lock()

    async def key(self, key_id: str | None) -> Key | None:
        """Return the key of a token, None if the issuer has none with this id. Raises KeysUnavailable."""
        found = self._found(key_id)
        if found is None or self._is_old():
            async with self._turn:
                found = self._found(key_id)  # another request may have fetched it
                if (found is None or self._is_old()) and self._may_fetch():
                    await self._refresh()
        if self._fetched is None:
            raise KeysUnavailable(f"the keys of {self._issuer} cannot be fetched; see the worker's log")
        return self._found(key_id)

    def _found(self, key_id: str | None) -> Key | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_old(self) -> bool:
        return self._fetched is None or self._now() - self._fetched > _MAX_AGE_SECONDS

    def _may_fetch(self) -> bool:
        return self._tried is None or self._now() - self._tried >= _PAUSE_SECONDS

    async def _refresh(self) -> None:
        """Fetch the keys. After an error the last keys stay in use until they are old."""
        self._tried = self._now()
        try:
            url = self._url or await self._discovered()
            self._keys = _keys(await self._document(url))
            self._fetched = self._now()
            log.info("rest.oauth.issuer: %d keys of %s are in use", len(self._keys), self._issuer)
        except (OSError, ValueError) as error:
            log.error("rest.oauth.issuer: the keys of %s cannot be fetched: %s", self._issuer, _cause(error))
            if self._is_old():
                self._keys, self._fetched = {}, None

    async def _discovered(self) -> str:
        """Return the URL of the keys from OpenID Connect Discovery. Raises ValueError."""
        document = await self._document(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
        if document.get("issuer") != self._issuer:
            raise ValueError(
                "its OpenID configuration is of another issuer; set rest.oauth.issuer to exactly that text"
            )
        url = str(document.get("jwks_uri"))
        if not is_secure_url(url):
            raise ValueError("its jwks_uri is not an https URL")
        return url

    async def _document(self, url: str) -> dict[str, Any]:
        try:
            answer = await self._http.request("GET", url, {"Accept": "application/json"})
        except TooLarge as error:
            raise ValueError(f"the answer of {url} is larger than 1 MiB") from error
        if answer.status != HTTPStatus.OK:
            raise ValueError(f"{url} answers {answer.status}")
        try:
            document = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the answer of {url} is not JSON") from error
        if not isinstance(document, dict):
            raise ValueError(f"the answer of {url} is not a JSON object")
        return document


def _keys(document: Mapping[str, Any]) -> Mapping[str | None, Key]:
    """Return the public keys for signatures by id, without kinds that are unknown here. Raises ValueError."""
    found: dict[str | None, Key] = {}
    entries = document.get("keys")
    for entry in entries if isinstance(entries, list) else ():
        # A symmetric key among public ones would let everybody sign who can read them.
        if not isinstance(entry, dict) or entry.get("kty") not in _PUBLIC or entry.get("use", "sig") != "sig":
            continue
        try:
            key = import_key(entry)
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        if isinstance(key, RSAKey | ECKey | OKPKey):
            found[entry.get("kid")] = key
    if not found:
        raise ValueError("it has no keys for signatures")
    return found


def _cause(error: BaseException) -> str:
    return str(error) if type(error) is ValueError else type(error).__name__
