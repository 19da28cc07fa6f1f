"""Cases of single cells: the forms of placeholders, nulls that may hide a value, merges with kept cells.

Every test is named after its case; ``take_out.py`` shows that it fails without its rule.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from support.lake.lake_actions import KEEP, Row, actions, commit
from support.task.cache_harness import P, get, make, put

from headrace.core.decode.decoded import Decoded, SnapshotBegan
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.events import CellState, Changes, Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rules import table_rules
from headrace.ports import TableOptions
from headrace_dev.memory import MemoryLakehouse

BASE64, HEX = base64.b64encode(P.encode()).decode(), P.encode().hex()
UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
STRING = {"type": "string", "optional": True}
SOURCE = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "docs", "lsn": 7}


def array_of(**items: Any) -> dict[str, Any]:
    return {"type": "array", "optional": True, "items": {"optional": True, **items}}


def cut_to(letters: int) -> dict[str, Any]:
    return {**STRING, "parameters": {"truncateLength": str(letters)}}


@dataclass
class Record:
    """A change event of table ``docs`` with an ``id`` and a column ``big`` of any type."""

    op: str
    big: Any
    schema: dict[str, Any]
    snapshot: str = "false"
    offset: int = 0
    partition: int = 0
    timestamp: int = 7
    headers: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def key(self) -> bytes:
        members = [{"type": "int32", "field": "id"}]
        return json.dumps({"schema": {"type": "struct", "fields": members}, "payload": {"id": 1}}).encode()

    @property
    def value(self) -> bytes:
        members = [{"type": "int32", "field": "id"}, {**self.schema, "field": "big"}]
        row = {"type": "struct", "optional": True, "name": "docs.Value", "field": "after", "fields": members}
        schema = {"type": "struct", "name": "docs.Envelope", "fields": [row, {"type": "string", "field": "op"}]}
        source = {**SOURCE, "snapshot": self.snapshot}
        payload = {"op": self.op, "source": source, "after": {"id": 1, "big": self.big}}
        return json.dumps({"schema": schema, "payload": payload}).encode()


def decode(*records: Record) -> Decoded:
    for offset, record in enumerate(records):
        record.offset = offset
    return TopicDecoder("docs", EnvelopeOptions()).decode(records)


def state(record: Record) -> CellState:
    """The state of ``big`` after decoding."""
    [changes] = decode(record).events
    assert isinstance(changes, Changes)
    big = next(column for column in changes.columns if column.name == "big")
    if big.states is None:
        return CellState.VALUE if big.values[0].is_valid else CellState.NULL
    return CellState(int(big.states[0]))


# -- placeholders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "wire"),
    [
        (array_of(type="string", name="io.debezium.data.Uuid"), [UUID]),
        (STRING, BASE64),
        (STRING, HEX),
        ({"type": "bytes", "optional": True}, BASE64),
    ],
)
def test_s18_forms_that_upstream_does_not_know(schema: dict[str, Any], wire: Any) -> None:
    """S18: uuid[] lists, and BLOBs in base64 and hex, are detected."""
    assert state(Record("u", wire, schema)) is CellState.UNCHANGED


@pytest.mark.parametrize("form", [P, P.encode(), BASE64, HEX, pa.array([[UUID]])])
def test_s18_placeholders_are_never_cached(form: Any) -> None:
    """S18, D4: no form of the placeholder is cached as a value, and the old value is dropped."""
    cache = make()
    put(cache, "1", 1, big="A")
    put(cache, "1", 2, big=form)
    assert get(cache, "1", 3) is None


LOSING = [
    array_of(type="bytes", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "2"}),
    array_of(type="double"),
    {"type": "array", "optional": True, "name": "io.debezium.data.DoubleVector", "items": {"type": "double"}},
    {
        "type": "struct",
        "optional": True,
        "name": "io.debezium.data.geometry.Geometry",
        "fields": [{"type": "bytes", "field": "wkb"}, {"type": "int32", "optional": True, "field": "srid"}],
    },
]


@pytest.mark.parametrize("schema", LOSING)
def test_s19_types_whose_unchanged_value_arrives_as_null(schema: dict[str, Any]) -> None:
    """S19: numeric[], float[], vectors, geometry: a null may hide a value in an update, but not in an insert."""
    assert state(Record("u", None, schema)) is CellState.UNKNOWN
    assert state(Record("c", None, schema)) is CellState.NULL
    assert state(Record("u", None, STRING)) is CellState.NULL


def test_n10_truncated_placeholder() -> None:
    """N10: the placeholder after ``column.truncate.to.10.chars`` is distinguished from a value, from 8 letters on."""
    assert state(Record("u", P[:10], cut_to(10))) is CellState.UNCHANGED
    assert state(Record("u", P[:9], cut_to(10))) is CellState.VALUE
    assert state(Record("u", P[:5], cut_to(5))) is CellState.UNKNOWN


def test_n10_hashed_column_is_neither_read_nor_cached() -> None:
    """N10: a hash of the placeholder looks like any other hash; reselect would write the unmasked value."""
    masked = Schema("string", optional=True, parameters=(("masked", "true"),))
    columns = (Column("id", Schema("int32"), pa.nulls(0)), Column("big", masked, pa.nulls(0)))
    table = TableId("shop", "shop", "public", "docs")
    rules = table_rules(table, columns, ("id",), ReselectOptions(cache_enabled=True), None, has_source=True)
    assert (rules.column("big").readable, rules.column("big").cacheable) == (False, False)


# -- snapshots, merges ------------------------------------------------------------------------------------------------


def test_s17_decoding_reports_where_a_snapshot_begins() -> None:
    """S17: the first row of a snapshot reports it for all tables, the first row of a table for that table only."""
    first = decode(Record("r", "x", STRING, "first"), Record("r", "x", STRING, "true"))
    table = decode(Record("r", "x", STRING, "first_in_data_collection"), Record("u", "x", STRING))
    incremental = decode(Record("r", "x", STRING, "incremental"), Record("r", "x", STRING, "last"))
    assert (first.of(SnapshotBegan), incremental.of(SnapshotBegan)) == ([SnapshotBegan(None)], [])
    assert table.of(SnapshotBegan) == [SnapshotBegan(TableId("shop", "shop", "public", "docs"))]


def test_s33_null_next_to_kept_cells() -> None:
    """S33: one merge writes the null and keeps the cell beside it, without a special value for either of them."""
    schema = pa.schema([("id", pa.int64()), ("big", pa.string()), ("doc", pa.string())])
    table = MemoryLakehouse().table("shop", "docs", TableOptions())
    table.evolve(schema, ("id",))
    table.merge(actions(schema, [Row({"id": 1, "big": "A", "doc": "D"}, position=1)]), commit())
    table.merge(actions(schema, [Row({"id": 1, "big": KEEP, "doc": None}, position=2)]), commit(2))
    assert list(table.rows().values()) == [{"id": 1, "big": "A", "doc": None}]
