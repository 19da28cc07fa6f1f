"""JSON documents whose schema is stored in a registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.converters.json_schema import connect_json_reader, json_schema_reader
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema


def read(schema: Any, document: str, **references: RegisteredSchema) -> SchemaAndValue:
    return json_schema_reader(RegisteredSchema(json.dumps(schema), "JSON", references))(document.encode())


PRICE = {"title": DECIMAL, "connect.version": 1, "connect.type": "bytes", "connect.parameters": {"scale": "2"}}
NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("node", "document", "schema", "value"),
    [
        ({"type": "boolean"}, "true", Schema("boolean"), True),
        ({"type": "integer"}, "5", Schema("int64"), 5),
        ({"type": "integer", "connect.type": "int16"}, "5", Schema("int16"), 5),
        ({"type": "number"}, "5", Schema("double"), 5.0),
        ({"type": "number", "connect.type": "float32"}, "1.5", Schema("float"), 1.5),
        ({"type": "string"}, '"ä"', Schema("string"), "ä"),
        ({"type": "string", "connect.type": "bytes"}, '"AP8="', Schema("bytes"), b"\x00\xff"),
        ({"enum": ["A", "B"]}, '"B"', Schema("string"), "B"),
        ({"oneOf": [NULL, {"type": "integer"}]}, "null", Schema("int64", optional=True), None),
        ({"anyOf": [{"type": "integer"}, NULL]}, "1", Schema("int64", optional=True), 1),
        ({"type": ["null", "string"]}, '"a"', Schema("string", optional=True), "a"),
        ({"type": "array", "items": {"type": "integer"}}, "[1]", Schema("array", items=Schema("int64")), [1]),
        (
            {"type": "object", "connect.type": "map", "additionalProperties": {"type": "integer"}},
            '{"a":1}',
            Schema("map", keys=Schema("string"), values=Schema("int64")),
            {"a": 1},
        ),
        (
            {
                "type": "array",
                "connect.type": "map",
                "items": {"type": "object", "properties": {"key": {"type": "integer"}, "value": {"type": "string"}}},
            },
            '[{"key":1,"value":"a"}]',
            Schema("map", keys=Schema("int64"), values=Schema("string")),
            [(1, "a")],
        ),
        (
            {**PRICE, "type": "number"},
            "12.34",
            Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),)),
            b"\x04\xd2",
        ),
        (
            {**PRICE, "type": "string"},
            '"BNI="',
            Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "2"),)),
            b"\x04\xd2",
        ),
    ],
)
def test_types(node: Any, document: str, schema: Schema, value: Any) -> None:
    """Types are mapped as Confluent's JsonSchemaData maps them; values have their physical representation."""
    data = read(node, document)
    assert data == SchemaAndValue(schema, value)
    assert type(data.value) is type(value)


def test_fields_are_ordered_by_connect_index() -> None:
    """Fields have the order of ``connect.index``.

    References are resolved, and properties without a schema are ignored.
    """
    root = {
        "type": "object",
        "title": "n.Envelope",
        "properties": {
            "b": {"oneOf": [NULL, {"$ref": "#/definitions/Row"}], "connect.index": 1},
            "a": {"type": "integer", "connect.index": 0},
            "c": {"$ref": "part.json", "connect.index": 2},
        },
        "definitions": {"Row": {"type": "object", "title": "n.Row", "properties": {"id": {"type": "integer"}}}},
    }
    part = RegisteredSchema('{"type":"string"}', "JSON")
    data = read(root, '{"c":"x","a":1,"extra":true,"b":{"id":7}}', **{"part.json": part})
    row = Schema("struct", optional=True, name="n.Row", fields=(Field("id", Schema("int64")),))
    assert data.schema == Schema(
        "struct",
        name="n.Envelope",
        fields=(Field("a", Schema("int64")), Field("b", row), Field("c", Schema("string"))),
    )
    assert data.value == {"a": 1, "b": {"id": 7}, "c": "x"}


@pytest.mark.parametrize(
    "node",
    [
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"$ref": "unknown.json"},
        {"type": "object", "connect.type": "map"},
        {"type": "nonsense"},
        [],
    ],
)
def test_unsupported_schemas_are_bad_records(node: Any) -> None:
    """A union of types, a recursive schema, an unknown reference and an invalid schema raise BadRecord."""
    with pytest.raises(BadRecord):
        read(node, "1")


@pytest.mark.parametrize(
    ("node", "document"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "true"),
        ({"type": "integer"}, "null"),
        ({"type": "string"}, "123"),
        ({"type": "string", "connect.type": "bytes"}, '"no base64!"'),
        ({"type": "object", "properties": {}}, "[]"),
        ({"type": "number"}, '"123"'),
        ({"type": "integer"}, "{"),
    ],
)
def test_documents_that_do_not_match_the_schema(node: Any, document: str) -> None:
    """A document that does not match its schema raises BadRecord, whose message does not contain the document."""
    with pytest.raises(BadRecord, match="match its JSON Schema") as caught:
        read(node, document)
    assert document not in str(caught.value) or document == "{"


def test_a_schema_of_another_format_is_a_bad_record() -> None:
    """The JSON Schema reader raises BadRecord for an Avro schema."""
    with pytest.raises(BadRecord, match="AVRO"):
        json_schema_reader(RegisteredSchema("{}", "AVRO"))


def test_connects_own_schemas() -> None:
    """The schema that ExtJsonConverter registers is read as the schema that JsonConverter writes into each document."""
    schema = '{"type":"struct","fields":[{"type":"int32","field":"id"}],"optional":false,"name":"t.Key"}'
    read = connect_json_reader(RegisteredSchema(schema, "KCONNECT"))
    one, other = read(b'{"id":1}'), read(b'{"id":2}')
    assert (one.value, other.value) == ({"id": 1}, {"id": 2})
    assert one.schema == Schema("struct", name="t.Key", fields=(Field("id", Schema("int32")),))
    assert one.schema is other.schema
    with pytest.raises(BadRecord):
        read(b'{"id":"x"}')
