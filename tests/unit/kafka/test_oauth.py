"""When tokens are fetched and replaced, and what a token endpoint receives."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clock import Clock
from support.kafka.kafka_settings import settings_of
from support.servers.token_endpoint import CLIENT, SECRET, TokenEndpoint, token_endpoint

from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.http_client import MAX_BYTES
from headrace_connectors.kafka.oauth import LoginError, RefreshWindow, TokenProvider
from headrace_connectors.kafka.settings import client_arguments, connection_arguments, consumer_settings
from headrace_connectors.tokens import Token

WORKER = {"bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
KAFKA = RefreshWindow(factor=0.8, jitter=0, period=60, buffer=300)
"""Kafka's defaults, without the random part."""


class Source:
    """Returns tokens of ``lifetime`` seconds, or raises ``failure``; counts the requests."""

    def __init__(self, clock: Clock, lifetime: float) -> None:
        self.clock, self.lifetime = clock, lifetime
        self.name = "endpoint"
        self.requests = 0
        self.failure: Retriable | None = None

    def fetch(self) -> Token:
        self.requests += 1
        if self.failure is not None:
            raise self.failure
        return Token(f"token-{self.requests}", self.clock.now, self.clock.now + self.lifetime)


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[TokenEndpoint]:
    """A token endpoint with an opaque token."""
    with token_endpoint(lambda: "opaque", tmp_path) as made:
        yield made


def token(provider: TokenProvider) -> str:
    """The provider's current token."""
    return asyncio.run(provider.token())


@pytest.mark.parametrize(
    ("window", "lifetime", "age", "expected"),
    [
        (KAFKA, 3600, 0, 2880),  # a share of the lifetime
        (KAFKA, 3600, 600, 2880),  # which begins with the token
        (RefreshWindow(1, 0, 60, 300), 3600, 0, 3300),  # the buffer before the end
        (KAFKA, 3600, 3200, 3260),  # the shortest period
        (KAFKA, 100, 0, 80),  # both are ignored for a short lifetime
    ],
)
def test_a_token_is_replaced_when_kafka_replaces_it(
    window: RefreshWindow, lifetime: float, age: float, expected: float
) -> None:
    """The four properties ``sasl.login.refresh.*`` have the effect that Kafka documents."""
    assert window.refresh_at(Token("x", 0, lifetime), age) == pytest.approx(expected)


def test_a_token_is_kept_until_its_refresh() -> None:
    """Connections share a token, and get a new one after the share of its lifetime."""
    clock = Clock(1000.0)
    source = Source(clock, 100)
    provider = TokenProvider(source, KAFKA, (0.1, 10), now=clock)
    assert [token(provider), token(provider)] == ["token-1", "token-1"]
    clock.now += 79
    assert token(provider) == "token-1"
    clock.now += 2
    assert token(provider) == "token-2"


def test_a_token_stays_in_use_while_the_endpoint_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A failed refresh is logged and repeated after a pause that doubles; without a valid token it is an error."""
    clock = Clock(1000.0)
    source = Source(clock, 100)
    provider = TokenProvider(source, KAFKA, (1, 10), now=clock)
    assert token(provider) == "token-1"
    source.failure = Retriable("endpoint: answers 503")
    clock.now += 90
    assert [token(provider), token(provider)] == ["token-1", "token-1"]
    assert source.requests == 2
    assert "endpoint: answers 503; the current token stays in use until it ends in 10 s" in caplog.text
    clock.now += 1.5
    token(provider)
    clock.now += 1.5
    token(provider)
    assert source.requests == 3
    clock.now += 10
    with pytest.raises(LoginError, match="answers 503") as caught:
        token(provider)
    assert caught.value.failure is source.failure
    source.failure = None
    clock.now += 10
    assert token(provider) == "token-5"


def test_a_rejected_token_is_not_used_again() -> None:
    """The provider may have changed its keys; a token that has been replaced already stays."""
    clock = Clock(1000.0)
    provider = TokenProvider(Source(clock, 100), KAFKA, (1, 10), now=clock)
    provider.reject(token(provider))
    assert token(provider) == "token-2"
    provider.reject("token-1")
    assert token(provider) == "token-2"


def test_the_properties_take_precedence_over_the_login_module(endpoint: TokenEndpoint) -> None:
    """Client id, secret and scope of the newer properties are sent, as in Kafka."""
    prefix = "sasl.oauthbearer.client.credentials.client"
    jaas = endpoint.properties("old")["sasl.jaas.config"].replace(CLIENT, "old").replace(";", ' scope="old";')
    properties = {**WORKER, **endpoint.properties(), "sasl.jaas.config": jaas, "sasl.oauthbearer.scope": "a b"}
    properties |= {f"{prefix}.id": CLIENT, f"{prefix}.secret": SECRET}
    assert token(client_arguments(properties)["sasl_oauth_token_provider"]) == "opaque"
    assert endpoint.forms == [{"grant_type": ["client_credentials"], "scope": ["a b"]}]


@pytest.mark.parametrize(("urlencode", "expected"), [("false", "a b:c/d"), ("true", "a+b:c%2Fd")])
def test_credentials_are_encoded_if_the_property_says_so(
    endpoint: TokenEndpoint, urlencode: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sasl.oauthbearer.header.urlencode`` follows RFC 6749; Kafka's default does not."""
    received: list[str] = []

    def reply(authorization: str, _: str) -> tuple[int, object]:
        received.append(base64.b64decode(authorization.removeprefix("Basic ")).decode())
        return 200, {"access_token": "x"}

    monkeypatch.setattr(endpoint, "reply", reply)
    prefix = "sasl.oauthbearer.client.credentials.client"
    own = {f"{prefix}.id": "a b", f"{prefix}.secret": "c/d", "sasl.oauthbearer.header.urlencode": urlencode}
    token(client_arguments({**WORKER, **endpoint.properties(), **own})["sasl_oauth_token_provider"])
    assert received == [expected]


def test_extensions_are_those_of_the_login_module(endpoint: TokenEndpoint) -> None:
    """Confluent Cloud, for example, needs extension_logicalCluster."""
    jaas = endpoint.properties()["sasl.jaas.config"].replace(";", ' extension_logicalCluster="lkc-1";')
    provider = client_arguments({**WORKER, **endpoint.properties(), "sasl.jaas.config": jaas})
    assert provider["sasl_oauth_token_provider"].extensions() == {"logicalCluster": "lkc-1"}


def test_all_clients_with_the_same_credentials_share_their_tokens(endpoint: TokenEndpoint) -> None:
    """The arguments for admin requests of a connector keep the provider of its consumer."""
    consumer = consumer_settings({**WORKER, **endpoint.properties()}, "shop", 0, settings_of({"topics": "t"}))
    admin = client_arguments({**WORKER, **endpoint.properties()})
    kept = connection_arguments(consumer.arguments)
    assert kept["sasl_oauth_token_provider"] is admin["sasl_oauth_token_provider"]
    assert SECRET not in repr(kept)


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        ({URL: ""}, URL, "is not set; sasl.mechanism=OAUTHBEARER fetches its token there"),
        ({URL: "http://provider/token"}, URL, "must be an https or file URL"),
        (
            {"sasl.jaas.config": 'x required clientId="a";'},
            "sasl.oauthbearer.client.credentials.client.secret",
            "is not set; set it, or clientSecret in sasl.jaas.config",
        ),
        (
            {"sasl.jaas.config": 'x required clientId="a" clientSecret="b" ssl.truststore.location="/no";'},
            "sasl.jaas.config",
            "option ssl.truststore.location: /no cannot be read",
        ),
        ({"sasl.login.callback.handler.class": "a.B"}, "sasl.login.callback.handler.class", "Invalid value a.B"),
        ({"sasl.login.refresh.window.factor": "2"}, "sasl.login.refresh.window.factor", "it must be 0.5 to 1"),
        ({"sasl.oauthbearer.jwt.retriever.class": "a.B"}, "sasl.oauthbearer.jwt.retriever.class", "Invalid value a.B"),
        ({"sasl.oauthbearer.scop": "x"}, "sasl.oauthbearer.scop", "did you mean sasl.oauthbearer.scope?"),
    ],
)
def test_a_wrong_property_is_named(endpoint: TokenEndpoint, change: dict[str, str], key: str, text: str) -> None:
    """The error names the property, the cause and what to do."""
    with pytest.raises(ConfigError) as caught:
        client_arguments({**WORKER, **endpoint.properties(), **change})
    assert caught.value.key == key
    assert text in str(caught.value)


def test_an_answer_is_bounded(endpoint: TokenEndpoint) -> None:
    """A document of more than 16 MiB is not a token, and is not read to its end."""
    endpoint.answer = 200, json.dumps({"access_token": "x", "more": "y" * MAX_BYTES})
    with pytest.raises(LoginError, match=r"too large for a token; correct sasl\.oauthbearer\.token\.endpoint\.url"):
        token(client_arguments({**WORKER, **endpoint.properties()})["sasl_oauth_token_provider"])
