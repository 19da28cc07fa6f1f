"""Bearer tokens of an OpenID provider: which are accepted, with which role, and how keys are fetched."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from joserfc.jwk import RSAKey
from support.rest.asgi import Answer, request
from support.rest.worker_api import Api
from support.servers.token_issuer import TokenIssuer, token_issuer

from headrace.rest import bearer_tokens
from headrace.rest.bearer_tokens import KeySet, KeysUnavailable

pytestmark = pytest.mark.anyio


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    """A provider that answers."""
    async with token_issuer() as found:
        yield found


async def sent(api: Api, token: str, method: str = "GET", target: str = "/loggers") -> Answer:
    """The answer to a request with a token. The path does not exist: 404 means that it was let through."""
    return await request(api.app, method, target, {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("kind", ["RSA", "EC"])
async def test_a_token_gives_its_callers_role(kind: str, issuer: TokenIssuer) -> None:
    """The claim's highest role counts; a caller without one may do nothing."""
    issuer.rotate(kind)
    api = Api(**issuer.options())
    for roles, method, expected in (
        (("read",), "GET", 404),
        (("read",), "DELETE", 403),
        (("offline", "read", "admin"), "DELETE", 404),
        (("offline",), "GET", 403),
        ((), "GET", 403),
    ):
        assert (await sent(api, issuer.token(*roles), method)).status == expected, roles
    assert (await sent(api, issuer.token("operate"), "PUT", "/connectors/x/config")).status == 403
    refused = await sent(api, issuer.token())
    assert refused.json()["message"] == "The request needs the role read; its caller has no role"


@pytest.mark.parametrize(
    ("options", "claims"),
    [
        ({"rest.oauth.role.claim": "realm_access.roles"}, {"realm_access": {"roles": ["admin"]}}),
        ({"rest.oauth.role.claim": "scope"}, {"scope": "openid admin"}),
        ({"rest.oauth.role.claim": "https://e.x/roles"}, {"https://e.x/roles": ["admin"]}),
        ({"rest.oauth.roles.admin": "platform, admins"}, {"roles": ["admins"]}),
        ({"rest.oauth.audience": "other,headrace"}, {"roles": "admin", "aud": ["headrace", "account"]}),
    ],
)
async def test_claims_of_providers_differ(options: dict[str, str], claims: dict[str, Any], issuer: TokenIssuer) -> None:
    """A claim within a claim, a text with spaces, a URL as a name, other names of roles, several audiences."""
    api = Api(**{**issuer.options(), **options})
    assert (await sent(api, issuer.token(**claims), "DELETE")).status == 404


def _unsigned(token: str) -> str:
    return f"{_part({'alg': 'none'})}.{token.split('.')[1]}."


def _by_public_key(issuer: TokenIssuer) -> str:
    """HS256 with the public key as the secret, which a careless verifier accepts."""
    [key] = issuer.keys
    claims = {"iss": issuer.url, "aud": "headrace", "exp": int(time.time()) + 60, "roles": ["admin"]}
    signed = f"{_part({'alg': 'HS256', 'kid': key.kid})}.{_part(claims)}"
    signature = hmac.digest(key.as_pem(private=False), signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def _part(document: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _altered(token: str) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    return f"{head}.{_part({**claims, 'roles': ['admin']})}.{signature}"


def wrong_tokens(issuer: TokenIssuer) -> dict[str, str]:
    """Tokens that are not valid, by the reason that the answer has."""
    now = int(time.time())
    stranger = RSAKey.generate_key(2048, {"kid": issuer.keys[0].kid})
    return {
        "it has expired": issuer.token("admin", exp=now - 60),
        "missing_claim: exp": issuer.token("admin", exp=None),
        "invalid_claim: nbf": issuer.token("admin", nbf=now + 120),
        "invalid_claim: aud": issuer.token("admin", aud="other"),
        "missing_claim: aud": issuer.token("admin", aud=None),
        "invalid_claim: iss": issuer.token("admin", iss="https://other.example"),
        "(bad_signature)": issuer.token("admin", key=stranger),
        "bad_signature": _altered(issuer.token("read")),
        "its algorithm is not accepted": _unsigned(issuer.token("admin")),
        "algorithm is not accepted": _by_public_key(issuer),
        "its key is not one of the issuer's": issuer.token("admin", header={"kid": "unknown"}),
        "cannot be verified": "a.b",
        "it cannot be verified": "..",
        "it cannot be verified (": "é",
    }


async def test_invalid_tokens_are_refused_with_the_reason(issuer: TokenIssuer) -> None:
    """The answer has RFC 6750's code, and nothing of the token."""
    api = Api(**issuer.options())
    for reason, token in wrong_tokens(issuer).items():
        answer = await sent(api, token)
        assert answer.status == 401, reason
        assert reason in answer.json()["message"]
        assert answer.headers["www-authenticate"] == 'Bearer realm="KafkaConnect", error="invalid_token"'


async def test_a_new_key_is_fetched_and_an_unknown_one_not_again_and_again(issuer: TokenIssuer) -> None:
    """A provider rotates its keys. Tokens with invented keys must not become requests to the provider."""
    now = [0.0]
    keys = KeySet(issuer.url, None, None, lambda: now[0])
    first = issuer.keys[0].kid
    assert await keys.key(first) is not None
    assert await keys.key(first) is not None
    assert issuer.fetches == 1
    second = issuer.rotate("EC").kid
    for _ in range(5):
        assert await keys.key("invented") is None
    assert (await keys.key(second), issuer.fetches) == (None, 1)
    now[0] += bearer_tokens._PAUSE_SECONDS
    assert await keys.key(second) is not None
    assert (await keys.key(first), issuer.fetches) == (None, 2)


async def test_withdrawn_keys_end_after_an_hour(issuer: TokenIssuer) -> None:
    """Also if the provider does not answer then: 503, because the token may be valid."""
    now = [0.0]
    keys = KeySet(issuer.url, None, None, lambda: now[0])
    first = issuer.keys[0].kid
    assert await keys.key(first) is not None
    issuer.documents["keys"] = {"keys": []}
    now[0] += bearer_tokens._MAX_AGE_SECONDS + 1
    with pytest.raises(KeysUnavailable):
        await keys.key(first)


@pytest.mark.parametrize(
    "documents",
    [
        {"configuration": {"issuer": "https://other.example", "jwks_uri": "https://other.example/keys"}},
        {"configuration": {"jwks_uri": "http://other.example/keys"}},
        {"configuration": []},
        {"keys": {"keys": "x"}},
        {"keys": {"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "a"}, {"kty": "none"}, 7]}},
        {"keys": {"keys": [{"kty": "RSA", "kid": "x" * 2_000_000}]}},
    ],
    ids=lambda documents: str(documents)[:60],
)
async def test_keys_that_cannot_be_used_are_a_503(
    documents: dict[str, Any], issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    """The provider is at fault, not the caller; the log has the cause."""
    token = issuer.token("admin")
    issuer.documents.update(documents)
    answer = await sent(Api(**issuer.options()), token)
    assert (answer.status, answer.json()["error_code"]) == (503, 503)
    assert "cannot be fetched: " in caplog.text


async def test_a_provider_that_is_down_is_a_503() -> None:
    """Requests with passwords still work if both are configured."""
    async with token_issuer() as gone:
        token, options = gone.token("admin"), gone.options()
    assert (await sent(Api(**options), token)).status == 503
