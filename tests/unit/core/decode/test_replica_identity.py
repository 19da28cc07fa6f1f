"""Nulls of a table that now has REPLICA IDENTITY FULL: the ``before`` of an event shows if it had it at that time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.decode.codec import Codec
from headrace.core.decode.column_rows import Struct, Wanted
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.envelope_block import Block, block_events
from headrace.core.model.catalog import CatalogColumn, CatalogTable, SqlType
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.events import CellState, Changes, TableId
from headrace.core.model.schema import Schema, schema_from_json

DECIMAL = {"type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal"}
ROW = [{"type": "int64", "field": "id"}, DECIMAL | {"parameters": {"scale": "2"}, "field": "price"}]
SOURCE = [
    {"type": "string", "field": name, "optional": True} for name in ("connector", "name", "db", "schema", "table")
]
ENVELOPE = {
    "type": "struct",
    "name": "shop.Envelope",
    "fields": [
        {"type": "struct", "fields": ROW, "field": "before", "optional": True},
        {"type": "struct", "fields": ROW, "field": "after", "optional": True},
        {"type": "struct", "fields": SOURCE, "field": "source"},
        {"type": "string", "field": "op"},
    ],
}
ITEMS = TableId("shop", "shop", "public", "items")


class FullIdentityCatalog:
    """A catalog in which the table has REPLICA IDENTITY FULL."""

    def table(self, table: TableId) -> CatalogTable:
        price = CatalogColumn("price", 2, SqlType(1700, "pg_catalog", "numeric"), attstorage="m", recoverable=True)
        return CatalogTable(
            table, "r", "f", (CatalogColumn("id", 1, SqlType(20, "pg_catalog", "int8"), attlen=8), price)
        )

    def schema(self, table: TableId) -> None:
        return None


@dataclass
class Record:
    value: bytes | SchemaAndValue | None
    offset: int = 0
    key: bytes = b'{"id":1}'
    partition: int = 0
    timestamp: int = 7
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def update(**before: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "items"}
    return {"after": {"id": 1, "price": None}, "source": source, "op": "u"} | before


def as_json(payload: dict[str, Any]) -> bytes:
    return json.dumps({"schema": ENVELOPE, "payload": payload}).encode()


def as_data(payload: dict[str, Any]) -> SchemaAndValue:
    return SchemaAndValue(schema_from_json(ENVELOPE), payload)


@pytest.mark.parametrize("form", [as_json, as_data])
def test_a_null_of_an_event_with_a_null_before_may_hide_a_value(form: Any) -> None:
    """With ``before: null``, the null is unavailable; with the old row, or without the field, it is the value."""
    events = [update(before=None), update(before={"id": 1, "price": None}), update()]
    records = [Record(form(each), offset) for offset, each in enumerate(events)]
    (piece,) = TopicDecoder("t", EnvelopeOptions(key_schemas=False), FullIdentityCatalog()).decode(records).events
    assert isinstance(piece, Changes)
    states = piece.columns[1].states
    assert states is not None
    assert states.tolist() == [CellState.UNKNOWN, CellState.NULL, CellState.NULL]


def test_a_block_reports_which_events_have_a_before() -> None:
    """A block reports this for each event, also with a tombstone among its records."""
    after = schema_from_json({"type": "struct", "fields": ROW})
    codec = Codec(after, None, ("id",))
    names = {name: pa.array([name] * 3) for name in ("connector", "name", "db", "schema", "table")}
    rows = Struct({"id": pa.array([1, 1, 1]), "price": pa.nulls(3, pa.binary())})

    def values(wanted: Wanted) -> Struct:
        columns = {
            "op": pa.array(["u"] * 3),
            "source": Struct(names),
            "after": rows,
            "before": Struct({}, np.array([1])),
        }
        return Struct({name: columns[name] for name in columns if name in wanted})

    records = [Record(b"1"), Record(None), Record(b"2"), Record(b"3")]
    block = Block(records, Schema("struct"), values, lambda places, names: [b""] * len(places))
    assert block_events(block, codec, lambda codec, key: [1, None]).before == [False, True, True, False]
