"""Serializes keys, rows, envelopes and headers as Debezium and Connect's converters do (recorded in tests/fixtures)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from properties.source_database.tables import Column, Row

PLACEHOLDER = "__debezium_unavailable_value"

_DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
}
_TYPES: Mapping[str, dict[str, Any]] = {
    "int32": {"type": "int32"},
    "int64": {"type": "int64"},
    "text": {"type": "string"},
    "large": {"type": "string"},
    "texts": {"type": "array", "items": {"type": "string", "optional": True}},
    "doubles": {"type": "array", "items": {"type": "double", "optional": True}},
}
_KEY_TYPES: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "int": {"id": {"type": "int32"}},
    "text": {"id": {"type": "string"}},
    "decimal": {"id": _DECIMAL},
    "composite": {"part": {"type": "string"}, "id": {"type": "int32"}},
}
_PLACEHOLDERS: Mapping[str, Any] = {"large": PLACEHOLDER, "texts": [PLACEHOLDER], "doubles": None}


def placeholder(column: Column) -> Any:
    """The placeholder of PostgreSQL's connector for an unchanged value that is stored out of line."""
    return _PLACEHOLDERS[column.type]


def key_document(kind: str, key: Row, *, schemas: bool) -> bytes:
    """A record's key."""
    return _document(_key_schema(kind) if schemas else None, {name: _plain(value) for name, value in key.items()})


def header(kind: str, key: Row, converter: str) -> bytes:
    """A key in a header. ``json`` is JsonConverter with schemas, ``simple`` Connect's SimpleHeaderConverter.

    The latter writes a struct like JSON, but decimals as bare numbers and line feeds without escapes
    (org.apache.kafka.connect.data.Values).
    """
    if converter == "json":
        return key_document(kind, key, schemas=True)
    members = [f'"{name}":{_simple(value)}' for name, value in key.items()]
    return ("{" + ",".join(members) + "}").encode()


def envelope(
    key_kind: str,
    columns: Sequence[Column],
    name: str,
    *,
    op: str,
    before: Row | None,
    after: Row | None,
    source: Mapping[str, Any],
    schemas: bool,
) -> bytes:
    """A change event."""
    payload = {
        "before": _payload(before),
        "after": _payload(after),
        "source": source,
        "op": op,
        "ts_ms": source["ts_ms"] + 500,
    }
    return _document(_envelope_schema(key_kind, tuple(columns), name) if schemas else None, payload)


def flat(key_kind: str, columns: Sequence[Column], name: str, row: Mapping[str, Any], *, schemas: bool) -> bytes:
    """A row with the fields that ``ExtractNewRecordState`` has added."""
    added = tuple((field, isinstance(value, int)) for field, value in row.items() if field.startswith("__"))
    return _document(_flat_schema(key_kind, tuple(columns), name, added) if schemas else None, _payload(row))


def _document(schema: str | None, payload: Any) -> bytes:
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False)
    return (text if schema is None else f'{{"schema":{schema},"payload":{text}}}').encode()


def _payload(row: Row | None) -> dict[str, Any] | None:
    return None if row is None else {name: _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        unscaled = int(value.scaleb(2))
        return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()
    return value


def _simple(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


@lru_cache
def _key_schema(kind: str) -> str:
    fields = [{**form, "optional": False, "field": name} for name, form in _KEY_TYPES[kind].items()]
    return json.dumps({"type": "struct", "fields": fields, "optional": False, "name": "shop.Key"})


@lru_cache(256)
def _envelope_schema(key_kind: str, columns: tuple[Column, ...], name: str) -> str:
    row = {"type": "struct", "fields": _fields(key_kind, columns), "optional": True, "name": f"{name}.Value"}
    source = [
        {"type": "string", "optional": False, "field": "connector"},
        {"type": "int64", "optional": False, "field": "ts_ms"},
    ]
    members = [
        {**row, "field": "before"},
        {**row, "field": "after"},
        {"type": "struct", "fields": source, "optional": False, "name": "Source", "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    return json.dumps({"type": "struct", "fields": members, "optional": False, "name": f"{name}.Envelope"})


@lru_cache(256)
def _flat_schema(key_kind: str, columns: tuple[Column, ...], name: str, added: tuple[tuple[str, bool], ...]) -> str:
    fields = _fields(key_kind, columns)
    fields += [
        {"type": "int64" if is_number else "string", "optional": True, "field": field} for field, is_number in added
    ]
    return json.dumps({"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Value"})


def _fields(key_kind: str, columns: Sequence[Column]) -> list[dict[str, Any]]:
    fields = [{**form, "optional": False, "field": field} for field, form in _KEY_TYPES[key_kind].items()]
    return fields + [{**_TYPES[column.type], "optional": True, "field": column.name} for column in columns]
