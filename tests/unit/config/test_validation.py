"""Validation of connector configurations: Connect's sentences and counts, and our own refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.connector import CONNECTOR_OPTIONS, LATER
from headrace.config.overrides import OverridePolicy
from headrace.config.reselect import reselect_options
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
    """Name, class and topics are enough."""
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
        ("key.converter", "no.Such", ("Invalid value no.Such for configuration key.converter: Class no.Such could not "
                                      "be found.",)),
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
def test_sentences_are_kafkas(option: str, value: str, messages: tuple[str, ...] | None) -> None:
    """Consoles show them and people search for them (``connect.md`` section 4.2)."""
    found = _errors(**{"value.converter": "JsonConverter", option: value})
    assert list(found) == [option]
    assert messages is None or found[option] == messages


def test_named_groups_are_spelled_as_in_java() -> None:
    """``(?<table>..)`` in a pattern of topics and in a transform, whose replacement refers to it."""
    router = {"type": "RegexRouter", "regex": r"(?<db>[^.]+)\.(?<table>.*)", "replacement": "${table}"}
    transforms = {f"transforms.t.{key}": value for key, value in router.items()}
    topics = {"topics": None, "topics.regex": r"(?<db>shop)\..*"}
    given = {**MINIMAL, "transforms": "t", **transforms, **topics}
    given = {name: value for name, value in given.items() if value is not None}
    assert not [info.value.errors for info in validate(given, DEFAULTS).configs if info.value.errors]
    assert sink_connector_config(given, DEFAULTS).framework.topics.pattern == r"(?P<db>shop)\..*"


def test_trimmed_and_case_blind_values_are_valid() -> None:
    """As in Kafka's parser."""
    infos = {info.value.name: info.value.value for info in validate({**MINIMAL, "tasks.max": " 2 "}, DEFAULTS).configs}
    assert infos["tasks.max"] == "2"
    assert _errors(errors__log__enable="TRUE") == {}


def test_tasks_get_values_without_the_blanks_around_them() -> None:
    """Kafka trims what it parses: a group or topic with a blank in its name would be another one."""
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
    as_it_is = {"table.properties.write.separator": " "}
    assert sink_connector_config({**given, **as_it_is}, DEFAULTS).tables.properties == {"write.separator": " "}


def test_the_policy_holds_for_the_client_that_asks_for_offsets() -> None:
    """It has ``admin.override.*`` with and without a dead letter queue."""
    defaults = replace(DEFAULTS, overrides=OverridePolicy.of("None", ()))
    assert validate({**MINIMAL, "admin.override.bootstrap.servers": "far:1"}, defaults).errors() == [
        "The 'None' policy does not allow 'bootstrap.servers' to be overridden in the connector configuration."
    ]


def test_the_policy_is_for_clients_that_a_connector_has() -> None:
    """The producer is that of a dead letter queue; without one Connect does not look at it either."""
    defaults = replace(DEFAULTS, overrides=OverridePolicy.of("None", ()))
    option, queue = "producer.override.linger.ms", {"errors.deadletterqueue.topic.name": "dead"}
    assert not validate({**MINIMAL, option: "5"}, defaults).error_count
    assert validate({**MINIMAL, option: "5", **queue}, defaults).errors() == [
        "The 'None' policy does not allow 'linger.ms' to be overridden in the connector configuration."
    ]


def test_a_connector_may_not_join_the_group_of_the_workers() -> None:
    """With its own group the name is at fault; one that it names elsewhere is free."""
    defaults = replace(DEFAULTS, group_id="connect-shop")
    assert validate(MINIMAL, defaults).errors() == [
        "Consumer group for sink connector named shop conflicts with Connect worker group connect-shop"
    ]
    assert not validate({**MINIMAL, "consumer.override.group.id": "g"}, defaults).error_count


def test_blanks_hide_nothing_from_the_checks() -> None:
    """What a task gets is what is checked."""
    assert list(_errors(insert__mode=" insert ", delete__mode=" soft ")) == ["delete.mode"]
    assert list(_errors(consumer__override__group__id=" cluster ")) == ["consumer.override.group.id"]
    routed = {"transforms": "t", "transforms.t.type": " RegexRouter ", "transforms.t.regex": "a"}
    assert _errors(**routed, **{"transforms.t.replacement": "b"}) == {}


def test_topics_and_pattern_exclude_each_other() -> None:
    """An error on both keys, so the count is two."""
    assert list(_errors(topics="")) == ["topics", "topics.regex"]
    assert list(_errors(topics__regex="a.*")) == ["topics", "topics.regex"]


def test_the_dead_letter_topic_is_not_read() -> None:
    """It would feed itself."""
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
def test_what_a_task_could_not_read(option: str, value: str, words: str) -> None:
    """Layouts, columns and metadata are read when a connector is made, not when its first table is."""
    assert words in _errors(**{"field.include.list": "a", option: value})[option][0]


def test_a_history_marks_nothing() -> None:
    """delete.mode and insert.mode, where they exclude each other."""
    assert "a row of its own" in _errors(insert__mode="insert", delete__mode="soft")["delete.mode"][0]
    assert _errors(insert__mode="insert") == _errors(delete__mode="soft") == {}


@pytest.mark.parametrize("namespace", ["../../etc", "/etc", "a/b", "..", "a\\b"])
def test_a_namespace_stays_in_the_warehouse(namespace: str) -> None:
    """It is one folder."""
    errors = _errors(table__namespace=namespace)
    assert list(errors) == ["table.namespace"]
    assert errors["table.namespace"][0].startswith(f"Invalid value {namespace} for configuration table.namespace: the")


@pytest.mark.parametrize("form", ["../${topic}", "${source.tabel}"])
def test_the_format_of_table_names_is_checked(form: str) -> None:
    """When the connector is created, not when its task starts."""
    assert list(_errors(collection__name__format=form)) == ["collection.name.format"]


@pytest.mark.parametrize(
    ("value", "refused"), [("/data/lake/x", False), ("file:/data/lake/x", False), ("/etc", True), ("s3://b/x", True)]
)
def test_files_of_a_table_stay_in_the_warehouse(value: str, refused: bool) -> None:
    """The error stands at the property."""
    name = "table.properties.write.data.path"
    infos = validate({**MINIMAL, name: value}, replace(DEFAULTS, warehouse="/data/lake"))
    errors = {info.definition.name for info in infos.configs if info.value.errors}
    assert errors == ({name} if refused else set())


def test_table_properties_are_free() -> None:
    """They are the format's own, and get to the tables without their prefix."""
    name = "table.properties.write.parquet.compression-codec"
    assert _errors(**{name: "zstd"}) == {}
    config = sink_connector_config({**MINIMAL, name: "zstd"}, DEFAULTS)
    assert config.tables.properties == {"write.parquet.compression-codec": "zstd"}


@pytest.mark.parametrize("option", LATER)
def test_keys_of_later_releases_are_refused_with_the_reason(option: str) -> None:
    """Never silently accepted."""
    assert "later release" in _errors(**{option: "x"})[option][0]


@pytest.mark.parametrize("option", ["reselect.error.handling.mode", "reselect.unresolved.insert.mode"])
def test_dead_letters_need_a_queue(option: str) -> None:
    """And tolerance; a history has no rows to complete."""
    queue = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "bad"}
    assert _errors(**{option: "dlq"}, **queue) == {}
    for lacking in queue:
        given = {name: value for name, value in queue.items() if name != lacking}
        assert "errors.tolerance=all and errors.dead" in _errors(**{option: "DLQ"}, **given)[option][0]
    assert "a history" in _errors(**{option: "dlq", "insert.mode": "insert"}, **queue)[option][0]


def test_reselect_options_stand_bare_or_under_either_prefix() -> None:
    """Debezium's configuration can be taken over."""
    long = {"post.processors": "r", "post.processors.r.type": "ReselectColumns"}
    for prefix in ("", "post.processors.r.", "r."):
        assert _errors(**long, **{f"{prefix}reselect.cache.max.size": "x"})
        assert not _errors(**long, **{f"{prefix}reselect.cache.max.size": "5"})
    twice = {"r.reselect.cache.enabled": "true", "reselect.cache.enabled": "true"}
    assert "is set twice" in _errors(**long, **twice)["r.reselect.cache.enabled"][0]
    misspelt = "post.processors.r.reselect.cache.enable"
    assert "Did you mean" in _errors(**long, **{misspelt: "true"})[misspelt][0]


def test_a_database_needs_user_and_name() -> None:
    """A half-configured database is a mistake."""
    assert list(_errors(reselect__database__hostname="db")) == ["reselect.database.user", "reselect.database.dbname"]


def test_a_cache_on_disk_needs_a_path() -> None:
    """And another plug-in's options are its own; those of a cache that nobody chose are misspelt."""
    path = "reselect.cache.rocksdb.path"
    assert list(_errors(reselect__cache__type="rocksdb")) == [path]
    assert not _errors(reselect__cache__type="rocksdb", **{path: "/var/cache/headrace"})
    assert not _errors(reselect__cache__type="redis", reselect__cache__redis__host="cache")
    assert list(_errors(reselect__cache__redis__host="cache")) == ["reselect.cache.redis.host"]


def test_the_default_options_are_those_that_reselect_reads() -> None:
    """One list of defaults: what validation shows is what the post processor takes."""
    shown = {key.name: key.default_text for key in CONNECTOR_OPTIONS.keys if key.default_text}
    assert reselect_options(shown) == reselect_options({})


def test_converter_options_come_from_where_the_converter_is_named() -> None:
    """The worker's do not count for a connector that names its own converter."""
    inherited = sink_connector_config(MINIMAL, DEFAULTS)
    own = sink_connector_config({**MINIMAL, "value.converter": JSON}, DEFAULTS)
    assert not inherited.schemas_enabled("value")
    assert own.schemas_enabled("value")


def test_a_registry_that_a_connector_names_gets_no_credentials_of_the_worker() -> None:
    """A converter's options come from one side completely, so that an address never meets another side's password."""
    avro, url = "io.confluent.connect.avro.AvroConverter", "value.converter.schema.registry.url"
    worker = {"value.converter": avro, url: "http://worker", "value.converter.basic.auth.user.info": "u:p"}
    defaults = replace(DEFAULTS, converters={**DEFAULTS.converters, **worker})
    only_address = sink_connector_config({**MINIMAL, url: "http://evil"}, defaults)
    assert only_address.converters["value"]["schema.registry.url"] == "http://worker"
    own = sink_connector_config({**MINIMAL, "value.converter": avro, url: "http://evil"}, defaults)
    assert own.converters["value"] == {"schema.registry.url": "http://evil"}


def test_the_definitions_list_the_connectors_own_options_first() -> None:
    """As GET /connector-plugins/{p}/config does."""
    names = connector_definitions(DEFAULTS).names()
    assert names.index("table.namespace") < names.index("name")
    assert len(names) == len(set(names))


def test_every_error_has_a_definition_and_secrets_stay_hidden() -> None:
    """kcctl crashes on a missing definition; consoles log what they get."""
    infos = validate({**MINIMAL, "databse.password": "geheim"}, DEFAULTS)
    assert infos.error_count == 1
    assert "geheim" not in repr(infos)


@pytest.mark.parametrize("prefix", ["", "post.processors.r."])
def test_named_databases_have_options_of_their_own(prefix: str) -> None:
    """Under their names, bare or behind a post processor's prefix; what is misspelt there is unknown as anywhere."""
    given = {
        **MINIMAL,
        "post.processors": "r",
        "post.processors.r.type": "ReselectColumns",
        f"{prefix}reselect.databases": "crm",
        f"{prefix}reselect.database.user": "reader",
        f"{prefix}reselect.database.crm.hostname": "db",
        f"{prefix}reselect.database.crm.dbname": "crm",
        f"{prefix}reselect.database.crm.source.name": "eu",
    }
    assert not [info for info in validate(given, DEFAULTS).configs if info.value.errors]
    wrong = {**given, f"{prefix}reselect.database.crm.hostnam": "x", f"{prefix}reselect.database.crm.port": "x"}
    names = {info.definition.name for info in validate(wrong, DEFAULTS).configs if info.value.errors}
    assert names == {"reselect.database.crm.hostnam", "reselect.database.crm.port"}
    del given[f"{prefix}reselect.database.user"]
    assert "reselect.database.crm.user" in {
        i.definition.name for i in validate(given, DEFAULTS).configs if i.value.errors
    }


def test_converters_of_single_values_are_known_with_their_options() -> None:
    """By class or alias; an encoding has to exist, the deserializer's is taken without being listed."""
    string = "org.apache.kafka.connect.storage.StringConverter"
    given = {**MINIMAL, "key.converter": "String", "key.converter.deserializer.encoding": "UTF-16"}
    assert validate(given, DEFAULTS).error_count == 0
    assert sink_connector_config(given, DEFAULTS).converter_classes["key"] == string
    wrong = validate({**MINIMAL, "key.converter": string, "key.converter.converter.encoding": "UTF-9"}, DEFAULTS)
    assert [info.value.errors for info in wrong.configs if info.value.errors] == [
        ("Invalid value UTF-9 for configuration key.converter.converter.encoding: Encoding UTF-9 not found.",)
    ]
    assert validate({**MINIMAL, "value.converter.deserializer.encoding": "x"}, DEFAULTS).error_count == 0
    assert validate({**MINIMAL, "value.converter": JSON, "value.converter.encodings": "x"}, DEFAULTS).error_count


AVRO = "io.confluent.connect.avro.AvroConverter"
APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"


@pytest.mark.parametrize(
    ("converter", "options"),
    [
        ("org.apache.kafka.connect.storage.StringConverter", "schemas.enable"),
        (AVRO, "schemas.enable id.compatibility.strict proxy.host proxy.port"),
        (AVRO, "schema.registry.ssl.protocol schema.registry.ssl.enabled.protocols"),
        (AVRO, "bearer.auth.logical.cluster bearer.auth.identity.pool.id"),
        (APICURIO, "schemas.enable apicurio.registry.converter.serializer"),
    ],
)
def test_options_that_stand_beside_converters_everywhere_are_taken(converter: str, options: str) -> None:
    """Those of other converters too: Kafka Connect lets each pick its own."""
    given = {"value.converter": converter, **{f"value.converter.{name}": "1" for name in options.split()}}
    if converter == AVRO:
        given["value.converter.schema.registry.url"] = "http://registry"
    if converter == APICURIO:
        given["value.converter.apicurio.registry.url"] = "http://registry"
    assert _errors(**given) == {}


def test_an_unknown_option_of_a_converter_is_refused_with_one_that_is_known() -> None:
    """Whatever other unknown ones stand beside it."""
    wrong = {"value.converter.schema.enabled": "true", "value.converter.schema.enable": "true"}
    found = _errors(**{"value.converter": JSON, **wrong})
    assert found.keys() == wrong.keys()
    for (message,) in found.values():
        assert "Did you mean 'value.converter.schemas.enable'" in message
        assert not any(f"{name}'" in message.partition(". Did")[2] for name in wrong)


def test_keys_in_place_are_refused_with_the_reason() -> None:
    """They are secrets, which the message does not show."""
    registry = {"value.converter": AVRO, "value.converter.schema.registry.url": "https://registry"}
    name = "value.converter.schema.registry.ssl.keystore.key"
    [(message,)] = _errors(**registry, **{name: "-----BEGIN"}).values()
    assert "keystore.location" in message
    assert "BEGIN" not in message
