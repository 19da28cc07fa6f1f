"""Changes of one table in the formats of confluent-kafka's serializers, with a schema registry.

The schemas are those of Connect's converters of the same formats (``AvroData``, ``JsonSchemaData``), so that each topic
equals one that Debezium writes through that converter.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer, decimal_to_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from google.type import date_pb2
from recordings.records import RecordedRecord

Row = dict[str, Any]
Serializer = Callable[[Any, SerializationContext], bytes | None]

_CONNECT = "org.apache.kafka.connect.data."
_FULL: Row = {
    "id": 1,
    "size": 7,
    "name": "Zange ä",
    "price": Decimal("12.34"),
    "seen": datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC),
    "day": date(2024, 2, 29),
    "raw": b"\x00\xff",
    "sold": True,
    "weight": 1.5,
    "tags": ["a", "b"],
    "stock": {"Bonn": 3, "Köln": 2**40},
    "place": {"lat": 50.5, "note": "left"},
}
_NULLS = dict.fromkeys(("name", "price", "seen", "day", "raw", "sold", "weight", "place"))
_EMPTY: Row = {"id": 2, "size": -300, **_NULLS, "tags": [], "stock": {}}
_CHANGED: Row = _FULL | {
    "price": Decimal("-99999999.99"),
    "seen": None,
    "day": date(1969, 12, 31),
    "tags": ["ü"],
    "place": {"lat": -0.25, "note": None},
}

CHANGES: list[tuple[str, Row | None, Row | None]] = [
    ("c", None, _FULL),
    ("c", None, _EMPTY),
    ("c", None, _FULL | {"id": 3}),
    ("c", None, _FULL | {"id": 4}),
    ("u", _FULL, _CHANGED),
    ("d", _FULL | {"id": 4}, None),
]
"""Operation, before and after, in the order of the topic; a tombstone follows a delete."""


def rows() -> list[Row]:
    """Return the rows of the table after all changes, as Arrow values."""
    return [_stored(each) for each in (_CHANGED, _EMPTY, _FULL | {"id": 3})]


def _stored(row: Row) -> Row:
    seen: datetime | None = row["seen"]
    return {**row, "seen": seen and seen.replace(tzinfo=None), "stock": list(row["stock"].items())}


def records(topic: str, serializers: tuple[Serializer, Serializer]) -> list[RecordedRecord]:
    """Return the topic as the serializers of key and value write it."""
    key, value = serializers
    of_key, of_value = (SerializationContext(topic, side) for side in (MessageField.KEY, MessageField.VALUE))
    documents: list[tuple[bytes | None, bytes | None]] = []
    for place, (op, before, after) in enumerate(CHANGES):
        named = key({"id": (after or before or {})["id"]}, of_key)
        documents.append((named, value(_envelope(op, before, after, lsn=10 * (place + 1)), of_value)))
        if op == "d":
            documents.append((named, None))
    return [
        RecordedRecord(topic, 0, offset, 1_700_000_000_000 + offset, *document)
        for offset, document in enumerate(documents)
    ]


def _envelope(op: str, before: Row | None, after: Row | None, lsn: int) -> Row:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "goods"}
    times = {"ts_ms": 1_700_000_000_000, "snapshot": "false", "txId": lsn, "lsn": lsn}
    return {"before": before, "after": after, "source": source | times, "op": op, "ts_ms": 1_700_000_000_000 + lsn}


_SOURCE = {
    **dict.fromkeys(("connector", "name", "db", "schema", "table", "snapshot"), "string"),
    **dict.fromkeys(("ts_ms", "txId", "lsn"), "long"),
}


# -- Avro --------------------------------------------------------------------------------------------------


def avro(registry: SchemaRegistryClient) -> tuple[Serializer, Serializer]:
    """Return Confluent's serializer, which uses fastavro."""
    key = _avro_record("Key", {"id": "long"})
    return tuple(AvroSerializer(registry, _text(each)) for each in (key, _avro_envelope()))  # type: ignore[return-value] # a pair


def _avro_envelope() -> Row:
    row = _avro_record(
        "Value",
        {
            "id": "long",
            "size": {"type": "int", "connect.type": "int16"},
            "name": _nullable("string"),
            "price": _nullable(_avro_logical("bytes", "decimal", "Decimal", precision=10, scale=2)),
            "seen": _nullable(_avro_logical("long", "timestamp-millis", "Timestamp")),
            "day": _nullable(_avro_logical("int", "date", "Date")),
            "raw": _nullable("bytes"),
            "sold": _nullable("boolean"),
            "weight": _nullable("double"),
            "tags": {"type": "array", "items": "string"},
            "stock": {"type": "map", "values": "long"},
            "place": _nullable(_avro_record("Place", {"lat": "double", "note": _nullable("string")})),
        },
    )
    return _avro_record(
        "Envelope",
        {
            "before": _nullable(row),
            "after": _nullable("Value"),
            "source": _avro_record("Source", _SOURCE),
            "op": "string",
            "ts_ms": _nullable("long"),
        },
    )


def _avro_record(name: str, members: Row) -> Row:
    fields = [{"name": member, "type": kind} for member, kind in members.items()]
    full = f"shop.public.goods.{name}"
    return {"type": "record", "name": name, "namespace": "shop.public.goods", "fields": fields, "connect.name": full}


def _avro_logical(kind: str, logical: str, connect: str, **digits: int) -> Row:
    parameters = (
        {"scale": str(digits["scale"]), "connect.decimal.precision": str(digits["precision"])} if digits else {}
    )
    connects = {"connect.name": f"{_CONNECT}{connect}", "connect.version": 1, "connect.parameters": parameters}
    return {"type": kind, "logicalType": logical, **digits, **connects}


def _nullable(kind: Any) -> list[Any]:
    return ["null", kind]


# -- JSON Schema -------------------------------------------------------------------------------------------


def json_schema(registry: SchemaRegistryClient) -> tuple[Serializer, Serializer]:
    """Return Confluent's serializer, which validates each document against its schema."""
    key = _json_object("Key", {"id": _json("int64")})
    return (
        JSONSerializer(_text(key), registry),
        JSONSerializer(_text(_json_envelope()), registry, lambda envelope, _: _json_document(envelope)),
    )


def _json_envelope() -> Row:
    decimal = {"scale": "2", "connect.decimal.precision": "10"}
    row = _json_object(
        "Value",
        {
            "id": _json("int64"),
            "size": _json("int16"),
            "name": _or_null(_json("string")),
            "price": _or_null(_json("bytes", "number", f"{_CONNECT}Decimal", decimal)),
            "seen": _or_null(_json("int64", title=f"{_CONNECT}Timestamp")),
            "day": _or_null(_json("int32", title=f"{_CONNECT}Date")),
            "raw": _or_null(_json("bytes")),
            "sold": _or_null({"type": "boolean"}),
            "weight": _or_null(_json("float64")),
            "tags": {"type": "array", "items": _json("string")},
            "stock": {"type": "object", "connect.type": "map", "additionalProperties": _json("int64")},
            "place": _or_null(
                _json_object("Place", {"lat": _json("float64"), "note": _or_null(_json("string"))}),
            ),
        },
    )
    source = {name: _json("int64" if kind == "long" else "string") for name, kind in _SOURCE.items()}
    return _json_object(
        "Envelope",
        {
            "before": _or_null(row),
            "after": _or_null(deepcopy(row)),
            "source": _json_object("Source", source),
            "op": _json("string"),
            "ts_ms": _or_null(_json("int64")),
        },
    )


def _json_object(name: str, members: Row) -> Row:
    properties = {member: {**node, "connect.index": place} for place, (member, node) in enumerate(members.items())}
    return {"type": "object", "title": f"shop.public.goods.{name}", "properties": properties}


def _json(connects: str, kind: str = "", title: str = "", parameters: Row | None = None) -> Row:
    kinds = {"string": "string", "bytes": "string", "float64": "number"}
    node: Row = {"type": kind or kinds.get(connects, "integer")}
    if connects != "string":
        node["connect.type"] = connects
    if title:
        node |= {"title": title, "connect.version": 1}
    return node | ({"connect.parameters": parameters} if parameters else {})


def _or_null(node: Row) -> Row:
    return {"oneOf": [{"type": "null"}, node]}


def _json_document(envelope: Row) -> Row:
    return {**envelope, "before": _json_row(envelope["before"]), "after": _json_row(envelope["after"])}


def _json_row(row: Row | None) -> Row | None:
    return row and {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else value


def _text(schema: Row) -> str:
    return json.dumps(schema)


# -- Protobuf ----------------------------------------------------------------------------------------------

_IMPORTS = (meta_pb2, decimal_pb2, timestamp_pb2, date_pb2)
_ROW = {
    "id": "int64",
    "size": "int32",
    "name": "string?",
    "price": ".confluent.type.Decimal",
    "seen": ".google.protobuf.Timestamp",
    "day": ".google.type.Date",
    "raw": "bytes?",
    "sold": "bool?",
    "weight": "double?",
    "tags": "string*",
    "stock": "StockEntry*",
    "place": "Place",
}
_NOTED = {"size": {"connect.type": "int16"}, "price": {"precision": "10", "scale": "2"}}


def protobuf(registry: SchemaRegistryClient) -> tuple[Serializer, Serializer]:
    """Return Confluent's serializer; it registers schemas as serialized descriptors, with a reference between them."""
    source = _protobuf_message("Source", {name: kind.replace("long", "int64") for name, kind in _SOURCE.items()})
    key = _protobuf_class(_protobuf_file("key", _protobuf_message("Key", {"id": "int64"})))
    part = _protobuf_file("part", source)
    _protobuf_class(part)
    envelope = _protobuf_class(_protobuf_file("value", _protobuf_envelope(), part.name))
    of_key, of_value = (ProtobufSerializer(each, registry, {}) for each in (key, envelope))
    return (
        lambda document, context: of_key(key(**document), context),
        lambda document, context: of_value(_filled(envelope(), document), context),
    )


def _protobuf_envelope() -> DescriptorProto:
    members = {"before": "Value", "after": "Value", "source": ".shop.part.Source", "op": "string", "ts_ms": "int64?"}
    envelope = _protobuf_message("Envelope", members)
    row = _protobuf_message("Value", _ROW, _NOTED)
    entry = _protobuf_message("StockEntry", {"key": "string", "value": "int64"})
    entry.options.map_entry = True
    row.nested_type.extend((entry, _protobuf_message("Place", {"lat": "double", "note": "string?"})))
    envelope.nested_type.append(row)
    return envelope


def _protobuf_file(name: str, message: DescriptorProto, *imports: str) -> FileDescriptorProto:
    file = FileDescriptorProto(name=f"shop/{name}.proto", package=f"shop.{name}", syntax="proto3")
    file.dependency.extend((*(each.DESCRIPTOR.name for each in _IMPORTS), *imports))
    file.message_type.append(message)
    return file


def _protobuf_class(file: FileDescriptorProto) -> Any:
    """Add the file to the pool in which the serializer finds imports, as protoc's modules do."""
    Default().Add(file)
    return GetMessageClass(Default().FindMessageTypeByName(f"{file.package}.{file.message_type[0].name}"))


def _protobuf_message(name: str, members: dict[str, str], noted: dict[str, dict[str, str]] | None = None) -> Any:
    """Return a message; the type of a field with presence ends in ``?``, of a repeated one in ``*``."""
    message = DescriptorProto(name=name)
    for number, (member, kind) in enumerate(members.items(), 1):
        field = message.field.add(name=member, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        named = kind.rstrip("?*")
        field.type = dict(FieldDescriptorProto.Type.items()).get(f"TYPE_{named.upper()}", field.TYPE_MESSAGE)
        if field.type == field.TYPE_MESSAGE:
            field.type_name = named
        if kind.endswith("*"):
            field.label = FieldDescriptorProto.LABEL_REPEATED
        if kind.endswith("?"):
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{member}")
        for key, value in (noted or {}).get(member, {}).items():
            field.options.Extensions[meta_pb2.field_meta].params[key] = value
    return message


def _filled(message: Any, row: Row) -> Any:
    """Return the message with a row's values; null is an unset field."""
    for name, value in row.items():
        if isinstance(value, Decimal):
            getattr(message, name).CopyFrom(decimal_to_protobuf(value, 2))
        elif isinstance(value, datetime):
            getattr(message, name).FromDatetime(value)
        elif isinstance(value, date):
            getattr(message, name).MergeFrom(date_pb2.Date(year=value.year, month=value.month, day=value.day))
        elif name == "stock":
            getattr(message, name).update(value)
        elif isinstance(value, dict):
            _filled(getattr(message, name), value)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        elif value is not None:
            setattr(message, name, value)
    return message


FORMATS: Iterable[tuple[str, str, Callable[[SchemaRegistryClient], tuple[Serializer, Serializer]]]] = (
    ("avro", "io.confluent.connect.avro.AvroConverter", avro),
    ("json", "io.confluent.connect.json.JsonSchemaConverter", json_schema),
    ("protobuf", "io.confluent.connect.protobuf.ProtobufConverter", protobuf),
)
"""Name, converter and serializers of each format."""
