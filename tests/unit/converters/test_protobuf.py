"""Protobuf's binary encoding is converted to Connect data."""

from __future__ import annotations

import base64
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st
from support.records.protobuf_messages import message, registered, varint

from headrace.converters.protobuf import protobuf_reader
from headrace.converters.protobuf_data import ProtobufOptions
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema

CONNECT = "org.apache.kafka.connect.data."
CONFLUENT = "io.confluent.connect.protobuf"


def read(body: str, content: dict[str, Any], options: ProtobufOptions | None = None, head: str = "") -> SchemaAndValue:
    """Serialize a message with these fields and read it."""
    schema = registered(f'syntax = "proto3"; {head} message M {{ {body} }}')
    return protobuf_reader(schema, options)(b"\0" + message(schema, content))


def tagged(schema: Schema, number: int = 1) -> Schema:
    """Return the schema of a field as Confluent's converter declares it: optional, with its tag as a parameter."""
    parameters = tuple(sorted((*schema.parameters, (f"{CONFLUENT}.Tag", str(number)))))
    return replace(schema, optional=True, parameters=parameters)


def typed(name: str) -> tuple[tuple[str, str], ...]:
    return ((f"{CONFLUENT}.Type", name),)


META = 'import "confluent/meta.proto";'
WRAPPERS = 'import "google/protobuf/wrappers.proto";'
NOTED = '[(confluent.field_meta) = {{ doc: "x", params: [{{ key: "{}", value: "{}" }}] }}]'


@pytest.mark.parametrize(
    ("kind", "given", "schema", "value"),
    [
        ("bool", True, Schema("boolean"), True),
        ("int32", -5, Schema("int32"), -5),
        ("sint32", -5, Schema("int32", parameters=typed("sint32")), -5),
        ("uint32", 2**32 - 1, Schema("int64", parameters=typed("uint32")), 2**32 - 1),
        ("int64", 2**40, Schema("int64"), 2**40),
        ("uint64", 2**64 - 1, Schema("int64", parameters=typed("uint64")), -1),
        ("fixed64", 2**63, Schema("int64", parameters=typed("fixed64")), -(2**63)),
        ("float", 1.5, Schema("float"), 1.5),
        ("double", 0.1, Schema("double"), 0.1),
        ("string", "ä", Schema("string"), "ä"),
        ("bytes", "AP8=", Schema("bytes"), b"\x00\xff"),
        ("repeated string", ["a"], Schema("array", items=Schema("string", optional=True)), ["a"]),
    ],
)
def test_scalars(kind: str, given: Any, schema: Schema, value: Any) -> None:
    """Types are mapped as Confluent's ProtobufData maps them: unsigned types are int64, which overflows."""
    data = read(f"{kind} a = 1;", {"a": given})
    assert data == SchemaAndValue(Schema("struct", name="M", fields=(Field("a", tagged(schema)),)), {"a": value})
    assert type(data.value["a"]) is type(value)


@pytest.mark.parametrize(
    ("kind", "imported", "given", "schema", "value"),
    [
        (
            "google.protobuf.Timestamp", "google/protobuf/timestamp",
            "1969-12-31T23:59:59.999Z", Schema("int64", name=f"{CONNECT}Timestamp", version=1), -1,
        ),
        (
            "google.type.Date", "google/type/date",
            {"year": 1969, "month": 12, "day": 31}, Schema("int32", name=f"{CONNECT}Date", version=1), -1,
        ),
        (
            "google.type.TimeOfDay", "google/type/timeofday",
            {"hours": 1, "minutes": 2, "seconds": 3, "nanos": 4_000_000},
            Schema("int32", name=f"{CONNECT}Time", version=1), 3_723_004,
        ),
        (
            "confluent.type.Decimal", "confluent/type/decimal",
            {"value": "BNI=", "scale": 0}, Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "0"),)),
            b"\x04\xd2",
        ),
        (
            "confluent.type.Decimal", "confluent/types/decimal",
            {"value": "AA==", "scale": 0}, Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", "0"),)),
            b"\x00",
        ),
        ("google.protobuf.UInt64Value", "google/protobuf/wrappers", str(2**64 - 1), Schema("int64"), -1),
        ("google.protobuf.BoolValue", "google/protobuf/wrappers", False, Schema("boolean"), False),
    ],
)  # fmt: skip
def test_messages_that_are_values(kind: str, imported: str, given: Any, schema: Schema, value: Any) -> None:
    """Messages of Connect's logical types and wrappers are single values, and null if they are not set."""
    head = f'import "{imported}.proto";'
    data = read(f"{kind} a = 1;", {"a": given}, head=head)
    assert data == SchemaAndValue(Schema("struct", name="M", fields=(Field("a", tagged(schema)),)), {"a": value})
    assert read(f"{kind} a = 1;", {}, head=head).value == {"a": None}


@pytest.mark.parametrize(
    "declared",
    [
        NOTED.format("{}", "{}").replace("{}", "scale", 1).replace("{}", "2", 1),
        '[(confluent.field_meta).params = { key: "scale", value: "2" }]',
        '[deprecated = true, (.confluent.field_meta) = { params: [ { value: "2", key: "scale" } ] tags: "t" }]',
    ],
)
def test_confluents_field_meta_option(declared: str) -> None:
    """The scale of a decimal is read from each syntax of ``confluent.field_meta``; values are rescaled or refused."""
    head = f'{META} import "confluent/type/decimal.proto";'
    body = f"confluent.type.Decimal a = 1 {declared};"
    data = read(body, {"a": {"value": "DA==", "scale": 1}}, head=head)  # 1.2
    assert data.schema is not None
    schema = data.schema.field("a")
    assert schema is not None
    assert (schema.name, schema.parameter("scale"), data.value) == (DECIMAL, "2", {"a": b"\x78"})
    for scale in (3, -(2**31)):
        with pytest.raises(BadRecord, match="match their Protobuf schema"):
            read(body, {"a": {"value": "DA==", "scale": scale}}, head=head)


@given(st.integers(-(10**40), 10**40), st.integers(-5, 8))
def test_a_decimal_is_rescaled_exactly_or_refused(number: int, scale: int) -> None:
    """A decimal of another scale than its schema is rescaled if no digit is lost, else it raises BadRecord."""
    unscaled_bytes = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    content = b"\x0a" + bytes((len(unscaled_bytes),)) + unscaled_bytes + b"\x18" + varint(scale)
    document = b"\0\x0a" + bytes((len(content),)) + content
    if number % 10 ** max(scale - 4, 0):
        with pytest.raises(BadRecord):
            DECIMALS(document)
    else:
        unscaled = int.from_bytes(DECIMALS(document).value["a"], "big", signed=True)
        assert Fraction(unscaled, 10**4) == Fraction(number) / Fraction(10) ** scale


DECIMALS = protobuf_reader(
    registered(
        f'syntax = "proto3"; {META} import "confluent/type/decimal.proto"; '
        'message M { confluent.type.Decimal a = 1 [(confluent.field_meta).params = { key: "scale", value: "4" }]; }'
    )
)


@pytest.mark.parametrize("narrow", ["int8", "int16"])
def test_narrow_numbers(narrow: str) -> None:
    """The parameter ``connect.type`` makes int8 and int16 of an int32 field."""
    data = read(f"int32 a = 1 {NOTED.format('connect.type', narrow)};", {"a": 3}, head=META)
    assert data.schema == Schema("struct", name="M", fields=(Field("a", tagged(Schema(narrow))),))


def test_fields_that_are_not_set() -> None:
    """A field without presence has its default, a field with presence is null, lists and maps are empty."""
    body = "int32 a = 1; optional int32 b = 2; N c = 3; repeated int32 d = 4; map<string, int32> e = 5; message N {}"
    assert read(body, {}).value == {"a": 0, "b": None, "c": None, "d": [], "e": {}}
    assert read(body, {"b": 0, "c": {}}).value == {"a": 0, "b": 0, "c": {}, "d": [], "e": {}}
    old = registered('syntax = "proto2"; message M { required int32 a = 1; optional int32 b = 2 [default = 7]; }')
    assert protobuf_reader(old)(b"\0" + message(old, {"a": 0})).value == {"a": 0, "b": None}
    without = ProtobufOptions(optional_for_proto2=False)
    assert protobuf_reader(old, without)(b"\0" + message(old, {"a": 0})).value == {"a": 0, "b": 7}


def test_maps() -> None:
    """Maps with string keys become dicts and others lists of pairs, both in the order of their keys."""
    body = "map<string, N> a = 1; map<int64, bool> my_b = 2; message N { int32 n = 1; }"
    data = read(body, {"a": {"y": {"n": 1}, "x": {}}, "my_b": {"2": True, "1": False}})
    assert data.value == {"a": {"x": {"n": 0}, "y": {"n": 1}}, "my_b": [(1, False), (2, True)]}
    assert list(data.value["a"]) == ["x", "y"]
    assert data.schema is not None
    keys, values = tagged(Schema("int64")), tagged(Schema("boolean"), 2)
    assert data.schema.field("my_b") == tagged(Schema("map", name="my_b", keys=keys, values=values), 2)
    entries = "repeated AEntry a = 1; message AEntry { option map_entry = true; string key = 1; int32 value = 2; }"
    assert read(entries, {"a": {"x": 1}}).value == {"a": {"x": 1}}


def test_enums() -> None:
    """Enums become names or numbers; an unknown number has the name that Java's library gives it."""
    body = "E a = 1; E b = 2; enum E { option allow_alias = true; ZERO = 0; ONE = 1; UNO = 1; }"
    data = read(body, {"a": 1, "b": 9})
    assert data.value == {"a": "ONE", "b": "UNKNOWN_ENUM_VALUE_E_9"}
    assert data.schema is not None
    declared = (("", "E"), (".ONE", "1"), (".UNO", "1"), (".ZERO", "0"))
    parameters = tuple((f"{CONFLUENT}.Enum{name}", value) for name, value in declared)
    assert data.schema.field("a") == tagged(Schema("string", name="E", parameters=parameters))
    assert read(body, {"a": 1}, ProtobufOptions(int_for_enums=True)).value == {"a": 1, "b": 0}


def test_oneofs() -> None:
    """A oneof becomes a struct before the other fields, or its members become fields with ``flatten_unions``."""
    body = "int32 a = 1; oneof pick { string b = 2; N c = 3; } optional int32 d = 4; message N {}"
    data = read(body, {"b": ""})
    assert data.value == {"pick_0": {"b": ""}, "a": 0, "d": None}
    assert data.schema is not None
    assert [each.name for each in data.schema.fields] == ["pick_0", "a", "d"]
    pick = data.schema.field("pick_0")
    assert pick is not None
    assert (pick.name, pick.optional, [each.name for each in pick.fields]) == (
        f"{CONFLUENT}.Union.pick",
        True,
        ["b", "c"],
    )
    assert read(body, {}).value == {"pick_0": None, "a": 0, "d": None}
    flat = ProtobufOptions(flatten_unions=True)
    assert read(body, {"c": {}}, flat).value == {"b": None, "c": {}, "a": 0, "d": None}
    assert "pick" in read(body, {}, ProtobufOptions(index_for_unions=False)).value


def test_names_and_nullability_by_option() -> None:
    """Options select full names, which fields are optional, and whether wrappers are structs."""
    body = "int32 a = 1; optional int32 b = 2; google.protobuf.Int32Value c = 3;"

    def fields(options: ProtobufOptions) -> dict[str, tuple[str, bool]]:
        schema = read(body, {}, options, head=f"package n.m; {WRAPPERS}").schema
        assert schema is not None
        names.append(schema.name or "")
        return {each.name: (each.schema.type, each.schema.optional) for each in schema.fields}

    names: list[str] = []
    all_optional = {"a": ("int32", True), "b": ("int32", True), "c": ("int32", True)}
    assert fields(ProtobufOptions(full_names=True)) == all_optional
    assert fields(ProtobufOptions(optional_for_nullables=True)) == all_optional | {"a": ("int32", False)}
    wrapped = ProtobufOptions(wrapper_for_nullables=True, wrapper_for_raw_primitives=False)
    assert fields(wrapped) == {"a": ("int32", False), "b": ("int32", False), "c": ("int32", True)}
    assert fields(ProtobufOptions(wrapper_for_raw_primitives=False)) == all_optional | {"c": ("struct", True)}
    assert names == ["n.m.M", "M", "M", "M"]


def test_a_key_may_be_a_wrapper() -> None:
    """A document whose message is a wrapper is a single value."""
    schema = registered('syntax = "proto3"; message Key { google.protobuf.Int64Value id = 1; }' + WRAPPERS)
    data = protobuf_reader(registered(_text_of_wrappers()))(bytes((2, 4, 0x08, 0x07)))
    assert (data.schema, data.value) == (Schema("int64"), 7)
    assert protobuf_reader(schema)(b"\0" + message(schema, {"id": "5"})).value == {"id": 5}


def _text_of_wrappers() -> str:
    """Return google/protobuf/wrappers.proto as a base64 descriptor, which a registry may store."""
    return base64.b64encode(wrappers_pb2.DESCRIPTOR.serialized_pb).decode()


@pytest.mark.parametrize(
    "document",
    [b"", b"\x80", b"\x01", b"\x02", b"\x03", b"\0\x08", b"\0\xff\xff", b"\0\x0a\x01\xff", b"\xff" * 5],
)
def test_documents_that_do_not_match_the_schema(document: bytes) -> None:
    """A truncated document, an unknown message index and invalid UTF-8 raise BadRecord."""
    with pytest.raises(BadRecord):
        protobuf_reader(registered('syntax = "proto3"; message A { string a = 1; }'))(document)


def test_an_incomplete_date_is_a_bad_record() -> None:
    """A google.type.Date without a month or day raises BadRecord."""
    with pytest.raises(BadRecord, match="match their Protobuf schema"):
        read("google.type.Date a = 1;", {"a": {"year": 2024}}, head='import "google/type/date.proto";')


def test_a_schema_of_another_format_is_a_bad_record() -> None:
    """The Protobuf reader raises BadRecord for an Avro schema."""
    with pytest.raises(BadRecord, match="AVRO"):
        protobuf_reader(RegisteredSchema('"int"'))
