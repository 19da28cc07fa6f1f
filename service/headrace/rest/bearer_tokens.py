"""Verify bearer tokens: JSON Web Tokens of an OpenID provider (RFC 7519, RFC 9068)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError

from headrace.config import WorkerConfig
from headrace.config.rest_options import OAuthSettings
from headrace.config.tls import client_context
from headrace.config.worker_options import OAUTH_TLS
from headrace.rest.key_set import KeySet
from headrace.rest.roles import Role

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
