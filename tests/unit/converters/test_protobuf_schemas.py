"""Protobuf schemas: the message type of a document, imports and syntax."""

from __future__ import annotations

import base64

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from support.records.protobuf_messages import message, registered, varint

from headrace.converters.protobuf import named_protobuf_reader, protobuf_reader
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.errors import BadRecord

NESTED = """
syntax = "proto3";
package n;
/* comments */
message A {
  map<string, string> m = 1; // whose entry type has no message index
  message B { message C { int32 c = 1; } }
  message D { int32 d = 1; }
}
message E { reserved 2, 4 to 6; int32 e = 1 [json_name = "x", packed = false]; }
service S { rpc Call (A) returns (stream E) { option deprecated = true; } }
"""


@pytest.mark.parametrize(
    ("indexes", "name"),
    [
        (b"\0", "A"),
        (b"\x02\x00", "A"),
        (b"\x02\x02", "E"),
        (b"\x04\x00\x00", "B"),
        (b"\x04\x00\x02", "D"),
        (b"\x06\x00\x00\x00", "C"),
    ],
)
def test_message_indexes_select_the_message_type(indexes: bytes, name: str) -> None:
    """Message indexes are a count and the indexes from the outermost type; a single zero is the first type."""
    data = protobuf_reader(registered(NESTED))(indexes)
    assert data.schema is not None
    assert data.schema.name == name


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_unknown_message_indexes_are_bad_records(indexes: list[int]) -> None:
    """Message indexes as Confluent's client encodes them select their type, and unknown ones raise BadRecord."""
    written = b"".join(varint(number << 1) for number in (len(indexes), *indexes))
    defined = {(0,): "A", (1,): "E", (0, 0): "B", (0, 1): "D", (0, 0, 0): "C"}
    read = protobuf_reader(registered(NESTED))
    if tuple(indexes) in defined:
        schema = read(written).schema
        assert schema is not None
        assert schema.name == defined[tuple(indexes)]
    else:
        with pytest.raises(BadRecord, match="is not in its Protobuf schema"):
            read(written)


def test_apicurios_ref_message_selects_the_message_type() -> None:
    """Apicurio's Ref message before the document contains the name of its type."""
    read = named_protobuf_reader(registered(NESTED))
    data = read(b"\x03\x0a\x01E" + b"\x08\x05")
    assert data.schema is not None
    assert (data.schema.name, data.value) == ("E", {"e": 5})
    for document in (b"", b"\x03\x0a\x01X", b"\x08\x05", b"\x05\x0a", b"\xff"):
        with pytest.raises(BadRecord):
            read(document)


def test_imports() -> None:
    """Imports are resolved from references and their references; two files may import the same one."""
    part = 'syntax = "proto2"; package p; message P { required int32 a = 1; enum E { X = 0; } }'
    middle = 'syntax = "proto3"; package n; import "part.proto"; message Mid { p.P.E e = 1; }'
    schema = RegisteredSchema(
        'syntax = "proto3"; package n; import "part.proto"; import "mid.proto"; message M { .p.P a = 1; Mid b = 2; }',
        "PROTOBUF",
        {
            "part.proto": RegisteredSchema(part, "PROTOBUF"),
            "mid.proto": registered(middle, part=part),
        },
    )
    assert protobuf_reader(schema)(b"\0" + message(schema, {"a": {"a": 3}, "b": {}})).value == {
        "a": {"a": 3},
        "b": {"e": "X"},
    }


def test_comments_anywhere() -> None:
    """Comments within statements are ignored, strings with ``//`` are kept, and errors name the correct line."""
    text = """syntax = /* of
    version */ "proto3"; // three
    message /**/ M { oneof /* a choice */ pick { // of
      string url = 1 [json_name = "http://x", deprecated /* long ago */ = true];
    } }"""
    assert protobuf_reader(registered(text))(b"\0").value == {"pick_0": None}
    with pytest.raises(BadRecord, match="line 5, column 7"):
        protobuf_reader(registered(text + "}"))


def test_names_that_are_keywords() -> None:
    """Fields and messages may have keywords as names."""
    text = 'syntax = "proto3"; message group { int32 message = 1; string syntax = 2; bool optional = 3; }'
    assert protobuf_reader(registered(text))(b"\0").value == {"message": 0, "syntax": "", "optional": False}


def test_a_serialized_descriptor() -> None:
    """A schema may be registered as a base64 descriptor with any file name."""
    file = FileDescriptorProto(name="any.proto", package="n", syntax="proto3")
    file.message_type.add(name="M").field.add(name="a", number=1, type=5)
    schema = registered(base64.b64encode(file.SerializeToString()).decode())
    assert protobuf_reader(schema)(b"\0\x08\x05").value == {"a": 5}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense {", "line 1, column 0"),
        ('{"type":"record"}', "not a valid Protobuf schema"),
        ("message A { int32 a = x; }", "not a valid Protobuf schema"),
        ("message A { int32 a = 0x10; }", "not a valid Protobuf schema"),
        ('syntax = "proto3"; message A { B b = 1; }', "cannot be loaded"),
        ('edition = "2023"; message A {}', "edition"),
        ('import "x.proto"; message A {}', "x.proto, which is not among its references"),
        ('import "google/type/money.proto"; message A {}', "google/type/money.proto"),
        ("message A { optional group G = 1 { optional int32 b = 2; } }", "group"),
        ("message A { oneof c { int32 a = 2; group G = 1 {} } }", "group"),
        ('syntax = "proto3"; message A { B b = 1; message B { A a = 1; } }', "A contains itself"),
        ('syntax = "proto3";', "is not in its Protobuf schema"),
    ],
)
def test_unsupported_schemas_are_bad_records(text: str, why: str) -> None:
    """A schema that cannot be parsed, loaded or converted raises BadRecord with the cause."""
    with pytest.raises(BadRecord, match=why):
        protobuf_reader(registered(text))(b"\0")
