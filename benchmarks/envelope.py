"""Events in Debezium's envelope with Connect's JSON schemas, with the same bytes as JsonConverter."""

from __future__ import annotations

from typing import Any

import orjson

from benchmarks.workload import KEY, TOPIC, Event

_DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "version": 1}
_DECIMAL_PARAMETERS = {"scale": "2", "connect.decimal.precision": "12"}
_PREFIX = TOPIC.partition(".")[0]


def encode(event: Event) -> tuple[bytes, bytes]:
    """The record's key and value."""
    key = _KEY_HEAD + orjson.dumps({KEY: event.key}) + b"}"
    return key, _VALUE_HEAD + orjson.dumps(_payload(event)) + b"}"


def _payload(event: Event) -> dict[str, Any]:
    millis = 1_767_225_600_000 + event.number
    return {
        "before": event.before,
        "after": event.after,
        "source": _source(event.lsn, millis),
        "transaction": None,
        "op": event.operation,
        "ts_ms": millis + 5,
        "ts_us": millis * 1000 + 5000,
        "ts_ns": millis * 1_000_000 + 5_000_000,
    }


def _source(lsn: int, millis: int) -> dict[str, Any]:
    return {
        "version": "3.7.0.Final",
        "connector": "postgresql",
        "name": _PREFIX,
        "ts_ms": millis,
        "snapshot": "false",
        "db": "bank",
        "sequence": f'["{lsn - 8}","{lsn}"]',
        "ts_us": millis * 1000,
        "ts_ns": millis * 1_000_000,
        "schema": "public",
        "table": "acct",
        "txId": lsn // 640,
        "lsn": lsn,
        "xmin": None,
    }


# -- schemas ----------------------------------------------------------------------------------------------------------


def _field(field: str, kind: str, optional: bool = True, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": field}


def _row_schema(place: str) -> dict[str, Any]:
    fields = [
        _field("id", "int64", False),
        _field("name", "string", False),
        _field("email", "string"),
        _field("balance", "bytes", **_DECIMAL, parameters=_DECIMAL_PARAMETERS),
        _field("qty", "int32"),
        _field("active", "boolean"),
        _field("score", "double"),
        _field("created", "int64", name="io.debezium.time.MicroTimestamp", version=1),
        _field("updated", "string", name="io.debezium.time.ZonedTimestamp", version=1),
        _field("note", "string"),
    ]
    return {"type": "struct", "fields": fields, "optional": True, "name": f"{TOPIC}.Value", "field": place}


def _source_schema() -> dict[str, Any]:
    snapshot = {
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
        "default": "false",
    }
    fields = [
        *(_field(name, "string", False) for name in ("version", "connector", "name")),
        _field("ts_ms", "int64", False),
        _field("snapshot", "string", **snapshot),
        _field("db", "string", False),
        _field("sequence", "string"),
        *(_field(name, "int64") for name in ("ts_us", "ts_ns")),
        *(_field(name, "string", False) for name in ("schema", "table")),
        *(_field(name, "int64") for name in ("txId", "lsn", "xmin")),
    ]
    name = "io.debezium.connector.postgresql.Source"
    return {"type": "struct", "fields": fields, "optional": False, "name": name, "version": 1, "field": "source"}


def _transaction_schema() -> dict[str, Any]:
    fields = [_field("id", "string", False), _field("total_order", "int64", False)]
    fields.append(_field("data_collection_order", "int64", False))
    more = {"optional": True, "name": "event.block", "version": 1, "field": "transaction"}
    return {"type": "struct", "fields": fields, **more}


def _envelope_schema() -> dict[str, Any]:
    fields = [_row_schema("before"), _row_schema("after"), _source_schema(), _transaction_schema()]
    fields += [_field("op", "string", False), *(_field(name, "int64") for name in ("ts_ms", "ts_us", "ts_ns"))]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{TOPIC}.Envelope", "version": 2}


def _head(schema: dict[str, Any]) -> bytes:
    return b'{"schema":' + orjson.dumps(schema) + b',"payload":'


_KEY_HEAD = _head(
    {"type": "struct", "fields": [_field(KEY, "int64", False)], "optional": False, "name": f"{TOPIC}.Key"}
)
_VALUE_HEAD = _head(_envelope_schema())
