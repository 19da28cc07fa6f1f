"""Avro's binary encoding is converted to Connect data."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest

from headrace.converters.avro import AvroReader
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema

CONNECT = "org.apache.kafka.connect.data."


def written(avro: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro), value)
    return out.getvalue()


def read(avro: Any, value: Any) -> SchemaAndValue:
    """Write a value with the schema and read it with AvroReader."""
    return AvroReader(RegisteredSchema(json.dumps(avro)))(written(avro, value))


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": n, "type": t} for n, t in fields]}


@pytest.mark.parametrize(
    ("avro", "value", "schema"),
    [
        ("boolean", True, Schema("boolean")),
        ("int", -5, Schema("int32")),
        ({"type": "int", "connect.type": "int8"}, 5, Schema("int8")),
        ({"type": "int", "connect.type": "int16"}, 5, Schema("int16")),
        ("long", 2**40, Schema("int64")),
        ("float", 1.5, Schema("float")),
        ("double", 0.1, Schema("double")),
        ("bytes", b"\x00\xff", Schema("bytes")),
        ("string", "ä", Schema("string")),
        (["null", "string"], None, Schema("string", optional=True)),
        (["string", "null"], "a", Schema("string", optional=True)),
        (["string"], "a", Schema("string")),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", Schema("string")),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", Schema("bytes")),
        ({"type": "array", "items": ["null", "int"]}, [1, None], Schema("array", items=Schema("int32", optional=True))),
        ({"type": "map", "values": "int"}, {"a": 1}, Schema("map", keys=Schema("string"), values=Schema("int32"))),
        (
            {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp", "connect.version": 1},
            7,
            Schema("int64", name="io.debezium.time.MicroTimestamp", version=1),
        ),
        (
            {"type": "string", "connect.name": "E", "connect.parameters": {"b": "2", "a": "1"}},
            "x",
            Schema("string", name="E", parameters=(("a", "1"), ("b", "2"))),
        ),
        (record(("a", "int")), {"a": 1}, Schema("struct", name="n.R", fields=(Field("a", Schema("int32")),))),
        ("long", 5, Schema("int64")),
    ],
)
def test_types(avro: Any, value: Any, schema: Schema) -> None:
    """AvroReader maps types as Confluent's AvroData does; values have their physical representation."""
    data = read(avro, value)
    assert data == SchemaAndValue(schema, value)
    assert type(data.value) is type(value)


@pytest.mark.parametrize(
    ("avro_type", "logical", "name"),
    [
        ("int", "date", f"{CONNECT}Date"),
        ("int", "time-millis", f"{CONNECT}Time"),
        ("long", "timestamp-millis", f"{CONNECT}Timestamp"),
        ("long", "timestamp-micros", None),
        ("string", "uuid", None),
    ],
)
def test_logical_types_are_names_over_physical_values(avro_type: str, logical: str, name: str | None) -> None:
    """Logical types that Connect has become schema names; other logical types are ignored."""
    value = "01a1fd14-7474-7aa6-901a-3243b26be8a7" if avro_type == "string" else 3
    avro = {"type": avro_type, "logicalType": logical}
    data = AvroReader(RegisteredSchema(json.dumps(avro)))(written(avro_type, value))
    assert data.value == value
    assert data.schema is not None
    assert data.schema.name == name


@pytest.mark.parametrize("avro_type", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 2}])
def test_decimals_are_unscaled_bytes(avro_type: dict[str, Any]) -> None:
    """A decimal has its precision as a parameter, except 64, which Connect writes for an unknown precision."""
    for precision, parameters in ((10, (("connect.decimal.precision", "10"),)), (64, ())):
        avro = {**avro_type, "logicalType": "decimal", "precision": precision, "scale": 2}
        data = AvroReader(RegisteredSchema(json.dumps(avro)))(written(avro_type, b"\x04\xd2"))
        assert data == SchemaAndValue(
            Schema("bytes", name=DECIMAL, parameters=(*parameters, ("scale", "2"))), b"\x04\xd2"
        )


def test_maps_whose_keys_are_no_strings_are_pairs() -> None:
    """Arrays of MapEntry records are maps, as Connect writes them, also in nested records."""
    entry = {**record(("key", "int"), ("value", ["null", "string"])), "connect.internal.type": "MapEntry"}
    avro = record(("m", ["null", {"type": "array", "items": entry}]), ("list", {"type": "array", "items": "n.R2"}))
    avro["fields"][1]["type"]["items"] = {
        "type": "record", "name": "R2", "fields": [{"name": "m", "type": {"type": "array", "items": "n.R"}}],
    }  # fmt: skip
    avro["name"] = "Outer"
    value = {"m": [{"key": 1, "value": "a"}], "list": [{"m": [{"key": 2, "value": None}]}]}
    data = read(avro, value)
    assert data.value == {"m": [(1, "a")], "list": [{"m": [(2, None)]}]}
    assert data.schema is not None
    assert data.schema.field("m") == Schema(
        "map", optional=True, keys=Schema("int32"), values=Schema("string", optional=True)
    )
    assert read(avro, {"m": None, "list": []}).value == {"m": None, "list": []}


def test_map_entries_with_string_keys_are_a_dict() -> None:
    """MapEntry records with string keys become a dict, as for Avro maps."""
    entry = {**record(("key", ["null", "string"]), ("value", "int")), "connect.internal.type": "MapEntry"}
    assert read({"type": "array", "items": entry}, [{"key": "a", "value": 1}]).value == {"a": 1}


def test_names_refer_to_types_defined_before() -> None:
    """A named type is referred to by its name in the record's namespace or by its full name."""
    inner = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "int"}], "connect.name": "t.Value"}
    avro = record(("before", ["null", inner]), ("after", ["null", "Value"]), ("again", "n.Value"))
    data = read(avro, {"before": None, "after": {"id": 1}, "again": {"id": 2}})
    assert data.schema is not None
    value = Schema("struct", name="t.Value", fields=(Field("id", Schema("int32")),))
    assert data.schema.field("again") == value
    assert data.value["after"] == {"id": 1}


def test_schemas_of_other_subjects_are_read() -> None:
    """A schema may use a type that a reference defines, by the reference's name."""
    part = RegisteredSchema(json.dumps({"type": "record", "name": "n.Part", "fields": [{"name": "a", "type": "int"}]}))
    outer = record(("part", "n.Part"))
    reader = AvroReader(RegisteredSchema(json.dumps(outer), references={"n.Part": part}))
    assert reader(b"\x02").value == {"part": {"a": 1}}


def test_nan_is_read() -> None:
    """NaN is read from Avro as NaN."""
    assert math.isnan(read("double", math.nan).value)


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        (record(("u", ["int", "string"])), "a union of 2 types"),
        (record(("self", ["null", "R"])), "contains itself"),
        (record(("other", "n.Unknown")), "not defined"),
        ({"type": "record", "name": "R"}, "not a valid Avro schema"),
        ({"type": "nonsense"}, "not defined"),
    ],
)
def test_unsupported_schemas_are_bad_records(avro: Any, message: str) -> None:
    """A schema that no column type can hold, or that is invalid, raises BadRecord with the cause."""
    with pytest.raises(BadRecord, match=message):
        AvroReader(RegisteredSchema(json.dumps(avro)))


def test_a_schema_of_another_format_is_a_bad_record() -> None:
    """AvroReader raises BadRecord for a Protobuf schema."""
    with pytest.raises(BadRecord, match="PROTOBUF"):
        AvroReader(RegisteredSchema("syntax", "PROTOBUF"))


@pytest.mark.parametrize("payload", [b"", b"\x02", b"\x02\x06ab", b"\x02\x02a\x00", b"\x04\x02a"])
def test_bytes_that_do_not_match_the_schema_are_a_bad_record(payload: bytes) -> None:
    """Missing bytes, extra bytes and an unknown branch of a union raise BadRecord."""
    avro = record(("a", ["null", "string"]))
    with pytest.raises(BadRecord, match="Avro schema"):
        AvroReader(RegisteredSchema(json.dumps(avro)))(payload)
