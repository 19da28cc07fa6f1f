"""Blocks of Avro payloads in columns: the same as one by one, or not at all."""

from __future__ import annotations

import io
import json
import math
import tracemalloc
from collections.abc import Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.converters.avro import AvroReader
from headrace.converters.registered import RegisteredSchema
from headrace.core.decode.column_rows import Struct, in_python
from headrace.core.model.errors import BadRecord

Typed = tuple[Any, st.SearchStrategy[Any]]
"""A type in JSON's form and its values."""

_INTS = st.integers(-(2**31), 2**31 - 1)
_LONGS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**k for k in range(0, 63, 7)])
_SIMPLE: list[Typed] = [
    ("boolean", st.booleans()),
    ("int", _INTS),
    ("long", _LONGS),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("bytes", st.binary(max_size=200)),
    ("string", st.text(max_size=100)),
    ({"type": "string", "connect.name": "io.debezium.data.Json"}, st.text(max_size=3)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, st.binary(min_size=1, max_size=4)),
]


@st.composite
def types(draw: st.DrawFn, depth: int = 2) -> Typed:
    """Types that Connect has a schema for."""
    kind = draw(
        st.sampled_from(["simple", "simple", "optional", "array", "map", "record", "named"] if depth else ["simple"])
    )
    if kind == "simple":
        return draw(st.sampled_from(_SIMPLE))
    name = draw(st.uuids().map(lambda each: f"N{each.hex}"))
    if kind == "named":
        size = draw(st.integers(0, 3))
        enum: Typed = ({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}, st.sampled_from("ABC"))
        return (
            enum
            if size == 0
            else ({"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size))
        )
    if kind == "record":
        return draw(records(depth - 1, name))
    inner, values = draw(types(depth - 1))
    if kind == "optional" and not isinstance(inner, list):
        branches = draw(st.sampled_from([["null", inner], [inner, "null"], [inner]]))
        return branches, values | st.none() if len(branches) > 1 else values
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    return {"type": "array", "items": inner}, st.lists(values, max_size=3)


@st.composite
def records(draw: st.DrawFn, depth: int = 2, name: str = "R") -> Typed:
    """Records of a few fields, of which two may be of the same named type."""
    members = draw(st.lists(types(depth), min_size=1, max_size=4))
    fields = {f"f{place}": member for place, member in enumerate(members)}
    for field, (kind, values) in list(fields.items()):
        if isinstance(kind, dict) and "name" in kind and draw(st.booleans()):
            fields[f"{field}again"] = (["null", kind["name"]], values | st.none())
    avro = [{"name": field, "type": kind} for field, (kind, _) in fields.items()]
    return {"type": "record", "name": name, "fields": avro}, st.fixed_dictionaries(
        {n: v for n, (_, v) in fields.items()}
    )


PREFIX = b"\0\0\0\0\7"


def written(avro: Any, values: Sequence[Any]) -> list[bytes]:
    """Documents of values, each behind a prefix."""
    parsed = fastavro.parse_schema(avro)
    documents = []
    for value in values:
        out = io.BytesIO(PREFIX)
        out.seek(len(PREFIX))
        fastavro.schemaless_writer(out, parsed, value)
        documents.append(out.getvalue())
    return documents


def without_logical(avro: Any) -> Any:
    """The schema as something that writes physical values takes it."""
    if isinstance(avro, dict):
        return {name: without_logical(value) for name, value in avro.items() if name != "logicalType"}
    return [without_logical(each) for each in avro] if isinstance(avro, list) else avro


def block(reader: AvroReader, documents: Sequence[bytes], names: Sequence[str]) -> list[dict[str, Any]]:
    """What a block's columns say of each document."""
    columns = reader.block(documents, len(PREFIX), dict.fromkeys(names)).columns
    cells = {name: in_python(column) for name, column in columns.items() if not isinstance(column, Struct)}
    return [{name: comparable(each[row]) for name, each in cells.items()} for row in range(len(documents))]


def one_by_one(reader: AvroReader, documents: Sequence[bytes], names: Sequence[str]) -> list[dict[str, Any]]:
    """What a reader of single documents says."""
    values = [reader(document[len(PREFIX) :]).value for document in documents]
    return [{name: comparable(value[name]) for name in names} for value in values]


def comparable(value: Any) -> Any:
    """NaN equals itself; the pairs that Arrow makes of a map are no lists."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    return [comparable(each) for each in value] if isinstance(value, list) else value


@given(st.data())
def test_a_block_says_what_its_records_say(data: st.DataObject) -> None:
    """Of every type, whichever fields are wanted."""
    avro, values = data.draw(records())
    documents = written(without_logical(avro), data.draw(st.lists(values, min_size=1, max_size=12)))
    names = [each["name"] for each in avro["fields"] if data.draw(st.booleans())]
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    assert block(reader, documents, names) == one_by_one(reader, documents, names)


@given(st.data())
def test_a_block_with_other_bytes_is_refused_or_right(data: st.DataObject) -> None:
    """Nothing is read that single records would not give: not across records, and not beyond the last."""
    avro, values = data.draw(records())
    documents = written(without_logical(avro), data.draw(st.lists(values, min_size=1, max_size=4)))
    broken = data.draw(st.integers(0, len(documents) - 1))
    cut = data.draw(st.integers(0, len(documents[broken]) - len(PREFIX)))
    tail = data.draw(st.binary(max_size=12))
    documents[broken] = documents[broken][: len(PREFIX) + cut] + tail
    names = [each["name"] for each in avro["fields"]]
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    try:
        told = block(reader, documents, names)
    except BadRecord:
        return
    assert told == one_by_one(reader, documents, names)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("long", b"\xff" * 9 + b"\2"),  # more than 64 bits
        ("string", b"\1"),  # a negative length
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"),  # a length that leads around the address space
        ("string", b"\2\xff"),  # no UTF-8
        ("string", b""),
        (["null", "string"], b"\4\2a"),
        (["null", "string"], b"\1\2a"),
        (["string"], b"\2\2a"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\2"),
        ({"type": "array", "items": "int"}, b"\2"),
        ({"type": "fixed", "name": "F", "size": 4}, b"\0"),
        ("double", b"\0\0\0\0\0\0\0\0\0"),
    ],
)
def test_bytes_that_are_not_what_the_schema_says_are_refused(kind: Any, payload: bytes) -> None:
    """Wherever the broken record stands."""
    reader = AvroReader(
        RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    )
    sound = b"\0\2a\0"
    for documents in ([payload], [payload, sound], [payload, payload]):
        with pytest.raises(BadRecord):
            reader.block(documents, 0, {"a": None})


def test_what_is_skipped_does_not_lead_back() -> None:
    """A negative length before it would have a byte read twice, and the record end where it should."""
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]
    reader = AvroReader(RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": fields})))
    with pytest.raises(BadRecord):
        reader.block([b"\1"], 0, {})


def test_lengths_that_are_not_true_cost_no_memory() -> None:
    """Texts that would all reach to the end of the block are refused before they are copied."""
    reader = AvroReader(
        RegisteredSchema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}')
    )
    documents = [b"\xf0\xa2\4" + b"x" * 97] * 1000  # 100 bytes each, which say to be 33 thousand
    tracemalloc.start()
    try:
        with pytest.raises(BadRecord):
            reader.block(documents, 0, {"a": None})
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_large_texts_cost_little_more_than_themselves() -> None:
    """Whatever is polled at once is bounded by bytes, and so must be what becomes of it."""
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}
    values = [{"a": "ä" * 5000 if number % 3 else None} for number in range(300)]
    documents = written(avro, values)
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    tracemalloc.start()
    try:
        told = reader.block(documents, len(PREFIX), {"a": None})
        assert tracemalloc.get_traced_memory()[1] < 3 * sum(map(len, documents))
    finally:
        tracemalloc.stop()
    assert told.columns["a"].to_pylist() == [each["a"] for each in values]  # type: ignore[union-attr] # text is in Arrow


def test_a_schema_of_no_record_has_no_blocks() -> None:
    """Its documents are read one by one."""
    reader = AvroReader(RegisteredSchema('"long"'))
    assert not reader.reads_blocks
    with pytest.raises(BadRecord):
        reader.block([b"\2"], 0, {})


def test_numbers_of_every_length() -> None:
    """One to ten bytes, side by side."""
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    edges = [sign * 2**power + step for power in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
    numbers = [*edges, 2**63 - 1, -(2**63)]
    told = block(
        AvroReader(RegisteredSchema(json.dumps(avro))), written(avro, [{"a": each} for each in numbers]), ["a"]
    )
    assert [each["a"] for each in told] == numbers
