"""JsonConverter documents: the converter parses the schema part once and recognises it by its bytes."""

from __future__ import annotations

import json
from decimal import Decimal

import msgspec
import pytest

from headrace.core.decode.json_converter import Document, JsonConverter, document_bytes, row_type
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema, schema_from_json

SCHEMA = {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}


def document(payload: object, schema: object = SCHEMA, spaces: bool = False) -> bytes:
    separators = None if spaces else (",", ":")
    return json.dumps({"schema": schema, "payload": payload}, separators=separators).encode()


def test_the_same_schema_is_the_same_object() -> None:
    """The converter returns one schema object, by whose identity a codec is cached."""
    converter = JsonConverter(True)
    first, payload = converter.split(document({"id": 1}))
    second, _ = converter.split(document({"id": 2}))
    assert first is second
    assert payload == b'{"id":1}'


def test_another_layout_is_parsed() -> None:
    """The converter recognises JsonConverter's own layout by its bytes, and parses a document in another layout."""
    schema, payload = JsonConverter(True).split(document({"id": 1}, spaces=True))
    assert schema is not None
    assert json.loads(payload) == {"id": 1}


def test_a_schema_is_one_object_in_another_layout() -> None:
    """The converter returns one object for equal schemas, so that caches by schema do not grow."""
    converter = JsonConverter(True)
    first, _ = converter.split(document({"id": 1}, spaces=True))
    assert all(converter.split(document({"id": number}, spaces=True))[0] is first for number in range(100))


def test_alternating_schemas_are_both_cached() -> None:
    """The converter keeps both schemas of a topic during a schema change."""
    converter = JsonConverter(True)
    other = {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}
    schemas = [converter.split(document({"id": 1}, schema))[0] for schema in (SCHEMA, other, SCHEMA, other)]
    assert schemas[0] is schemas[2]
    assert schemas[1] is schemas[3]


@pytest.mark.parametrize("text", [b'{"id":1}', b'{"schema":{"type":"int32"},"payload":1,"x":1}', b"[]"])
def test_a_document_without_schema_and_payload_is_refused(text: bytes) -> None:
    """The error has the text of Kafka Connect, with the option to set."""
    with pytest.raises(BadRecord, match=r"set schemas\.enable=false"):
        JsonConverter(True).split(text)


def test_a_null_schema_is_schemaless() -> None:
    """The converter reads ``"schema": null`` as no schema, as Kafka Connect does."""
    assert JsonConverter(True).split(document(5, None)) == (None, b"5")


def test_decimals_are_read_in_both_forms() -> None:
    """The codec reads base64 of the unscaled number, and a JSON number without loss of digits."""
    schema = Schema("struct", fields=(Field("d", Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),))),))
    plain = msgspec.json.decode(b'{"d":"BNI="}', type=row_type(schema, ["d"]))
    numeric = msgspec.json.decode(
        b'{"d":12.3400000000000000000001}', type=row_type(schema, ["d"], numeric_decimals=True)
    )
    assert msgspec.structs.astuple(plain) == (b"\x04\xd2",)
    assert msgspec.structs.astuple(numeric) == (Decimal("12.3400000000000000000001"),)


def test_field_names_may_be_anything() -> None:
    """Row types have fields with spaces, dots, keywords and letters of any script in their names."""
    names = ["with space", "a.b", "class", "näme", "1st"]
    schema = Schema("struct", fields=tuple(Field(name, Schema("int32")) for name in names))
    row = msgspec.json.decode(json.dumps(dict.fromkeys(names, 1)).encode(), type=row_type(schema, names))
    assert msgspec.structs.astuple(row) == (1,) * 5


def test_a_divided_document_can_be_restored() -> None:
    """``whole`` restores each byte of a divided document, because a dead letter contains the original."""
    good = b'{"schema":{"type":"string"},"payload":"a"}'
    documents = [
        good,
        good,
        None,
        b'{"payload":"a"}',
        b"{",
        good[:-1],
        good[:-1] + b"]",
        b'{ "schema":null,"payload":1}',
    ]
    divide = JsonConverter(True).divide
    divided = [divide(each) for each in documents]
    assert [document_bytes(each) for each in divided] == documents
    assert [type(each) for each in divided[:2]] == [Document, Document]
    assert divide(good) == divided[0]


def test_without_schemas_a_document_is_not_divided() -> None:
    """A table may have columns with the names schema and payload."""
    plain = b'{"schema":{"type":"string"},"payload":"a"}'
    assert JsonConverter(False).divide(plain) is plain


def test_members_of_nested_structs_may_have_any_name() -> None:
    """A nested struct has a member with a name beyond ASCII, as a column of a database may have."""
    text = b'{"type":"struct","fields":[{"field":"n\xc3\xa4me","type":"string"},{"field":"id","type":"int32"}]}'
    nested = schema_from_json(msgspec.json.decode(text))
    row = row_type(Schema("struct", fields=(Field("place", nested),)), ["place"])
    decoded = msgspec.json.decode('{"place":{"näme":"ö","id":1}}'.encode(), type=row)
    assert msgspec.structs.astuple(decoded) == ({"näme": "ö", "id": 1},)
