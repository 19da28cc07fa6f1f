"""Validation of the options of reselect, its caches and databases, and of converters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.reselect import reselect_options, with_current_passwords
from headrace.config.validation import WorkerDefaults, sink_connector_config, validate

JSON = "org.apache.kafka.connect.json.JsonConverter"
DEFAULTS = WorkerDefaults(
    {"key.converter": JSON, "value.converter": JSON, "value.converter.schemas.enable": "false"}, "1.0", "cluster"
)
MINIMAL = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}


def _errors(**changes: str | None) -> dict[str, tuple[str, ...]]:
    given: dict[str, str | None] = {**MINIMAL, **{name.replace("__", "."): value for name, value in changes.items()}}
    infos = validate(given, DEFAULTS).configs
    return {info.definition.name: info.value.errors for info in infos if info.value.errors}


def test_reselect_options_have_no_prefix_or_one_of_two() -> None:
    """Validation accepts the options of reselect under the prefixes of Debezium's post processors."""
    long = {"post.processors": "r", "post.processors.r.type": "ReselectColumns"}
    for prefix in ("", "post.processors.r.", "r."):
        assert _errors(**long, **{f"{prefix}reselect.cache.max.size": "x"})
        assert not _errors(**long, **{f"{prefix}reselect.cache.max.size": "5"})
    twice = {"r.reselect.cache.enabled": "true", "reselect.cache.enabled": "true"}
    assert "is set twice" in _errors(**long, **twice)["r.reselect.cache.enabled"][0]
    misspelt = "post.processors.r.reselect.cache.enable"
    assert "Did you mean" in _errors(**long, **{misspelt: "true"})[misspelt][0]


def test_a_database_needs_user_and_name() -> None:
    """Validation refuses a database with a hostname only."""
    assert list(_errors(reselect__database__hostname="db")) == ["reselect.database.user", "reselect.database.dbname"]


def test_a_cache_on_disk_needs_a_path() -> None:
    """A path is required for RocksDB; options of another plug-in are accepted only if the cache type names it."""
    path = "reselect.cache.rocksdb.path"
    assert list(_errors(reselect__cache__type="rocksdb")) == [path]
    assert not _errors(reselect__cache__type="rocksdb", **{path: "/var/cache/headrace"})
    assert not _errors(reselect__cache__type="redis", reselect__cache__redis__host="cache")
    assert list(_errors(reselect__cache__redis__host="cache")) == ["reselect.cache.redis.host"]


def test_the_default_options_are_those_that_reselect_reads() -> None:
    """The defaults that validation shows are those of the post processor."""
    shown = {key.name: key.default_text for key in CONNECTOR_OPTIONS.keys if key.default_text}
    assert reselect_options(shown) == reselect_options({})


@pytest.mark.parametrize("prefix", ["", "post.processors.r."])
def test_named_databases_have_options_of_their_own(prefix: str) -> None:
    """Validation checks options with a database's name, with and without a prefix, and refuses misspelt ones."""
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


def test_converter_options_come_with_the_converter() -> None:
    """The worker's options do not apply to a converter that the connector names."""
    inherited = sink_connector_config(MINIMAL, DEFAULTS)
    own = sink_connector_config({**MINIMAL, "value.converter": JSON}, DEFAULTS)
    assert not inherited.schemas_enabled("value")
    assert own.schemas_enabled("value")


def test_a_registry_that_a_connector_names_gets_no_credentials_of_the_worker() -> None:
    """The options of a converter come all from the worker or all from the connector."""
    avro, url = "io.confluent.connect.avro.AvroConverter", "value.converter.schema.registry.url"
    worker = {"value.converter": avro, url: "http://worker", "value.converter.basic.auth.user.info": "u:p"}
    defaults = replace(DEFAULTS, converters={**DEFAULTS.converters, **worker})
    only_address = sink_connector_config({**MINIMAL, url: "http://evil"}, defaults)
    assert only_address.converters["value"]["schema.registry.url"] == "http://worker"
    own = sink_connector_config({**MINIMAL, "value.converter": avro, url: "http://evil"}, defaults)
    assert own.converters["value"] == {"schema.registry.url": "http://evil"}


def test_options_of_converters_of_primitives() -> None:
    """Validation checks ``converter.encoding``, and accepts the deserializer's options without a list of them."""
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
        (AVRO, "schema.registry.ssl.provider schema.registry.ssl.keymanager.algorithm"),
        (AVRO, "bearer.auth.logical.cluster bearer.auth.identity.pool.id"),
        (APICURIO, "schemas.enable apicurio.registry.converter.serializer"),
    ],
)
def test_common_options_of_other_converters_are_accepted(converter: str, options: str) -> None:
    """Kafka Connect passes all options to each converter, which reads its own."""
    given = {"value.converter": converter, **{f"value.converter.{name}": "1" for name in options.split()}}
    if converter == AVRO:
        given["value.converter.schema.registry.url"] = "http://registry"
    if converter == APICURIO:
        given["value.converter.apicurio.registry.url"] = "http://registry"
    assert _errors(**given) == {}


def test_an_unknown_option_of_a_converter_is_refused_with_one_that_is_known() -> None:
    """The error suggests a known option, and no other unknown one."""
    wrong = {"value.converter.schema.enabled": "true", "value.converter.schema.enable": "true"}
    found = _errors(**{"value.converter": JSON, **wrong})
    assert found.keys() == wrong.keys()
    for (message,) in found.values():
        assert "Did you mean 'value.converter.schemas.enable'" in message
        assert not any(f"{name}'" in message.partition(". Did")[2] for name in wrong)


def test_tls_mode_in_capitals_is_the_same() -> None:
    """The mode decides whether certificates are verified, so its spelling must not."""
    given = {"hostname": "db", "user": "u", "dbname": "d", "sslmode": "VERIFY-CA"}
    database = reselect_options({f"reselect.database.{name}": value for name, value in given.items()}).database
    assert database is not None
    assert database.sslmode == "verify-ca"


@pytest.mark.parametrize("prefix", ["reselect.database.", "reselect.database.first."])
def test_passwords_are_read_again_for_each_database(prefix: str) -> None:
    """A database's own password comes before that of all databases."""
    given: dict[str, str | None] = {
        "reselect.databases": "first,second",
        "reselect.database.hostname": "db",
        "reselect.database.user": "u",
        "reselect.database.dbname": "d",
        "reselect.database.password": "common",
    }
    current = dict(given)
    first, second = with_current_passwords(reselect_options(given), lambda: current).databases
    current[f"{prefix}password"] = "changed"
    assert first.current_password() == "changed"
    assert second.current_password() == ("changed" if prefix == "reselect.database." else "common")
