"""Schemas and documents of a registry that are made to do harm: each is a bad record, quickly and in little memory."""

from __future__ import annotations

import json
import resource
import time
from typing import Any

import pytest

from headrace.converters.avro import AvroReader
from headrace.converters.json_schema import json_schema_reader
from headrace.converters.protobuf import protobuf_reader
from headrace.converters.registered import RegisteredSchema
from headrace.core.model.errors import BadRecord

SECONDS, BYTES = 30.0, 128 << 20
READERS: dict[str, Any] = {"AVRO": AvroReader, "JSON": json_schema_reader, "PROTOBUF": protobuf_reader}
LEVELS = 40


def integer(number: int) -> bytes:
    """Return a number as Avro writes it."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])


def record(*types: Any) -> str:
    fields = [{"name": f"f{index}", "type": each} for index, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def doubled_avro() -> str:
    """Each record contains the next one twice: forty short definitions mean 2^40 fields."""
    found: Any = {"type": "record", "name": f"M{LEVELS}", "fields": [{"name": "s", "type": "int"}]}
    for level in reversed(range(LEVELS)):
        fields = [{"name": "a", "type": found}, {"name": "b", "type": f"M{level + 1}"}]
        found = {"type": "record", "name": f"M{level}", "fields": fields}
    return json.dumps(found)


def doubled_json() -> str:
    links = [{"$ref": f"#/definitions/d{level + 1}"} for level in range(LEVELS)]
    definitions: dict[str, Any] = {
        f"d{level}": {"type": "object", "properties": {"a": link, "b": link}} for level, link in enumerate(links)
    }
    return json.dumps({"$ref": "#/definitions/d0", "definitions": {**definitions, f"d{LEVELS}": {"type": "string"}}})


def doubled_protobuf() -> str:
    messages = (f"message M{level} {{ M{level + 1} a = 1; M{level + 1} b = 2; }}" for level in range(LEVELS))
    return 'syntax="proto3"; ' + "".join(messages) + f"message M{LEVELS} {{ string s = 1; }}"


def deep_avro_maps() -> str:
    """Maps in maps, the innermost of which is written as pairs: 2^22 visits for a reader that visits values twice."""
    pair = {"type": "record", "name": "P", "connect.internal.type": "MapEntry"}
    fields = [{"name": "key", "type": "int"}, {"name": "value", "type": "int"}]
    avro: Any = {"type": "array", "items": {**pair, "fields": fields}}
    for _ in range(22):
        avro = {"type": "map", "values": avro}
    return json.dumps(avro)


DEEP_AVRO = '{"type":"array","items":' * 5000 + '"string"' + "}" * 5000
EMPTY = {"type": "record", "name": "E", "fields": []}
WITHIN = {"type": "record", "name": "W", "fields": [{"name": "e", "type": EMPTY}]}
PROTO = 'syntax="proto3"; message A { string s = 2; }'
HUGE = b"\xff\xff\xff\xff\x0f"
HOSTILE: dict[str, tuple[str, str, bytes]] = {
    "avro: a huge string": ("AVRO", record("string"), integer(1 << 40) + b"x"),
    "avro: a negative string": ("AVRO", record("string"), integer(-5) + b"x"),
    "avro: huge bytes": ("AVRO", record("bytes"), integer(1 << 62)),
    "avro: an endless number": ("AVRO", record("long"), b"\xff" * 1000),
    "avro: a huge array": ("AVRO", record({"type": "array", "items": "string"}), integer(1 << 40)),
    "avro: a huge array of nothing": ("AVRO", record({"type": "array", "items": EMPTY}), integer(1 << 40)),
    "avro: a huge array of records of nothing": ("AVRO", record({"type": "array", "items": WITHIN}), integer(1 << 40)),
    "avro: a huge array of no bytes": (
        "AVRO",
        record({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
        integer(1 << 40),
    ),
    "avro: a huge map": ("AVRO", record({"type": "map", "values": "int"}), integer(1 << 40)),
    "avro: a huge fixed": ("AVRO", record({"type": "fixed", "name": "F", "size": 1 << 40}), b"x"),
    "avro: an unknown branch": ("AVRO", record(["null", "string"]), integer(99)),
    "avro: recursive": (
        "AVRO",
        '{"type":"record","name":"R","fields":[{"name":"n","type":["null","R"]}]}',
        b"\2" * 999,
    ),
    "avro: deep maps": ("AVRO", deep_avro_maps(), integer(1 << 40)),
    "avro: deep": ("AVRO", DEEP_AVRO, integer(0)),
    "avro: deep text": ("AVRO", "[" * 200_000, b""),
    "avro: wide": ("AVRO", record(*["int"] * 20_000), bytes(20_000)),
    "avro: doubled": ("AVRO", doubled_avro(), b""),
    "json: recursive": ("JSON", '{"type":"object","properties":{"a":{"$ref":"#"}}}', b'{"a":{}}'),
    "json: a file": ("JSON", '{"$ref":"file:///etc/passwd"}', b"{}"),
    "json: another server": ("JSON", '{"$ref":"http://127.0.0.1:1/x"}', b"{}"),
    "json: doubled": ("JSON", doubled_json(), b"{}"),
    "json: a deep document": ("JSON", '{"type":"string"}', b"[" * 200_000),
    "json: a huge exponent": ("JSON", '{"type":"integer"}', b"1e999999999"),
    "json: a huge exponent of a byte": ("JSON", '{"type":"integer","connect.type":"int8"}', b"1e999999999"),
    "json: a tiny exponent": ("JSON", '{"type":"integer"}', b"1e-999999999"),
    "json: many digits": ("JSON", '{"type":"integer"}', b"9" * 1_000_000),
    "protobuf: recursive": ("PROTOBUF", 'syntax="proto3"; message A { A a = 1; }', b"\0\x0a\x00"),
    "protobuf: a huge string": ("PROTOBUF", PROTO, b"\0\x12" + HUGE),
    "protobuf: an endless number": ("PROTOBUF", PROTO, b"\0\x12" + b"\x80" * 1000),
    "protobuf: a huge index": ("PROTOBUF", PROTO, integer(1 << 40)),
    "protobuf: many indexes": ("PROTOBUF", PROTO, integer(1 << 40) + b"\0" * 1000),
    "protobuf: deep": ("PROTOBUF", 'syntax="proto3"; ' + "message A {" * 3000 + "}" * 3000, b"\0"),
    "protobuf: doubled": ("PROTOBUF", doubled_protobuf(), b"\0"),
}


@pytest.mark.parametrize(("kind", "schema", "payload"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_schemas_and_documents_are_bad_records(kind: str, schema: str, payload: bytes) -> None:
    """Each is refused within seconds and some megabytes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.monotonic()
    with pytest.raises(BadRecord) as caught:
        READERS[kind](RegisteredSchema(schema, kind))(payload)
    assert time.monotonic() - begin < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < BYTES
    assert len(str(caught.value)) < 2000
