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
        claims = await self._verified(token)
        name = _claim(claims, self._settings.principal_claim) or claims.get("sub") or "unknown"
        return str(name), self._role(claims)

    async def _verified(self, token: str) -> Mapping[str, Any]:
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
            raise InvalidToken(f"it cannot be verified ({_reason(error)})") from error
        return claims

    def _role(self, claims: Mapping[str, Any]) -> Role | None:
        given = _texts(_claim(claims, self._settings.role_claim))
        for role, names in (
            (Role.ADMIN, self._settings.admin_roles),
            (Role.OPERATE, self._settings.operate_roles),
            (Role.READ, self._settings.read_roles),
        ):
            if given.intersection(names):
                return role
        return None


def _reason(error: Exception) -> str:
    """Return joserfc's code of the error, with the name of the claim if it is about one."""
    claim = getattr(error, "claim", None)
    code = getattr(error, "error", type(error).__name__)
    return f"{code}: {claim}" if claim else str(code)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim ``path``, or the one that its parts lead to."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: Any) -> set[str]:
    if isinstance(value, str):
        return set(value.split())
    return {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
