"""Validation of connector configurations: the texts and counts of Kafka Connect, and the refusals of Headrace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.connector import LATER
from headrace.config.kafka import OverridePolicy
from headrace.config.validation import WorkerDefaults, connector_definitions, sink_connector_config, validate

JSON = "org.apache.kafka.connect.json.JsonConverter"
DEFAULTS = WorkerDefaults(
    {"key.converter": JSON, "value.converter": JSON, "value.converter.schemas.enable": "false"}, "1.0", "cluster"
)
MINIMAL = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}


def _errors(**changes: str | None) -> dict[str, tuple[str, ...]]:
    given: dict[str, str | None] = {**MINIMAL, **{name.replace("__", "."): value for name, value in changes.items()}}
    infos = validate(given, DEFAULTS).configs
    return {info.definition.name: info.value.errors for info in infos if info.value.errors}


def test_a_minimal_configuration_is_valid() -> None:
    """A configuration needs name, class and topics only."""
    assert _errors() == {}


@pytest.mark.parametrize(
    ("option", "value", "messages"),
    [
        (
            "tasks.max",
            "x",
            (
                "Invalid value x for configuration tasks.max: Not a number of type INT",
                "Invalid value null for configuration tasks.max: Value must be non-null",
            ),
        ),
        ("tasks.max", "0", ("Invalid value 0 for configuration tasks.max: Value must be at least 1",)),
        ("tasks.max", "2.5", None),
        ("tasks.max", str(2**31), None),
        (
            "errors.tolerance",
            "foo",
            ("Invalid value foo for configuration errors.tolerance: String must be one of: none, all",),
        ),
        (
            "errors.tolerance",
            "ALL",
            ("Invalid value ALL for configuration errors.tolerance: String must be one of: none, all",),
        ),
        (
            "config.action.reload",
            "RESTART",
            ("Invalid value RESTART for configuration config.action.reload: String must be one of: none, restart",),
        ),
        (
            "value.converter.decimal.format",
            "X",
            (
                "Invalid value X for configuration value.converter.decimal.format: "
                "String must be one of (case insensitive): NUMERIC, BASE64",
            ),
        ),
        (
            "errors.log.enable",
            "maybe",
            (
                "Invalid value maybe for configuration errors.log.enable: "
                "Expected value to be either true or false",
            ),
        ),
        ("name", "", ("Invalid value  for configuration name: String may not be empty",)),
        (
            "name",
            "a\nb\x85",
            (
                "Invalid value a\nb\x85 for configuration name: "
                "String may not contain control sequences but had the following ASCII chars: 10, 133",
            ),
        ),
        ("topics", "a,a", ("Configuration 'topics' values must not be duplicated.",)),
        ("topics", "a,", ("Configuration 'topics' values must not be empty.",)),
        (
            "key.converter",
            "SimpleHeader",
            (
                "Class class org.apache.kafka.connect.storage.SimpleHeaderConverter "
                "does not implement the Converter interface",
            ),
        ),
        (
            "header.converter",
            "RegexRouter",
            (
                "Class class org.apache.kafka.connect.transforms.RegexRouter "
                "does not implement the HeaderConverter interface",
            ),
        ),
        (
            "consumer.override.group.id",
            "cluster",
            ("Consumer group cluster conflicts with Connect worker group cluster",),
        ),
    ],
)  # fmt: skip
def test_texts_of_errors_are_those_of_kafka_connect(option: str, value: str, messages: tuple[str, ...] | None) -> None:
    """Consoles show these texts and people search for them (``connect.md`` section 4.2)."""
    found = _errors(**{"value.converter": "JsonConverter", option: value})
    assert list(found) == [option]
    assert messages is None or found[option] == messages


def test_named_groups_are_spelled_as_in_java() -> None:
    """Patterns of topics and transforms accept ``(?<table>..)``, and a replacement refers to it."""
    router = {"type": "RegexRouter", "regex": r"(?<db>[^.]+)\.(?<table>.*)", "replacement": "${table}"}
    transforms = {f"transforms.t.{key}": value for key, value in router.items()}
    topics = {"topics": None, "topics.regex": r"(?<db>shop)\..*"}
    given = {**MINIMAL, "transforms": "t", **transforms, **topics}
    given = {name: value for name, value in given.items() if value is not None}
    assert not [info.value.errors for info in validate(given, DEFAULTS).configs if info.value.errors]
    assert sink_connector_config(given, DEFAULTS).framework.topics.pattern == r"(?P<db>shop)\..*"


def test_trimmed_and_case_blind_values_are_valid() -> None:
    """Validation trims values and ignores the case of booleans, as Kafka's parser does."""
    infos = {info.value.name: info.value.value for info in validate({**MINIMAL, "tasks.max": " 2 "}, DEFAULTS).configs}
    assert infos["tasks.max"] == "2"
    assert _errors(errors__log__enable="TRUE") == {}


def test_tasks_get_trimmed_values() -> None:
    """A task gets trimmed values, so that a group or topic has no blank in its name. Table properties are unchanged."""
    given = {
        "name": "shop",
        "connector.class": "LakehouseSink",
        "topics.regex": r"shop\..*",
        "consumer.override.group.id": "g",
        "errors.deadletterqueue.topic.name": "dead",
        "errors.deadletterqueue.context.headers.enable": "TRUE",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    plain, padded = (
        sink_connector_config(each, DEFAULTS)
        for each in (given, {name: f" {value}\t" for name, value in given.items()})
    )
    assert padded == plain
    assert (padded.group_id, padded.schemas_enabled("value")) == ("g", False)
    untrimmed = {"table.properties.write.separator": " "}
    assert sink_connector_config({**given, **untrimmed}, DEFAULTS).tables.properties == {"write.separator": " "}


def test_the_policy_applies_to_the_admin_client() -> None:
    """The admin client that queries offsets uses ``admin.override.*`` also without a dead letter queue."""
    defaults = replace(DEFAULTS, overrides=OverridePolicy.of("None", ()))
    assert validate({**MINIMAL, "admin.override.bootstrap.servers": "far:1"}, defaults).errors() == [
        "The 'None' policy does not allow 'bootstrap.servers' to be overridden in the connector configuration."
    ]


def test_the_policy_applies_to_the_producer_with_a_queue_only() -> None:
    """The producer is that of the dead letter queue; without one Kafka Connect does not check its overrides either."""
    defaults = replace(DEFAULTS, overrides=OverridePolicy.of("None", ()))
    option, queue = "producer.override.linger.ms", {"errors.deadletterqueue.topic.name": "dead"}
    assert not validate({**MINIMAL, option: "5"}, defaults).error_count
    assert validate({**MINIMAL, option: "5", **queue}, defaults).errors() == [
        "The 'None' policy does not allow 'linger.ms' to be overridden in the connector configuration."
    ]


def test_a_connector_may_not_join_the_group_of_the_workers() -> None:
    """The group's name follows the connector's, so that name is refused; another group.id is accepted."""
    defaults = replace(DEFAULTS, group_id="connect-shop")
    assert validate(MINIMAL, defaults).errors() == [
        "Consumer group for sink connector named shop conflicts with Connect worker group connect-shop"
    ]
    assert not validate({**MINIMAL, "consumer.override.group.id": "g"}, defaults).error_count


def test_checks_apply_to_trimmed_values() -> None:
    """Validation checks the values that a task gets."""
    assert list(_errors(insert__mode=" insert ", delete__mode=" soft ")) == ["delete.mode"]
    assert list(_errors(consumer__override__group__id=" cluster ")) == ["consumer.override.group.id"]
    routed = {"transforms": "t", "transforms.t.type": " RegexRouter ", "transforms.t.regex": "a"}
    assert _errors(**routed, **{"transforms.t.replacement": "b"}) == {}


@pytest.mark.parametrize(
    ("option", "name", "meant"),
    [
        ("value.converter", "Jsonn", "'JsonConverter'"),
        ("key.converter", "org.apache.kafka.StringConverter", "'org.apache.kafka.connect.storage.StringConverter'"),
        ("value.converter", "io.confluent.connect.avro.AvroConvertor", "'io.confluent.connect.avro.AvroConverter'"),
        ("header.converter", "SimpleHeaders", "'SimpleHeaderConverter'"),
    ],
)
def test_an_unknown_converter_is_refused_with_the_closest_and_all(option: str, name: str, meant: str) -> None:
    """The message continues Kafka's sentence with the closest class, and lists the classes."""
    [message] = _errors(**{option: name})[option]
    assert message.startswith(f"Invalid value {name} for configuration {option}: Class {name} could not be found. Did")
    assert f"Did you mean {meant}" in message
    assert "The classes are: " in message
    assert "JsonConverter, BooleanConverter, " in message


def test_topics_and_pattern_exclude_each_other() -> None:
    """Validation reports an error on both keys, so the count is two."""
    assert list(_errors(topics="")) == ["topics", "topics.regex"]
    assert list(_errors(topics__regex="a.*")) == ["topics", "topics.regex"]


def test_the_dead_letter_topic_must_not_be_a_source() -> None:
    """Otherwise the connector reads the dead letters that it writes."""
    assert list(_errors(errors__deadletterqueue__topic__name="a")) == ["topics"]
    pattern = {"topics": "", "topics.regex": "d.*", "errors.deadletterqueue.topic.name": "dead"}
    assert "may not be matched by the regex" in _errors(**pattern)["topics.regex"][0]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("table.partition.by", "bucket(id)", "bucket(n, column)"),
        ("table.sort.by", "days(a)", "ASC or DESC"),
        ("table.metadata.fields", "nonsense", "source.table"),
        ("field.exclude.list", "b", "exclude each other"),
        ("ordering.field", "size(v)", "is not a field"),
    ],
)
def test_specifications_of_tables_are_parsed_by_validation(option: str, value: str, words: str) -> None:
    """Validation parses layouts, columns and metadata, so that a task does not fail at its first table."""
    assert words in _errors(**{"field.include.list": "a", option: value})[option][0]


def test_insert_mode_insert_excludes_soft_deletes() -> None:
    """``insert.mode=insert`` writes a row for each delete, so validation refuses it with ``delete.mode=soft``."""
    assert "a row of its own" in _errors(insert__mode="insert", delete__mode="soft")["delete.mode"][0]
    assert _errors(insert__mode="insert") == _errors(delete__mode="soft") == {}


@pytest.mark.parametrize("namespace", ["../../etc", "/etc", "a/b", "..", "a\\b"])
def test_a_namespace_stays_in_the_warehouse(namespace: str) -> None:
    """A namespace is the name of one folder."""
    errors = _errors(table__namespace=namespace)
    assert list(errors) == ["table.namespace"]
    assert errors["table.namespace"][0].startswith(f"Invalid value {namespace} for configuration table.namespace: the")


@pytest.mark.parametrize("form", ["../${topic}", "${source.tabel}"])
def test_the_format_of_table_names_is_checked(form: str) -> None:
    """Validation checks the format when the connector is created, before a task starts."""
    assert list(_errors(collection__name__format=form)) == ["collection.name.format"]


@pytest.mark.parametrize(
    ("value", "refused"), [("/data/lake/x", False), ("file:/data/lake/x", False), ("/etc", True), ("s3://b/x", True)]
)
def test_files_of_a_table_stay_in_the_warehouse(value: str, refused: bool) -> None:
    """Validation reports the error on the table property with the path."""
    name = "table.properties.write.data.path"
    infos = validate({**MINIMAL, name: value}, replace(DEFAULTS, warehouse="/data/lake"))
    errors = {info.definition.name for info in infos.configs if info.value.errors}
    assert errors == ({name} if refused else set())


def test_table_properties_may_have_any_name() -> None:
    """The format defines these properties; tables get them without the prefix."""
    name = "table.properties.write.parquet.compression-codec"
    assert _errors(**{name: "zstd"}) == {}
    config = sink_connector_config({**MINIMAL, name: "zstd"}, DEFAULTS)
    assert config.tables.properties == {"write.parquet.compression-codec": "zstd"}


@pytest.mark.parametrize("option", LATER)
def test_keys_of_later_releases_are_refused_with_the_reason(option: str) -> None:
    """Validation never accepts such a key without an error."""
    assert "later release" in _errors(**{option: "x"})[option][0]


@pytest.mark.parametrize("option", ["reselect.error.handling.mode", "reselect.unresolved.insert.mode"])
def test_dead_letters_need_a_queue(option: str) -> None:
    """The dlq modes need errors.tolerance=all and the queue; with insert.mode=insert they have no rows to complete."""
    queue = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    assert _errors(**{option: "dlq"}, **queue) == {}
    for lacking in queue:
        given = {name: value for name, value in queue.items() if name != lacking}
        assert "errors.tolerance=all and errors.dead" in _errors(**{option: "DLQ"}, **given)[option][0]
    assert "a history" in _errors(**{option: "dlq", "insert.mode": "insert"}, **queue)[option][0]


def test_the_definitions_list_the_connectors_own_options_first() -> None:
    """The order is that of GET /connector-plugins/{p}/config in Kafka Connect."""
    names = connector_definitions(DEFAULTS).names()
    assert names.index("table.namespace") < names.index("name")
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("warehouse", "It is an option of the worker: move it to the worker file, where it applies to all connectors."),
        ("spark.driver.memory", "It is an option of the worker"),
        ("group.id", "or name it consumer.override.group.id for the connector's consumers."),
        ("sasl.mechanism", "or name it consumer.override.sasl.mechanism for the connector's consumers."),
        ("consumer.max.poll.records", "or name it consumer.override.max.poll.records."),
        ("consumer.overide.group.id", "Did you mean 'consumer.override.group.id'?"),
        ("offset.flush.interval.ms", "It is an option of Kafka Connect's worker, and without effect in Headrace: "),
        ("batch.linger", "Did you mean 'batch.linger.ms'?"),
    ],
)
def test_an_option_of_the_worker_is_refused_with_its_place(option: str, words: str) -> None:
    """The error says that the option belongs to the worker file, and what a connector has instead."""
    [message] = _errors(**{option: "x"})[option]
    assert message.startswith(f"Unknown configuration '{option}'. ")
    assert words in message


def test_an_unknown_key_is_one_error_without_its_value() -> None:
    """kcctl fails without a definition of the key, and consoles log the values that they get."""
    infos = validate({**MINIMAL, "databse.password": "geheim"}, DEFAULTS)
    assert infos.error_count == 1
    [wrong] = [info for info in infos.configs if info.value.errors]
    assert wrong.definition.name == wrong.value.name == "databse.password"
    assert "geheim" not in repr(infos)
