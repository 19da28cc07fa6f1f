"""The worker's credentials are sent only to the worker's brokers and only with the worker's security settings."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.kafka.kafka_settings import settings_of

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.settings import (
    admin_arguments,
    consumer_settings,
    group_arguments,
    producer_arguments,
    topic_arguments,
)

Properties = Mapping[str, str]


def _jaas(user: str) -> str:
    return f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{user}-pw";'


WORKER = {
    "bootstrap.servers": "a:9093, b:9093",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": _jaas("worker"),
    "consumer.sasl.jaas.config": _jaas("reader"),
    "producer.sasl.jaas.config": _jaas("writer"),
    "admin.sasl.jaas.config": _jaas("admin"),
}
CLIENTS: dict[str, tuple[str, Callable[[Properties, KafkaSettings], Mapping[str, Any]]]] = {
    "consumer": (
        "consumer",
        lambda worker, settings: consumer_settings(worker, "shop", 0, settings).arguments,
    ),
    "dead letters": ("producer", lambda worker, settings: producer_arguments(worker, "shop", 0, settings)),
    "dead letter topic": ("admin", lambda worker, settings: admin_arguments(worker, settings, "client")),
    "offsets of the group": ("admin", lambda worker, settings: group_arguments(worker, "shop", settings)),
    "group at the consumer's brokers": (
        "consumer",
        lambda worker, settings: group_arguments(worker, "shop", settings),
    ),
    "topics": ("consumer", topic_arguments),
}
each_client = pytest.mark.parametrize("client", CLIENTS)


def _arguments(client: str, **overrides: str) -> Mapping[str, Any]:
    prefix, arguments = CLIENTS[client]
    named = {f"{prefix}.override.{key.replace('__', '.')}": value for key, value in overrides.items()}
    return arguments(WORKER, settings_of({"topics": "t", **named}))


@each_client
def test_brokers_that_a_connector_names_get_nothing_of_the_workers(client: str) -> None:
    """The client of overridden brokers has no SASL or SSL argument of the worker, so they cannot read its password."""
    arguments = _arguments(client, bootstrap__servers="evil:9092", security__protocol="PLAINTEXT")
    assert arguments["bootstrap_servers"] == "evil:9092"
    assert not [key for key in arguments if key.startswith(("sasl", "ssl"))]


@each_client
@pytest.mark.parametrize(
    "overrides",
    [
        {"sasl__mechanism": "PLAIN"},
        {},
        {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN"},
        {"bootstrap__servers": "a:9093,evil:9092", "sasl__mechanism": "PLAIN"},
    ],
)
def test_other_brokers_need_security_settings_of_their_own(client: str, overrides: dict[str, str]) -> None:
    """An override of bootstrap.servers without own credentials is refused; the error shows no password."""
    with pytest.raises(ConfigError, match="not sent to brokers that a connector names") as caught:
        _arguments(client, **{"bootstrap__servers": "evil:9092", **overrides})
    assert caught.value.key == f"{CLIENTS[client][0]}.override.bootstrap.servers"
    assert "-pw" not in str(caught.value)


@each_client
def test_other_brokers_get_the_connectors_own_login(client: str) -> None:
    """A connector may read from another cluster with its own user and password."""
    own = {"security__protocol": "SASL_PLAINTEXT", "sasl__mechanism": "PLAIN", "sasl__jaas__config": _jaas("mine")}
    arguments = _arguments(client, bootstrap__servers="other:9092", **own)
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("mine", "mine-pw")


@pytest.mark.parametrize("client", ["consumer", "dead letters", "dead letter topic", "offsets of the group", "topics"])
@pytest.mark.parametrize(
    ("key", "value"),
    [("sasl__mechanism", "PLAIN"), ("ssl__truststore__location", "mine.pem"), ("security__protocol", "SASL_SSL")],
)
def test_the_workers_login_is_not_sent_in_another_form(client: str, key: str, value: str) -> None:
    """A connector that keeps the worker's login cannot override its mechanism, protocol or certificate authority."""
    with pytest.raises(ConfigError, match="with the worker's own security settings only") as caught:
        _arguments(client, **{key: value})
    assert caught.value.key == f"{CLIENTS[client][0]}.override.{key.replace('__', '.')}"


@pytest.mark.parametrize(
    "overrides",
    [
        {"bootstrap__servers": "b:9093"},
        {"bootstrap__servers": "b:9093,a:9093"},
        {"security__protocol": "SASL_PLAINTEXT"},
        {"sasl__mechanism": " SCRAM-SHA-512 "},
        {"max__poll__records": "7"},
    ],
)
def test_overrides_that_repeat_the_worker_keep_its_login(overrides: dict[str, str]) -> None:
    """An override with a subset of the worker's addresses or with equal values keeps the worker's login."""
    assert _arguments("consumer", **overrides)["sasl_plain_username"] == "reader"


def test_a_plaintext_override_keeps_the_workers_brokers() -> None:
    """A connector may use PLAINTEXT at the worker's brokers, where no SASL handshake sends the password."""
    arguments = _arguments("consumer", security__protocol="PLAINTEXT")
    assert arguments["security_protocol"] == "PLAINTEXT"
    assert arguments["bootstrap_servers"] == _arguments("consumer")["bootstrap_servers"]


def test_a_connector_replaces_the_login_at_the_workers_brokers() -> None:
    """A connector with its own login may also override the SASL mechanism at the worker's brokers."""
    arguments = _arguments("consumer", sasl__mechanism="PLAIN", sasl__jaas__config=_jaas("mine"))
    assert (arguments["sasl_mechanism"], arguments["sasl_plain_username"]) == ("PLAIN", "mine")


OAUTH = {
    "bootstrap.servers": "a:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://provider/token",
    "sasl.oauthbearer.client.credentials.client.id": "worker",
    "sasl.oauthbearer.client.credentials.client.secret": "worker-secret",
}


@pytest.mark.parametrize(
    "override",
    [{"sasl.oauthbearer.token.endpoint.url": "https://other/token"}, {"security.protocol": "SASL_PLAINTEXT"}],
)
def test_a_connector_cannot_send_the_workers_secret_elsewhere(override: Properties) -> None:
    """The client secret of the worker is sent to the worker's token endpoint only."""
    settings = settings_of({"topics": "t", **{f"consumer.override.{key}": each for key, each in override.items()}})
    with pytest.raises(ConfigError, match="are sent with the worker's own security settings"):
        consumer_settings(OAUTH, "shop", 0, settings)


def test_a_login_of_a_connector_replaces_all_of_the_workers() -> None:
    """A connector's sasl.jaas.config with its own endpoint does not bring the worker's client secret along."""
    own = {
        "sasl.oauthbearer.token.endpoint.url": "https://other/token",
        "sasl.jaas.config": 'x required clientId="mine";',
    }
    settings = settings_of({"topics": "t", **{f"consumer.override.{key}": each for key, each in own.items()}})
    with pytest.raises(ConfigError, match=r"client\.secret: is not set"):
        consumer_settings(OAUTH, "shop", 0, settings)


def test_a_connector_cannot_send_a_file_as_a_token() -> None:
    """A token file of a connector would be sent to the connector's brokers, whatever it contains."""
    own = {"consumer.override.sasl.oauthbearer.token.endpoint.url": "FILE:///etc/passwd"}
    with pytest.raises(ConfigError, match="a connector cannot name a file"):
        consumer_settings(OAUTH, "shop", 0, settings_of({"topics": "t", **own}))


def test_a_token_file_of_the_worker_is_a_credential() -> None:
    """A connector cannot make the worker send it without encryption."""
    worker = {**OAUTH, "sasl.oauthbearer.token.endpoint.url": "file:///token"}
    for key in ("id", "secret"):
        del worker[f"sasl.oauthbearer.client.credentials.client.{key}"]
    settings = settings_of({"topics": "t", "consumer.override.security.protocol": "SASL_PLAINTEXT"})
    with pytest.raises(ConfigError, match="are sent with the worker's own security settings"):
        consumer_settings(worker, "shop", 0, settings)
