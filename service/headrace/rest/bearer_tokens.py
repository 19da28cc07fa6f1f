"""Verify bearer tokens, JSON Web Tokens of an OpenID provider (RFC 7519, RFC 9068), with its keys (RFC 7517).

The keys are fetched when a token needs one, and kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from headrace.config import WorkerConfig
from headrace.config.rest_options import OAuthSettings, is_secure_url
from headrace.config.tls import client_context
from headrace.config.worker_options import OAUTH_TLS
from headrace.rest.access import Role
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
        key = self._current_key(key_id)
        if key is None or self._is_old():
            async with self._turn:
                key = self._current_key(key_id)  # another request may have fetched it
                may_fetch = self._tried is None or self._now() - self._tried >= _PAUSE_SECONDS
                if (key is None or self._is_old()) and may_fetch:
                    await self._refresh()
        if self._fetched is None:
            raise KeysUnavailable(f"the keys of {self._issuer} cannot be fetched; see the worker's log")
        return self._current_key(key_id)

    def _current_key(self, key_id: str | None) -> Key | None:
        if key_id is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(key_id)

    def _is_old(self) -> bool:
        return self._fetched is None or self._now() - self._fetched > _MAX_AGE_SECONDS

    async def _refresh(self) -> None:
        """Fetch the keys. After an error the last keys stay in use until they are old."""
        self._tried = self._now()
        try:
            url = self._url
            if not url:  # OpenID Connect Discovery
                document = await self._document(self._issuer.rstrip("/") + "/.well-known/openid-configuration")
                if document.get("issuer") != self._issuer:
                    raise ValueError(
                        "its OpenID configuration is of another issuer; set rest.oauth.issuer to exactly that text"
                    )
                url = str(document.get("jwks_uri"))
                if not is_secure_url(url):
                    raise ValueError("its jwks_uri is not an https URL")
            self._keys = _keys(await self._document(url))
            self._fetched = self._now()
            log.info("rest.oauth.issuer: %d keys of %s are in use", len(self._keys), self._issuer)
        except (OSError, ValueError) as error:
            # Only messages from here are shown: those of libraries may contain parts of the answer.
            cause = str(error) if type(error) is ValueError else type(error).__name__
            log.error("rest.oauth.issuer: the keys of %s cannot be fetched: %s", self._issuer, cause)
            if self._is_old():
                self._keys, self._fetched = {}, None

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
    keys: dict[str | None, Key] = {}
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
            keys[entry.get("kid")] = key
    if not keys:
        raise ValueError("it has no keys for signatures")
    return keys


_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with public keys only: a provider's key must not be usable as a shared secret (HS256)."""
_LEEWAY_SECONDS = 30
"""The difference of clocks between the provider and this worker."""


class InvalidToken(Exception):
    """A token is not valid. The message is the reason, without content of the token."""


class BearerTokens:
    """Verifies the tokens of one issuer."""

    def __init__(self, issuer: str, settings: OAuthSettings, keys: KeySet) -> None:
        self._settings = settings
        self._keys = keys
        self._claims = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "values": list(settings.audience)},
            exp={"essential": True},
        )

    @classmethod
    def of(cls, config: WorkerConfig) -> BearerTokens | None:
        """Return the verifier that the worker's options configure, None without one. Raises ConfigError."""
        settings = config.oauth
        if settings.issuer is None:
            return None
        tls = client_context(*config.tls(OAUTH_TLS))
        return cls(settings.issuer, settings, KeySet(settings.issuer, settings.jwks_url, tls))

    async def caller(self, token: str) -> tuple[str, Role | None]:
        """Return the name and the highest role of a token's caller. Raises InvalidToken and KeysUnavailable."""
        claims = await self._verify(token)
        name = str(_claim(claims, self._settings.principal_claim) or claims.get("sub") or "unknown")
        granted = _claim(claims, self._settings.role_claim)  # a text with spaces between the roles, or a list
        if isinstance(granted, str):
            granted = granted.split()
        granted_roles = {role for role in granted if isinstance(role, str)} if isinstance(granted, list) else set()
        for role, names in (
            (Role.ADMIN, self._settings.admin_roles),
            (Role.OPERATE, self._settings.operate_roles),
            (Role.READ, self._settings.read_roles),
        ):
            if granted_roles.intersection(names):
                return name, role
        return name, None

    async def _verify(self, token: str) -> Mapping[str, Any]:
        try:
            header = jws.extract_compact(token.encode()).headers()
            if header.get("alg") not in _ALGORITHMS:
                raise InvalidToken("its algorithm is not accepted")
            key_id = header.get("kid")
            key = await self._keys.key(key_id if isinstance(key_id, str) else None)
            if key is None:
                raise InvalidToken("its key is not one of the issuer's")
            claims = jwt.decode(token, key, algorithms=list(_ALGORITHMS)).claims
            self._claims.validate(claims)
        except ExpiredTokenError as error:
            raise InvalidToken("it has expired") from error
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            code, claim = getattr(error, "error", type(error).__name__), getattr(error, "claim", None)
            reason = f"{code}: {claim}" if claim else str(code)
            raise InvalidToken(f"it cannot be verified ({reason})") from error
        return claims


def _claim(claims: Mapping[str, object], path: str) -> object:
    """Return the claim ``path``, or the one that its parts lead to."""
    if path in claims:
        return claims[path]
    value: object = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
