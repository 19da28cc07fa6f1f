"""Keys in the headers of key changes, as JsonConverter and Kafka Connect's SimpleHeaderConverter write them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.envelope_columns import UNREADABLE_KEYS
from headrace.core.model.catalog import Catalog, CatalogTable
from headrace.core.model.errors import BadRecord, Fatal
from headrace.core.model.events import CellState, Changes, TableId
from headrace.core.model.schema import Field, Schema

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
VARIABLE = {
    "type": "struct",
    "name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
PLACEHOLDER = "__debezium_unavailable_value"


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes
    offset: int
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int = 0
    timestamp: int = 7


def simple_text(value: Any) -> str:
    """Return a member of a struct as ``Values.convertToString`` of Kafka Connect 4 appends it."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, bytes):
        return simple_text(base64.b64encode(value).decode())
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{simple_text(name)}:{simple_text(each)}" for name, each in value.items()) + "}"
    return str(value).replace("inf", "Infinity").replace("nan", "NaN")


def connect_json(value: Any) -> Any:
    """Return a value as JsonConverter writes it."""
    if isinstance(value, Decimal):
        value = int(value.scaleb(2)).to_bytes(12, "big", signed=True)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {name: connect_json(each) for name, each in value.items()}
    return value


def struct(name: str, members: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    fields = [{**schema, "field": field} for field, schema in members.items()]
    return {"type": "struct", "name": name, "optional": True, "fields": fields}


def document(schema: Mapping[str, Any], payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def key_change(kind: Mapping[str, Any], old: Any, new: Any, header: Any) -> list[Record]:
    """Return an insert and a change of its key; ``header`` makes the headers of a key."""
    key = struct("t.Key", {"id": kind})
    row = struct("t.Value", {"id": kind, "note": {"type": "string", "optional": True}})
    envelope = struct("t.Envelope", {"after": row, "op": {"type": "string"}})

    def record(op: str, value: Any, offset: int, note: str, *headers: tuple[str, bytes]) -> Record:
        source = {"connector": "postgresql", "name": "s", "db": "d", "schema": "p", "table": "t", "lsn": offset}
        after = None if op == "d" else {"id": connect_json(value), "note": note}
        event = {"op": op, "source": source, "after": after}
        return Record(document(key, {"id": connect_json(value)}), document(envelope, event), offset, headers)

    return [
        record("c", old, 1, "kept"),
        record("d", old, 2, "", ("__debezium.newkey", header({"id": new}))),
        record("c", new, 3, PLACEHOLDER, ("__debezium.oldkey", header({"id": old}))),
    ]


def simple(key: Mapping[str, Any]) -> bytes:
    return simple_text(key).encode()


def plain(key: Mapping[str, Any]) -> bytes:
    return json.dumps(connect_json(key)).encode()


def with_schema(key: Mapping[str, Any]) -> bytes:
    return document({"type": "struct"}, connect_json(key))


texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.text('\\"\n\r\t{}[]:,\x00é', max_size=8)
numbers = st.decimals(-(10**10), 10**10, places=2)
VALUES: list[tuple[Mapping[str, Any], st.SearchStrategy[Any]]] = [
    ({"type": "int64"}, st.integers(-(2**63), 2**63 - 1)),
    ({"type": "string"}, texts),
    ({"type": "boolean"}, st.booleans()),
    ({"type": "double"}, st.floats(allow_nan=False, allow_infinity=False)),
    ({"type": "bytes"}, st.binary(max_size=8)),
    (DECIMAL, numbers),
    (VARIABLE, st.fixed_dictionaries({"scale": st.integers(0, 9), "value": st.binary(min_size=1, max_size=20)})),
]
cases = st.one_of(
    st.tuples(st.just(kind), values, values, st.sampled_from((simple, plain, with_schema))) for kind, values in VALUES
)


@given(cases)
def test_a_key_in_a_header_is_the_key_of_its_row(case: tuple[Mapping[str, Any], Any, Any, Any]) -> None:
    """The decoder reads keys of each type and header converter, so that both halves of a key change are linked."""
    decoded = TopicDecoder("t", EnvelopeOptions()).decode(key_change(*case))
    assert (decoded.errant, decoded.notes) == ([], [])
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert changes.key_changes.old_keys == {2: changes.key[1].as_py()}
    assert changes.key_changes.first_halves == {1}


UNREADABLE = [
    b"",
    b"{",
    b"\xff",
    b"Struct{id=1}",
    b'{"id":2020-01-01}',
    b'{"id":null}',
    b'{"id":[1]}',
    b'{"id":1E+999999999}',
    b"[1]",
    b"1",
    b'{"other":1}',
    b"[" * 100_000,
    b'{"id":' + b"9" * 5000 + b"}",
]


@pytest.mark.parametrize("header", UNREADABLE)
@pytest.mark.parametrize("kind", range(len(VALUES)))
def test_an_unreadable_header_is_ignored(kind: int, header: bytes) -> None:
    """The decoder refuses no record and adds a note; unavailable cells of the insert remain UNCHANGED."""
    schema = VALUES[kind][0]
    example = {"int64": 1, "string": "a", "boolean": True, "double": 0.5, "bytes": b"a"}.get(schema["type"])
    example = {"scale": 1, "value": b"\1"} if schema is VARIABLE else Decimal("1.50") if schema is DECIMAL else example
    decoded = TopicDecoder("t", EnvelopeOptions()).decode(key_change(schema, example, example, lambda key: header))
    assert decoded.errant == []
    assert decoded.notes == [UNREADABLE_KEYS]
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert (len(changes), changes.key_changes.old_keys, changes.key_changes.first_halves) == (3, {}, frozenset())
    states = changes.columns[1].states
    assert states is not None
    assert states[2] == CellState.UNCHANGED


class _Catalog(Catalog):
    """A database in which the key is a decimal."""

    def table(self, table: TableId) -> CatalogTable | None:
        return None

    def schema(self, table: TableId) -> Schema | None:
        parameters = (("connect.decimal.precision", "10"), ("scale", "2"))
        decimal = Schema("bytes", name=str(DECIMAL["name"]), parameters=parameters)
        return Schema("struct", fields=(Field("id", decimal), Field("note", Schema("string", optional=True))))


def without_schema(text: bytes) -> bytes:
    return json.dumps(json.loads(text)["payload"]).encode()


@pytest.mark.parametrize("header", [simple, plain])
def test_a_decimal_key_without_schemas_has_the_type_of_the_catalog(header: Any) -> None:
    """The catalog's type applies to keys in headers as it does to keys of rows."""
    moved = key_change(DECIMAL, Decimal("1.50"), Decimal("-2.00"), header)
    records = [replace(each, key=without_schema(each.key), value=without_schema(each.value)) for each in moved]
    decoded = TopicDecoder("t", EnvelopeOptions(False, False), _Catalog()).decode(records)
    assert decoded.errant == []
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert (changes.key.to_pylist(), changes.key_changes.old_keys) == (["=1.5", "=1.5", "=-2"], {2: "=1.5"})


def test_a_bad_record_without_an_index_is_a_defect() -> None:
    """``culprit`` returns the index; without one it raises Fatal, so that no other record is refused."""
    assert BadRecord("x", index=3).culprit == 3
    with pytest.raises(Fatal, match="defect of Headrace"):
        _ = BadRecord("x").culprit
