"""A worker's configuration: which keys it refuses, passes on and fills in."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import WorkerConfig
from headrace.config.keys_without_effect import WITHOUT_EFFECT
from headrace.config.rest_options import BASIC_AUTH_EXTENSION, Listener
from headrace.config.worker import is_known, select_known
from headrace.core.connect.properties import parse_properties
from headrace.core.model.errors import ConfigError

DISTRIBUTED = {
    "bootstrap.servers": "a:1, b:2",
    "group.id": "g",
    "config.storage.topic": "c",
    "status.storage.topic": "s",
}


CONNECTS = (Path(__file__).parents[2] / "fixtures" / "connect-worker" / "distributed-4.3.1.properties").read_text()


def test_all_problems_are_reported_at_once() -> None:
    """The error lists all problems, so that an operator fixes them before the next start."""
    with pytest.raises(ConfigError) as refused:
        WorkerConfig({"bootstrap.servers": "a:1", "worker.threads": "many", "warehuose": "/x"})
    text = str(refused.value)
    for piece in ('"group.id"', '"config.storage.topic"', "Invalid value many", "Did you mean 'warehouse'"):
        assert piece in text


def test_standalone_needs_brokers_only() -> None:
    """A standalone worker has no group and no storage topics."""
    config = WorkerConfig({"bootstrap.servers": "a:1"}, distributed=False)
    assert config.group_id is None
    assert config.listener == Listener("http", "", 8083)


def test_the_advertised_listener_is_one_of_listeners() -> None:
    """As in Kafka Connect it is http if there is such a listener; another scheme is refused."""
    both = {**DISTRIBUTED, "listeners": "https://a:1,http://b:2"}
    for scheme, expected in (("", "b"), ("http", "b"), ("HTTPS", "a")):
        assert WorkerConfig({**both, "rest.advertised.listener": scheme}).listener.host == expected
    assert WorkerConfig({**DISTRIBUTED, "listeners": "https://a:1"}).advertises_https
    with pytest.raises(ConfigError, match="listeners has no https address"):
        WorkerConfig({**DISTRIBUTED, "rest.advertised.listener": "https"})


def test_loggers_are_served_on_listeners_on_their_own_or_not_at_all() -> None:
    """An empty admin.listeners disables the loggers."""
    assert WorkerConfig(DISTRIBUTED).serves_loggers
    for addresses, expected in (("", ()), ("https://:9999", (Listener("https", "", 9999),))):
        config = WorkerConfig({**DISTRIBUTED, "admin.listeners": addresses})
        assert (config.serves_loggers, config.admin_listeners) == (False, expected)


@pytest.mark.parametrize("option", ["topics", "table.namespace"])
def test_an_option_of_connectors_is_refused_with_its_place(option: str) -> None:
    """The worker's error says that the option belongs to the configuration of a connector."""
    with pytest.raises(ConfigError, match=f"{option}: unknown option. It is an option of connectors: move it to the"):
        WorkerConfig({**DISTRIBUTED, option: "a"})


def test_options_of_tls_are_those_of_the_listener_or_the_workers() -> None:
    """A key below ``listeners.https.`` hides all keys below ``ssl.``, as in Kafka Connect; misspelt ones are errors."""
    worker = {**DISTRIBUTED, "ssl.keystore.location": "/worker"}
    assert WorkerConfig(worker).tls("listeners.https.ssl.")[1] == "ssl."
    own = WorkerConfig({**worker, "listeners.https.ssl.keystore.location": "/own"})
    assert own.tls("listeners.https.ssl.")[1] == "listeners.https.ssl."
    assert own.tls("admin.listeners.https.ssl.")[1] == "ssl."
    for prefix in ("listeners.https.ssl.", "admin.listeners.https.ssl.", "rest.oauth.ssl.", "listeners.https."):
        with pytest.raises(ConfigError, match="unknown option"):
            WorkerConfig({**DISTRIBUTED, f"{prefix}keystroe.location": "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rest.extension.classes": "com.example.Extension"}, "it is a Java class"),
        ({"rest.extension.classes": BASIC_AUTH_EXTENSION}, "rest.basic.auth.file: is not set"),
        ({"rest.basic.auth.roles": "ann:reader"}, "not user:role with one of the roles read, operate, admin"),
        ({"rest.oauth.issuer": "http://idp.example"}, "must be an https URL"),
        ({"rest.oauth.issuer": "https://idp.example"}, "rest.oauth.audience: is not set"),
        ({"rest.oauth.jwks.url": "ftp://idp.example"}, "must be an https URL"),
    ],
)
def test_authentication_is_configured_completely_or_not(options: dict[str, str], message: str) -> None:
    """Half of it must not mean that the API is open."""
    with pytest.raises(ConfigError, match=message):
        WorkerConfig({**DISTRIBUTED, **options})


def test_keys_without_effect_are_listed() -> None:
    """A worker accepts these keys of a Kafka Connect file, and lists them with the reason."""
    given = {name.replace("*", "x"): reason for name, reason in WITHOUT_EFFECT.items()}
    assert WorkerConfig({**DISTRIBUTED, **dict.fromkeys(given, "x")}).ignored == given


def test_a_worker_file_of_kafka_connect_starts_a_worker() -> None:
    """A file with every default of Kafka Connect is valid, and the keys without a default are known."""
    assert WorkerConfig(parse_properties(CONNECTS)).rest.advertised_listener is None
    names = parse_properties(CONNECTS.replace("\n#", "\n"))
    assert [name for name in names if not is_known(name)] == []


def test_settings_of_topics_are_known_by_name() -> None:
    """The worker passes known settings to the topics that it creates, and refuses an unknown one as misspelt."""
    assert WorkerConfig({**DISTRIBUTED, "config.storage.min.insync.replicas": "2"}).ignored == {}
    with pytest.raises(ConfigError, match=r"Did you mean 'config\.storage\.replication\.factor'"):
        WorkerConfig({**DISTRIBUTED, "config.storage.replicatoin.factor": "1"})


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("http://127.0.0.1:9000", [("http", "127.0.0.1", 9000)]),
        ("http://:0/", [("http", "", 0)]),
        ("HTTP://[::1]:1", [("http", "::1", 1)]),
        ("https://a:8443, http://b", [("https", "a", 8443), ("http", "b", 8083)]),
    ],
)
def test_listeners_have_scheme_host_and_port(listeners: str, expected: list[tuple[str, str, int]]) -> None:
    """Several addresses are separated by commas."""
    found = WorkerConfig({**DISTRIBUTED, "listeners": listeners}).listeners
    assert [(each.scheme, each.host, each.port) for each in found] == expected


@pytest.mark.parametrize(
    "listeners",
    ["ftp://:1", "http://a:b", "http://:1,https://:1", "", "http://a:1/path", "http://u:p@a:1", "http://a:70000"],
)
def test_listeners_that_cannot_be_served_are_refused(listeners: str) -> None:
    """The error names the option."""
    with pytest.raises(ConfigError, match="listeners"):
        WorkerConfig({**DISTRIBUTED, "listeners": listeners})


def test_pass_through_keys_are_unchanged() -> None:
    """Spark and Kafka's clients get their keys without a change, also of the case."""
    config = WorkerConfig({**DISTRIBUTED, "spark.driver.memory": "1g", "consumer.max.poll.records": "7"})
    assert config.spark_properties() == {"spark.driver.memory": "1g"}
    complete = config.complete_properties()
    assert not [name for name in complete if "listeners" in name]
    assert complete["consumer.max.poll.records"] == "7"
    assert complete["status.storage.partitions"] == "5"


def test_values_are_trimmed_except_those_of_spark() -> None:
    """A properties file keeps blanks at the end of a line; Kafka's parser drops them, and Spark reads its values."""
    padded = WorkerConfig({**{name: f"{value} " for name, value in DISTRIBUTED.items()}, "spark.a": " x "})
    assert padded.complete_properties() == {**WorkerConfig(DISTRIBUTED).complete_properties(), "spark.a": " x "}


def test_variables_that_are_no_options_are_ignored() -> None:
    """Kubernetes sets CONNECT_SERVICE_HOST for a service with the name connect."""
    known, unknown = select_known({"bootstrap.servers": "a:1", "service.host": "10.0.0.1"})
    assert known == {"bootstrap.servers": "a:1"}
    assert unknown == ["service.host"]


def test_the_repr_of_a_configuration_has_no_values() -> None:
    """The text is safe in a log."""
    assert "secret" not in repr(WorkerConfig({**DISTRIBUTED, "sasl.jaas.config": "secret"}))


def test_options_of_inherited_converters_are_checked() -> None:
    """The worker refuses options that replace nulls with defaults, because connectors inherit its converters."""
    with pytest.raises(ConfigError, match="a null would become its column's default"):
        WorkerConfig({**DISTRIBUTED, "value.converter.replace.null.with.default": "true"})
    assert WorkerConfig({**DISTRIBUTED, "value.converter.replace.null.with.default": "false"})


@pytest.mark.parametrize(
    ("option", "name", "words"),
    [
        ("value.converter", "no.Such", "Class no.Such could not be found."),
        ("key.converter", "SimpleHeaderConverter", "SimpleHeaderConverter does not implement the Converter interface"),
        ("header.converter", "io.debezium.converters.BinaryDataConverter", "could not be found."),
    ],
)
def test_the_converters_of_a_worker_exist(option: str, name: str, words: str) -> None:
    """The worker does not start otherwise, as in Kafka Connect: every task that inherits one would fail."""
    with pytest.raises(ConfigError, match=words):
        WorkerConfig({**DISTRIBUTED, option: name})


@pytest.mark.parametrize(("given", "tables"), [("all", None), ("NONE", 0), ("0", 0), (" 500 ", 500)])
def test_tables_with_metrics_of_their_own(given: str, tables: int | None) -> None:
    """All, none or a number."""
    assert WorkerConfig({**DISTRIBUTED, "metrics.tables": given}).metrics.tables == tables


@pytest.mark.parametrize("given", ["some", "-1", "1.5", "²"])
def test_no_number_of_tables(given: str) -> None:
    """The message names the option and what it accepts."""
    with pytest.raises(ConfigError, match=r"configuration metrics\.tables: must be all, none or a number of tables"):
        WorkerConfig({**DISTRIBUTED, "metrics.tables": given})
