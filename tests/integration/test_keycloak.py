"""Tokens of a real Keycloak at a real broker, while they expire. Needs a Java that Keycloak accepts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from support.fix_secured_kafka import SecuredBroker
from support.kafka.secured_clients import check_all_clients, error_at_start, flow_across_sessions

from headrace.core.model.errors import ConfigError
from headrace_dev.java import java_home_of_servers
from headrace_dev.keycloak import Keycloak
from headrace_dev.secured_kafka import Listener, SecuredKafka, Tokens
from headrace_dev.versions import JAVA_OF_SERVERS

pytestmark = [pytest.mark.stack, pytest.mark.anyio, pytest.mark.long, pytest.mark.timeout(900)]

REALM, CLIENT, SECRET, AUDIENCE = "data", "headrace", "keycloak-secret", "kafka"
TOKEN_SECONDS = 10


@pytest.fixture(scope="module")
def keycloak(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keycloak]:
    """A Keycloak with a realm whose tokens end after 10 s."""
    java = java_home_of_servers()
    if java is None:
        pytest.skip(f"needs Java {JAVA_OF_SERVERS} or newer: set JAVA21_HOME")
    server = Keycloak(tmp_path_factory.mktemp("keycloak"), java)
    try:
        server.start()
        server.create_client(REALM, CLIENT, SECRET, AUDIENCE, TOKEN_SECONDS)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def broker(keycloak: Keycloak, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that accepts the realm's tokens only."""
    folder = tmp_path_factory.mktemp("broker")
    keys = folder / "jwks.json"
    keys.write_text(json.dumps(keycloak.keys(REALM)))
    listener = Listener("TOKEN", "SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), session_ms=3_600_000)
    kafka = SecuredKafka(folder, [listener], {}, Tokens(keys, AUDIENCE))
    kafka.start()
    yield SecuredBroker(kafka, folder)
    kafka.stop()


def _client(keycloak: Keycloak, broker: SecuredBroker, secret: str = SECRET) -> dict[str, str]:
    prefix = "sasl.oauthbearer.client.credentials.client"
    return {
        **broker.properties("TOKEN", "SASL_PLAINTEXT"),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": keycloak.token_url(REALM),
        f"{prefix}.id": CLIENT,
        f"{prefix}.secret": secret,
    }


async def test_every_client_logs_in(keycloak: Keycloak, broker: SecuredBroker, unique: Callable[[str], str]) -> None:
    """A worker uses each kind of client with a token of Keycloak."""
    await check_all_clients(broker, _client(keycloak, broker), unique)


async def test_a_wrong_secret_is_named(keycloak: Keycloak, broker: SecuredBroker, unique: Callable[[str], str]) -> None:
    """Keycloak's answer becomes an error that says what to correct."""
    error = await error_at_start(_client(keycloak, broker, "wrong"), unique)
    assert isinstance(error, ConfigError)
    assert "rejects the client headrace: unauthorized_client; correct client id and secret" in str(error)


async def test_tokens_expire_during_the_run(
    keycloak: Keycloak, broker: SecuredBroker, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The flow has no error and loses nothing while three tokens end."""
    await flow_across_sessions(broker, _client(keycloak, broker), unique, caplog, 3.5 * TOKEN_SECONDS)
