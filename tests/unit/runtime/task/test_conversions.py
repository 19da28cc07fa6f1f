"""Tests of the converters that a connector's configuration produces."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headrace.config.validation import WorkerDefaults, sink_connector_config, validate
from headrace.converters.conversion import Converter, Headers
from headrace.converters.registered import RegisteredSchema, SchemaId
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, ConfigError, Stage
from headrace.core.model.schema import Schema
from headrace.runtime.task.chunk_decoder import SchemaMissing
from headrace.runtime.task.conversions import converter_classes, no_registries, open_conversion
from headrace_connectors.registry import ApicurioRegistry, ConfluentRegistry

JSON = "org.apache.kafka.connect.json.JsonConverter"
CONFLUENT = "io.confluent.connect.avro.AvroConverter"
APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"
MINIMAL = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
DEFAULTS = WorkerDefaults({}, "1.0")
GUID = "guid 00000000-0000-0000-0000-000000000007"


class Registry:
    """A registry that returns one schema for every id."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self.name, self.options = name, options
        self.requests: list[SchemaId] = []

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        self.requests.append(schema_id)
        return RegisteredSchema('"int"')


def read(converter: Converter, document: bytes, headers: Headers = ()) -> SchemaAndValue:
    """Return the data of a document, and fetch a missing schema as a task does."""
    try:
        return converter.to_connect_data(document, headers)
    except SchemaMissing as missing:
        missing.fetch()
        return converter.to_connect_data(document, headers)


def test_json_needs_no_conversion() -> None:
    """JsonConverter needs no conversion, because the decoder reads the bytes itself."""
    assert not open_conversion(sink_connector_config(MINIMAL, DEFAULTS), no_registries)


def test_a_schema_in_the_connector_configuration() -> None:
    """With ``schema.content`` documents are payloads. It is validated, and ignored with ``schemas.enable=false``."""
    given = {**MINIMAL, "value.converter": JSON, "value.converter.schema.content": '{"type":"int32"}'}
    conversion = open_conversion(sink_connector_config(given, DEFAULTS), no_registries)
    assert conversion.value is not None
    assert read(conversion.value, b" 5 ") == SchemaAndValue(Schema("int32"), 5)
    with pytest.raises(BadRecord):
        read(conversion.value, b'"five"')
    without = {**given, "value.converter.schemas.enable": "false"}
    assert not open_conversion(sink_connector_config(without, DEFAULTS), no_registries)
    wrong = validate({**given, "value.converter.schema.content": '{"type":"integer"}'}, DEFAULTS)
    assert [info.value.name for info in wrong.configs if info.value.errors] == ["value.converter.schema.content"]


@pytest.mark.parametrize(
    ("name", "url", "document", "requests"),
    [
        (CONFLUENT, {"schema.registry.url": "http://r"}, b"\0\0\0\0\7\x04", "id 7"),
        (APICURIO, {"apicurio.registry.url": "http://r"}, b"\0" + bytes(7) + b"\7\x04", "globalId 7"),
        (
            APICURIO,
            {"apicurio.registry.url": "http://r", "apicurio.registry.use-id": "contentId"},
            b"\0" + bytes(7) + b"\7\x04",
            "contentId 7",
        ),
    ],
)
def test_avro_converters(name: str, url: dict[str, str], document: bytes, requests: str) -> None:
    """Key and value have separate converters and registry options. A connector inherits those of the worker."""
    options = {f"value.converter.{option}": value for option, value in url.items()}
    given = {**MINIMAL, "value.converter": name, **options}
    assert [info.value.errors for info in validate(given, DEFAULTS).configs if info.value.errors] == []
    inherited = WorkerDefaults({"value.converter": name, **options}, "1.0")
    for config in (sink_connector_config(given, DEFAULTS), sink_connector_config(MINIMAL, inherited)):
        registries: list[Registry] = []

        def opened(kind: str, options: Mapping[str, str], into: list[Registry] = registries) -> Registry:
            into.append(Registry(kind, options))
            return into[-1]

        conversion = open_conversion(config, opened)
        assert conversion.key is None
        assert conversion.value is not None
        assert read(conversion.value, document) == SchemaAndValue(Schema("int32"), 2)
        (registry,) = registries
        assert registry.name == ("apicurio" if name == APICURIO else "confluent")
        assert list(map(str, registry.requests)) == [requests]
        assert {option: registry.options[option] for option in url} == url
        assert converter_classes(config)[Stage.VALUE_CONVERTER] == name


@pytest.mark.parametrize(
    ("strategy", "requests"),
    [
        ("", ["id 7 of subject a-value", "id 7 of subject b-value", GUID]),
        ("TopicNameStrategy", ["id 7 of subject a-value", "id 7 of subject b-value", GUID]),
        ("TopicNameStrategy ", ["id 7 of subject a-value", "id 7 of subject b-value", GUID]),
        ("TopicRecordNameStrategy", ["id 7", GUID]),
        ("RecordNameStrategy", ["id 7", GUID]),
    ],
)
def test_a_topic_names_the_subject_of_its_schemas(strategy: str, requests: list[str]) -> None:
    """The registry is queried once per topic for an id, which is valid in a subject's context, and once for a GUID."""
    given = {**MINIMAL, "value.converter": CONFLUENT, "value.converter.schema.registry.url": "http://r"}
    if strategy:
        given["value.converter.value.subject.name.strategy"] = f"io.confluent.kafka.serializers.subject.{strategy}"
    registry = Registry("", {})
    inherited = WorkerDefaults({name: text for name, text in given.items() if name.startswith("value.")}, "1.0")
    conversion = open_conversion(sink_connector_config(MINIMAL, inherited), lambda kind, options: registry)
    topics = [conversion.of_topic(topic) for topic in ("a", "b")]
    for document in (b"\0\0\0\0\7\x04", b"\0\0\0\0\7\x04", b"\1" + bytes(15) + b"\7\x04"):
        for each in topics:
            assert each.value is not None
            assert read(each.value, document).value == 2
    assert list(map(str, registry.requests)) == requests


@pytest.mark.parametrize(
    ("name", "option", "document"),
    [
        ("io.confluent.connect.json.JsonSchemaConverter", "schema.registry.url", b"\0\0\0\0\7"),
        ("io.apicurio.registry.utils.converter.ExtJsonConverter", "apicurio.registry.url", b"\0" + bytes(7) + b"\7"),
    ],
)
def test_json_with_schemas_in_a_registry(name: str, option: str, document: bytes) -> None:
    """Confluent's converter reads JSON Schema from the registry, Apicurio's reads a Kafka Connect schema."""

    class Json:
        def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
            own = '{"type":"int32"}' if "Ext" in name else '{"type":"integer","connect.type":"int32"}'
            return RegisteredSchema(own, "JSON")

    config = sink_connector_config({**MINIMAL, "key.converter": name, f"key.converter.{option}": "http://r"}, DEFAULTS)
    conversion = open_conversion(config, lambda kind, options: Json())
    assert conversion.key is not None
    assert read(conversion.key, document + b"2") == SchemaAndValue(Schema("int32"), 2)


@pytest.mark.parametrize(
    ("version", "use_id", "requests"),
    [("v2", "", "globalId 7"), ("v3", "", "contentId 7"), ("v2", "contentId", "contentId 7")],
)
def test_documents_of_apicurios_json_converter(version: str, use_id: str, requests: str) -> None:
    """One object has the id and the payload. ``use-id``, or else the API version, determines the type of the id."""

    class Json(Registry):
        def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
            self.requests.append(schema_id)
            return RegisteredSchema('{"type":"struct","fields":[{"type":"int32","field":"id"}]}')

    given = {**MINIMAL, "value.converter": "io.apicurio.registry.utils.converter.ExtJsonConverter"}
    given["value.converter.apicurio.registry.url"] = f"http://r/apis/registry/{version}"
    if use_id:
        given["value.converter.apicurio.registry.use-id"] = use_id
    registry = Json("", {})
    conversion = open_conversion(sink_connector_config(given, DEFAULTS), lambda kind, options: registry)
    assert conversion.value is not None
    for number in (1, 2):
        document = b'{"schemaId":7,"payload":{"id":%d}}' % number
        assert read(conversion.value, document).value == {"id": number}
    assert list(map(str, registry.requests)) == [requests]
    for wrong in (b'{"payload":{}}', b"{", b'{"schemaId":"x","payload":{}}'):
        with pytest.raises(BadRecord, match="schemaId"):
            read(conversion.value, wrong)


class Protobuf:
    """A registry that returns one Protobuf schema for every id."""

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        return RegisteredSchema('syntax = "proto3"; package n; message M { E e = 1; enum E { A = 0; } }', "PROTOBUF")


def test_protobuf_by_its_options() -> None:
    """Confluent's options determine the names of schemas and the type of enums. Unsupported options are refused."""
    given = {
        **MINIMAL,
        "value.converter": "io.confluent.connect.protobuf.ProtobufConverter",
        "value.converter.schema.registry.url": "http://r",
        "value.converter.enhanced.protobuf.schema.support": "true",
        "value.converter.int.for.enums": "true",
    }
    conversion = open_conversion(sink_connector_config(given, DEFAULTS), lambda kind, options: Protobuf())
    assert conversion.value is not None
    data = read(conversion.value, b"\0\0\0\0\7\0")
    assert data.schema is not None
    assert (data.schema.name, data.value) == ("n.M", {"e": 0})
    wrong = validate({**given, "value.converter.generate.struct.for.nulls": "true"}, DEFAULTS)
    [refused] = [info.value for info in wrong.configs if info.value.errors]
    assert refused.name == "value.converter.generate.struct.for.nulls"


def test_protobuf_of_apicurio() -> None:
    """The document or a header contains the name of the Protobuf message."""
    given = {
        **MINIMAL,
        "value.converter": "io.apicurio.registry.utils.converter.ProtobufConverter",
        "value.converter.apicurio.registry.url": "http://r",
    }
    conversion = open_conversion(sink_connector_config(given, DEFAULTS), lambda kind, options: Protobuf())
    assert conversion.value is not None
    header = (("apicurio.value.globalId", bytes(7) + b"\7"), ("apicurio.protobuf.type", b"M"))
    for document, headers in ((b"\0" + bytes(7) + b"\7\3\x0a\1M", ()), (b"", header)):
        assert read(conversion.value, document, headers).value == {"e": "A"}


def test_a_class_that_names_contexts_is_refused() -> None:
    """A context name strategy is refused with an alternative, except the default NullContextNameStrategy."""
    option = "value.converter.context.name.strategy"
    given = {**MINIMAL, "value.converter": CONFLUENT, "value.converter.schema.registry.url": "http://r"}
    contexts = "io.confluent.kafka.serializers.context.NullContextNameStrategy"
    for name, messages in ((contexts, []), ("com.example.ByTenant", ["…/contexts/.eu"])):
        wrong = [info.value for info in validate({**given, option: name}, DEFAULTS).configs if info.value.errors]
        assert [each.name for each in wrong] == [option] * len(messages)
        assert all(text in each.errors[0] for each, text in zip(wrong, messages, strict=True))


def test_a_registry_needs_a_url() -> None:
    """Validation reports the missing URL of a registry at its option, before a client is opened."""
    given = {**MINIMAL, "value.converter": CONFLUENT, "value.converter.auto.register.schemas": "false"}
    wrong = {info.value.name: info.value.errors for info in validate(given, DEFAULTS).configs if info.value.errors}
    assert list(wrong) == ["value.converter.schema.registry.url"]
    for client in (ConfluentRegistry, ApicurioRegistry):
        with pytest.raises(ConfigError, match=r"registry\.url"):
            client({})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("schema.registry.ssl.engine.factory.class", "x.Y"),
        ("basic.auth.credentials.source", "SASL_INHERIT"),
        ("bearer.auth.credentials.source", "CUSTOM"),
        ("schema.registry.no.such", "x"),
    ],
)
def test_unsupported_registry_options_are_refused(option: str, value: str) -> None:
    """Validation reports an unsupported option by its name."""
    key = f"value.converter.{option}"
    given = {**MINIMAL, "value.converter": CONFLUENT, "value.converter.schema.registry.url": "http://r", key: value}
    infos = validate(given, DEFAULTS)
    wrong = {info.value.name: info.value.errors for info in infos.configs if info.value.errors}
    assert list(wrong) == [key]
