"""An OpenID provider on 127.0.0.1: its configuration, its public keys, and tokens that it signs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from support.rest.served import served

AUDIENCE = "headrace"
Key = RSAKey | ECKey


class TokenIssuer:
    """Signs with the newest key; ``fetches`` counts the requests for its keys."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Key] = []
        self.fetches = 0
        self.documents: dict[str, Any] = {}
        self.rotate()

    def rotate(self, kind: str = "RSA") -> Key:
        """Replace all keys by a new one, and return it."""
        name = {"kid": f"key-{time.monotonic_ns()}", "use": "sig"}
        key: Key = RSAKey.generate_key(2048, name) if kind == "RSA" else ECKey.generate_key("P-256", name)
        self.keys = [key]
        return key

    def token(self, *roles: str, key: Key | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a token for ``roles``. A claim that is None is omitted."""
        key = key or self.keys[-1]
        now = int(time.time())
        given = {"iss": self.url, "aud": AUDIENCE, "sub": "carol", "exp": now + 300, "nbf": now, "roles": list(roles)}
        complete = {name: value for name, value in {**given, **claims}.items() if value is not None}
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        return jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, complete, key, algorithms=[algorithm])

    def options(self) -> dict[str, str]:
        """The options of a worker that accepts its tokens."""
        return {"rest.oauth.issuer": self.url, "rest.oauth.audience": AUDIENCE}


@asynccontextmanager
async def token_issuer() -> AsyncIterator[TokenIssuer]:
    """A provider that answers within the block."""
    app = FastAPI()
    issuers: list[TokenIssuer] = []

    @app.get("/.well-known/openid-configuration")
    async def configuration() -> Any:
        [issuer] = issuers
        return issuer.documents.get("configuration", {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"})

    @app.get("/keys")
    async def keys() -> Any:
        [issuer] = issuers
        issuer.fetches += 1
        return issuer.documents.get("keys", {"keys": [key.as_dict(private=False) for key in issuer.keys]})

    async with served(app) as url:
        issuers.append(TokenIssuer(url))
        yield issuers[0]
