"""Client properties as aiokafka's arguments, layer by layer, and the protection of the worker's credentials."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from support.kafka.kafka_settings import settings_of

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.settings import (
    admin_arguments,
    check_worker,
    consumer_settings,
    group_arguments,
    producer_arguments,
    topic_arguments,
    topic_pattern,
)

WORKER = {"bootstrap.servers": "broker:9092"}
TOPICS = {"topics": "a.b"}


def test_defaults_follow_kafka_connect() -> None:
    """The group id, client id and auto.offset.reset have the defaults of a Kafka Connect sink task."""
    settings = consumer_settings(WORKER, "shop", 2, settings_of(TOPICS))
    assert settings.group == settings.arguments["group_id"] == "connect-shop"
    assert settings.arguments["client_id"] == "connector-consumer-shop-2"
    assert settings.reset == "earliest"
    assert settings.arguments["enable_auto_commit"] is False


def test_later_layers_override() -> None:
    """A connector's consumer.override.* takes precedence over the worker's consumer.* and its common properties."""
    worker = {**WORKER, "security.protocol": "SSL", "consumer.security.protocol": "PLAINTEXT", "consumer.group.id": "g"}
    settings = consumer_settings(worker, "shop", 0, settings_of({**TOPICS, "consumer.override.max.poll.records": "7"}))
    assert settings.arguments["security_protocol"] == "PLAINTEXT"
    assert settings.arguments["max_poll_records"] == 7
    assert settings.group == "g"


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 125_000),
        ({"request.timeout.ms": "20000"}, 125_000),
        ({"request.timeout.ms": "300000"}, 300_000),
        ({"rebalance.timeout.ms": "300000"}, 305_000),
        ({"request.timeout.ms": "20000", "rebalance.timeout.ms": "10000"}, 20_000),
    ],
)
def test_a_request_waits_for_a_rebalance(given: dict[str, str], milliseconds: int) -> None:
    """The request timeout is longer than the rebalance timeout, because JoinGroup is answered after the rebalance."""
    worker = {**WORKER, **{f"consumer.{key}": value for key, value in given.items()}}
    assert consumer_settings(worker, "shop", 0, settings_of(TOPICS)).arguments["request_timeout_ms"] == milliseconds


def test_each_task_is_a_static_member_of_its_own() -> None:
    """Each task appends its number to group.instance.id, because two members with one id fence each other."""
    config = {**TOPICS, "consumer.override.group.instance.id": "shop"}
    ids = [
        consumer_settings(WORKER, "shop", task, settings_of(config)).arguments["group_instance_id"] for task in range(2)
    ]
    assert ids == ["shop-0", "shop-1"]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("max.poll.record", "5", "did you mean max.poll.records"),
        ("max.poll.records", "many", "max.poll.records: invalid value: expected a whole number"),
        ("isolation.level", "read_all", "expected one of read_committed"),
        ("enable.auto.commit", "true", "committed after the table commit"),
        ("key.deserializer", "x.Y", "key.converter"),
        ("sasl.mechanism", "DIGEST-MD5", "expected one of PLAIN"),
        ("sasl.jaas.config", "x required user='u';", "needs a login module"),
    ],
)
def test_a_wrong_property_is_named(key: str, value: str, text: str) -> None:
    """The error names the property and the cause, and its ``key`` is the property."""
    with pytest.raises(ConfigError, match=text) as caught:
        consumer_settings(WORKER, "shop", 0, settings_of({**TOPICS, f"consumer.override.{key}": value}))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ssl.truststore.locaton", "did you mean ssl.truststore.location"),
        ("ssl.engine.factory.class", "Java class"),
        ("sasl.oauthbearer.assertion.file", "signed assertions are not supported"),
        ("sasl.jaas.confg", "did you mean sasl.jaas.config"),
    ],
)
def test_no_security_property_is_ignored(key: str, text: str) -> None:
    """An operator who sets one must not believe in an effect that it does not have."""
    with pytest.raises(ConfigError, match=re.escape(text)) as caught:
        consumer_settings({**WORKER, key: "x"}, "shop", 0, settings_of(TOPICS))
    assert caught.value.key == key


def test_the_versions_of_tls_are_those_of_the_properties() -> None:
    """A client that must use TLS 1.3 offers no other version."""
    worker = {**WORKER, "security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}
    context = consumer_settings(worker, "shop", 0, settings_of(TOPICS)).arguments["ssl_context"]
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_tls_without_host_name_check() -> None:
    """An empty ssl.endpoint.identification.algorithm disables host name verification, as in Java."""
    worker = {**WORKER, "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    context = consumer_settings(worker, "shop", 0, settings_of(TOPICS)).arguments["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname


def test_passwords_of_a_login_module() -> None:
    """Quoted and escaped values of sasl.jaas.config are parsed."""
    login = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="a\\"; b=c";'
    arguments = producer_arguments({**WORKER, "sasl.jaas.config": login}, "shop", 0, settings_of({}))
    assert arguments["sasl_plain_username"] == "u"
    assert arguments["sasl_plain_password"] == 'a"; b=c'


@pytest.mark.parametrize("password", ['"secret;', "'secret;", ""])
def test_a_login_without_a_readable_password_is_refused(password: str) -> None:
    """A quote that is not closed is an error, not a part of the password; the message does not contain the text."""
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password={password}'
    with pytest.raises(ConfigError, match=r"needs a login module") as caught:
        producer_arguments({**WORKER, "sasl.jaas.config": login}, "shop", 0, settings_of({}))
    assert "secret" not in str(caught.value)


def test_dead_letters_are_always_durable() -> None:
    """The producer of dead letters uses acks=all, and an override of acks is refused."""
    assert producer_arguments(WORKER, "shop", 0, settings_of({}))["acks"] == "all"
    with pytest.raises(ConfigError, match="acknowledged by all replicas"):
        producer_arguments(WORKER, "shop", 0, settings_of({"producer.override.acks": "0"}))


def jaas(user: str) -> str:
    """Return a JAAS configuration of ``user``."""
    return f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="p";'


def test_later_layers_of_an_admin_client_override() -> None:
    """``admin.override.*`` precedes the worker's ``admin.*`` and common properties; unknown names are refused."""
    worker = {**WORKER, "sasl.jaas.config": jaas("worker"), "producer.sasl.jaas.config": jaas("producer")}
    assert admin_arguments(worker, settings_of({}), "a")["sasl_plain_username"] == "worker"
    worker["admin.sasl.jaas.config"] = jaas("admin")
    assert admin_arguments(worker, settings_of({}), "a")["sasl_plain_username"] == "admin"
    override = {"admin.override.sasl.jaas.config": jaas("override")}
    assert admin_arguments(worker, settings_of(override), "a")["sasl_plain_username"] == "override"
    assert admin_arguments(worker, settings_of(override), "a")["client_id"] == "a"
    with pytest.raises(ConfigError, match=r"did you mean request\.timeout\.ms"):
        admin_arguments(WORKER, settings_of({"admin.override.request.timeout": "5"}), "a")


@pytest.mark.parametrize(
    ("worker", "config", "brokers", "user"),
    [
        ({}, {}, "broker:9092", "worker"),
        ({"consumer.sasl.jaas.config": jaas("consumer")}, {}, "broker:9092", "worker"),
        ({}, {"consumer.override.bootstrap.servers": "far:1"}, "far:1", None),
        ({"admin.sasl.jaas.config": jaas("admin")}, {"consumer.override.bootstrap.servers": "far:1"}, "far:1", None),
        ({"consumer.bootstrap.servers": "far:1", "consumer.sasl.jaas.config": jaas("far")}, {}, "far:1", "far"),
        (
            {"admin.bootstrap.servers": "near:1"},
            {"consumer.override.bootstrap.servers": "far:1", "consumer.override.sasl.jaas.config": jaas("far")},
            "near:1",
            "worker",
        ),
        ({"consumer.bootstrap.servers": "far:1"}, {"admin.override.bootstrap.servers": "b:2"}, "b:2", None),
        (
            {"consumer.bootstrap.servers": "far:1"},
            {"admin.override.sasl.jaas.config": jaas("admin")},
            "far:1",
            "admin",
        ),
    ],
)
def test_group_offsets_are_queried_at_the_consumers_brokers(
    worker: dict[str, str], config: dict[str, str], brokers: str, user: str | None
) -> None:
    """Offsets are queried at the consumer's brokers unless admin properties name others, with their credentials."""
    arguments = group_arguments({**WORKER, "sasl.jaas.config": jaas("worker"), **worker}, "shop", settings_of(config))
    assert (arguments["bootstrap_servers"], arguments.get("sasl_plain_username")) == (brokers, user)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("acks", "all"),
        ("acks", "-1"),
        ("enable.idempotence", "true"),
        ("retries", "2147483647"),
        ("buffer.memory", "33554432"),
        ("delivery.timeout.ms", "120000"),
        ("max.block.ms", "60000"),
        ("max.in.flight.requests.per.connection", "1"),
        ("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"),
    ],
)
def test_properties_that_equal_the_fixed_behaviour_are_accepted(key: str, value: str) -> None:
    """Producer properties that templates of worker files repeat are accepted and change nothing."""
    check_worker({**WORKER, f"producer.{key}": value})
    assert producer_arguments({**WORKER, f"producer.{key}": value}, "shop", 0, settings_of({})) == producer_arguments(
        WORKER, "shop", 0, settings_of({})
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer.acks", "1", r"producer\.acks: cannot be set"),
        ("producer.transactional.id", "t", r"producer\.transactional\.id: cannot be set"),
        ("consumer.max.poll.records", "x", r"consumer\.max\.poll\.records: invalid value"),
        ("admin.retry", "1", r"admin\.retry: not a property"),
        ("sasl.mechanism", "DIGEST-MD5", r"^sasl\.mechanism: invalid value"),
    ],
)
def test_all_layers_of_a_worker_file_are_validated(key: str, value: str, text: str) -> None:
    """The error names the property as the worker file contains it, before a connector is created."""
    with pytest.raises(ConfigError, match=text) as caught:
        check_worker({**WORKER, key: value})
    assert caught.value.key == key


def test_a_pattern_matches_complete_names() -> None:
    """Names of ``topics`` are literal, and ``topics.regex`` has to match the complete name."""
    assert re.match(topic_pattern(settings_of({"topics": "a.b, c"}).topics), "a.b")
    assert not re.match(topic_pattern(settings_of({"topics": "a.b, c"}).topics), "axb")
    assert not re.match(topic_pattern(settings_of({"topics.regex": "a|b"}).topics), "ab")
    assert re.match(topic_pattern(settings_of({"topics.regex": r"(?i)(?s)shop\..*"}).topics), "SHOP.a")
    assert not re.match(topic_pattern(settings_of({"topics.regex": "(?i)a|b"}).topics), "AB")
    for wrong in ({}, {"topics": "a", "topics.regex": "b"}, {"topics.regex": "("}, {"topics.regex": "(?x)a # b"}):
        with pytest.raises(ConfigError):
            topic_pattern(settings_of(wrong).topics)


def test_bootstrap_servers_are_required() -> None:
    """A worker without bootstrap.servers is refused."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is not set"):
        consumer_settings({}, "shop", 0, settings_of(TOPICS))


Properties = Mapping[str, str]


def _jaas(user: str) -> str:
    return f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{user}" password="{user}-pw";'


SECURED_WORKER = {
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
    return arguments(SECURED_WORKER, settings_of({"topics": "t", **named}))


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
