"""A worker's configuration: which keys it refuses, passes on and fills in."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.config import WorkerConfig
from headrace.config.worker import is_known, select_known
from headrace.config.worker_keys import LATER, WITHOUT_EFFECT
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
    assert config.listener() == ("", 8083)


@pytest.mark.parametrize("name", LATER)
def test_keys_of_later_releases_are_refused(name: str) -> None:
    """An ignored key, as of basic authentication, would be a security hole. An empty value turns the feature off."""
    with pytest.raises(ConfigError, match=r"later release"):
        WorkerConfig({**DISTRIBUTED, name: "x"})
    assert WorkerConfig({**DISTRIBUTED, name: " "})


def test_the_advertised_listener_is_http() -> None:
    """The worker refuses another protocol, and names the options to set."""
    for accepted in ("http", " ", ""):
        assert WorkerConfig({**DISTRIBUTED, "rest.advertised.listener": accepted})
    with pytest.raises(ConfigError, match=r"set rest\.advertised\.host\.name"):
        WorkerConfig({**DISTRIBUTED, "rest.advertised.listener": "https"})


def test_loggers_are_served_on_listeners_or_not_at_all() -> None:
    """An empty admin.listeners disables the loggers; the worker refuses addresses there."""
    assert WorkerConfig(DISTRIBUTED).serves_loggers
    assert not WorkerConfig({**DISTRIBUTED, "admin.listeners": ""}).serves_loggers
    with pytest.raises(ConfigError, match="served on listeners"):
        WorkerConfig({**DISTRIBUTED, "admin.listeners": "http://127.0.0.1:9999"})


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
    [("http://127.0.0.1:9000", ("127.0.0.1", 9000)), ("http://:0", ("", 0)), ("HTTP://[::1]:1", ("::1", 1))],
)
def test_listener(listeners: str, expected: tuple[str, int]) -> None:
    """The worker parses host and port of a listener."""
    assert WorkerConfig({**DISTRIBUTED, "listeners": listeners}).listener() == expected


@pytest.mark.parametrize("listeners", ["https://:8443", "http://a:b", "http://:1,http://:2"])
def test_listeners_that_cannot_be_served_are_refused(listeners: str) -> None:
    """The worker serves neither TLS, which is left to a proxy, nor two listeners."""
    with pytest.raises(ConfigError, match="listeners"):
        WorkerConfig({**DISTRIBUTED, "listeners": listeners})


def test_pass_through_keys_are_unchanged() -> None:
    """Spark and Kafka's clients get their keys without a change, also of the case."""
    config = WorkerConfig({**DISTRIBUTED, "spark.driver.memory": "1g", "consumer.max.poll.records": "7"})
    assert config.spark_properties() == {"spark.driver.memory": "1g"}
    complete = config.complete_properties()
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
