"""OAUTHBEARER and sessions that end, against a real broker: tokens are fetched, replaced and rejected."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from joserfc.jwk import RSAKey
from support.fix_secured_kafka import SecuredBroker
from support.kafka.secured_clients import SESSIONS, Unique, check_all_clients, error_at_start, flow_across_sessions
from support.servers.token_endpoint import TokenEndpoint, token_endpoint

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.usefixtures("tls_closes")]

TOKEN_SECONDS = 6


@pytest.fixture
def endpoint(secured_kafka: SecuredBroker, tmp_path: Path) -> Iterator[TokenEndpoint]:
    """A token endpoint whose tokens the broker accepts."""
    with token_endpoint(secured_kafka.token, tmp_path) as made:
        yield made


@pytest.mark.parametrize(("listener", "protocol"), [("LOGIN", "SASL_SSL"), ("TOKEN", "SASL_PLAINTEXT")])
async def test_a_token(
    secured_kafka: SecuredBroker, endpoint: TokenEndpoint, unique: Unique, listener: str, protocol: str
) -> None:
    """A worker logs in with a token for its client credentials; all of its clients share the token."""
    client = {**secured_kafka.properties(listener, protocol), **endpoint.properties()}
    await check_all_clients(secured_kafka, client, unique)
    assert endpoint.forms == [{"grant_type": ["client_credentials"]}]


async def test_a_token_file(secured_kafka: SecuredBroker, unique: Unique, tmp_path: Path) -> None:
    """A file URL names a file with the token, as of a Kubernetes service account."""
    file = tmp_path / "token"
    file.write_text(secured_kafka.token())
    oauth = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    await check_all_clients(secured_kafka, {**secured_kafka.properties("TOKEN", "SASL_PLAINTEXT"), **oauth}, unique)


def _nothing(_: TokenEndpoint, __: SecuredBroker) -> Mapping[str, str]:
    return {}


def _answers(status: int, document: object) -> Callable[[TokenEndpoint, SecuredBroker], Mapping[str, str]]:
    def change(endpoint: TokenEndpoint, _: SecuredBroker) -> Mapping[str, str]:
        endpoint.answer = status, document
        return {}

    return change


def _another_key(endpoint: TokenEndpoint, broker: SecuredBroker) -> Mapping[str, str]:
    key = RSAKey.generate_key(2048, {"kid": "issuer"})
    endpoint.token = lambda: broker.token(key=key)
    return {}


def _another_audience(endpoint: TokenEndpoint, broker: SecuredBroker) -> Mapping[str, str]:
    endpoint.token = lambda: broker.token(audience="other")
    return {}


def _expired(endpoint: TokenEndpoint, broker: SecuredBroker) -> Mapping[str, str]:
    endpoint.token = lambda: broker.token(seconds=-60)
    return {}


BROKER, ENDPOINT = r"Kafka broker 127\.0\.0\.1:\d+: ", r"Token endpoint https://127\.0\.0\.1:\d+/token: "
REJECTED = (
    f"{BROKER}rejects the token: invalid_token; compare the token's issuer, audience and scope with the broker's "
    r"sasl.oauthbearer.expected.\*, and its keys with those of the issuer"
)
URL = "sasl.oauthbearer.token.endpoint.url"
CASES: Mapping[str, tuple[Callable[[TokenEndpoint, SecuredBroker], Mapping[str, str]], type[HeadraceError], str]] = {
    "wrong secret": (
        lambda endpoint, _: endpoint.properties("wrong"),
        ConfigError,
        f"{ENDPOINT}rejects the client worker-client: invalid_client; correct client id and secret",
    ),
    "another authority of the endpoint": (
        lambda _, __: {"sasl.jaas.config": 'x required clientId="a" clientSecret="b";'},
        ConfigError,
        f"{ENDPOINT}its certificate is not accepted: unable to get local issuer certificate; correct "
        "ssl.truststore.location in sasl.jaas.config",
    ),
    "no endpoint": (
        lambda _, __: {URL: "https://127.0.0.1:1/token"},
        Retriable,
        f"{ENDPOINT}cannot be reached: Connection refused; check {URL}",
    ),
    "invalid scope": (
        _answers(400, {"error": "invalid_scope"}),
        ConfigError,
        rf"{ENDPOINT}rejects the scope \(invalid_scope\); correct sasl.oauthbearer.scope",
    ),
    "redirect": (
        _answers(302, ""),
        ConfigError,
        f"{ENDPOINT}answers 302 without an access token; correct {URL}",
    ),
    "no token": (
        _answers(200, "<html>"),
        ConfigError,
        f"{ENDPOINT}answers 200 without an access token; correct {URL}",
    ),
    "overloaded": (_answers(503, "later"), Retriable, f"{ENDPOINT}answers 503; check the identity provider"),
    "a token of another key": (_another_key, ConfigError, REJECTED),
    "a token for another audience": (_another_audience, ConfigError, REJECTED),
    "an expired token": (_expired, ConfigError, REJECTED),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_token_that_does_not_fit(
    secured_kafka: SecuredBroker, endpoint: TokenEndpoint, unique: Unique, case: str
) -> None:
    """The worker does not start within 15 s: the error names broker or endpoint, the cause and what to do."""
    change, kind, text = CASES[case]
    client = {**secured_kafka.properties("TOKEN", "SASL_PLAINTEXT"), **endpoint.properties()}
    error = await error_at_start({**client, **change(endpoint, secured_kafka)}, unique)
    assert type(error) is kind, error
    assert re.fullmatch(text, str(error)), str(error)


async def test_an_endpoint_that_does_not_answer_is_named(
    secured_kafka: SecuredBroker, endpoint: TokenEndpoint, unique: Unique
) -> None:
    """The timeouts of the login are longer than a worker may wait for its answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = {URL: f"https://127.0.0.1:{silent.getsockname()[1]}/token"}
        client = {**secured_kafka.properties("TOKEN", "SASL_PLAINTEXT"), **endpoint.properties(), **url}
        error = await error_at_start(client, unique)
    assert re.fullmatch(rf"{ENDPOINT}no answer within 8 s; check the network", str(error)), str(error)


async def test_sessions_and_tokens_that_end_do_not_interrupt_the_flow(
    secured_kafka: SecuredBroker, endpoint: TokenEndpoint, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """While sessions of 3 s and tokens of 6 s end twice or more, a feed and a log have no error and lose nothing."""
    endpoint.token = lambda: secured_kafka.token(seconds=TOKEN_SECONDS)
    client = {**secured_kafka.properties("TOKEN", "SASL_PLAINTEXT"), **endpoint.properties()}
    await flow_across_sessions(secured_kafka, client, unique, caplog, 2 * TOKEN_SECONDS)
    assert len(endpoint.forms) >= SESSIONS


@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.long), "SCRAM-SHA-512"])
async def test_sessions_of_passwords_end_without_interruption(
    secured_kafka: SecuredBroker, unique: Unique, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    """``connections.max.reauth.ms`` of the broker applies to logins with a password as well."""
    await flow_across_sessions(secured_kafka, secured_kafka.login("SHORT", mechanism), unique, caplog)
