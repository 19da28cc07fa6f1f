"""Debezium envelopes for tests: PostgreSQL change events as JsonConverter writes them, with or without schemas."""

from __future__ import annotations

import json
from typing import Any

SCHEMALESS = {
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}
PLACEHOLDER = "__debezium_unavailable_value"
_TYPES = {int: "int64", str: "string", bool: "boolean", float: "double"}

Row = dict[str, Any]


def key(row: Row, *, schemas: bool = True) -> bytes:
    """Return a record key that contains ``row``."""
    return _document(row, _struct(row, "t.Key"), schemas)


def change(
    op: str,
    after: Row | None,
    lsn: int,
    *,
    columns: Row | None = None,
    table: str = "items",
    schemas: bool = True,
    ts_ms: int = 1_700_000_000_000,
    snapshot: str = "false",
) -> bytes:
    """Return a change event. ``columns`` is an example row for the schema if ``after`` is None or has nulls."""
    source = _source(table, lsn) | {"txId": lsn, "ts_ms": ts_ms, "snapshot": snapshot}
    payload = {"before": None, "after": after, "source": source, "op": op, "ts_ms": ts_ms}
    row = _struct(columns or after or {}, "shop.Value")
    fields = [row | {"field": "after"}, {"type": "string", "field": "op"}]
    return _document(payload, {"type": "struct", "name": "shop.Envelope", "fields": fields}, schemas)


def _source(table: str, lsn: int) -> dict[str, Any]:
    return {
        "connector": "postgresql",
        "name": "shop",
        "db": "shop",
        "schema": "public",
        "table": table,
        "lsn": lsn,
        "ts_ms": 1_700_000_000_000,
        "snapshot": "false",
    }


def _document(payload: Any, schema: dict[str, Any], schemas: bool) -> bytes:
    document = {"schema": schema, "payload": payload} if schemas else payload
    return json.dumps(document, separators=(",", ":")).encode()


def _struct(row: Row, name: str) -> dict[str, Any]:
    fields = [{"type": _TYPES[type(value)], "optional": True, "field": field} for field, value in row.items()]
    return {"type": "struct", "name": name, "optional": True, "fields": fields}


def whole_change(op: str, before: Row | None, after: Row | None, lsn: int, *, table: str = "items") -> bytes:
    """Return a change event with the complete schema of Debezium, which transforms require."""
    source = _source(table, lsn)
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_001}
    row = _struct(after or before or {}, f"shop.public.{table}.Value")
    fields = [
        row | {"field": "before"},
        row | {"field": "after"},
        _struct(source, "io.debezium.connector.postgresql.Source") | {"field": "source", "optional": False},
        {"type": "string", "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {"type": "struct", "name": f"shop.public.{table}.Envelope", "fields": fields}
    return _document(payload, schema, schemas=True)
