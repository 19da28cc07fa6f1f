"""Decoding a block of Avro documents to columns gives the values of decoding them one by one, or an error."""

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
    """Draw types for which Connect has a schema."""
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
    """Draw records of a few fields, some of which have the same named type."""
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
    """Serialize values, each behind PREFIX."""
    parsed = fastavro.parse_schema(avro)
    documents = []
    for value in values:
        out = io.BytesIO(PREFIX)
        out.seek(len(PREFIX))
        fastavro.schemaless_writer(out, parsed, value)
        documents.append(out.getvalue())
    return documents


def without_logical(avro: Any) -> Any:
    """Return the schema without logical types, so that fastavro writes physical values."""
    if isinstance(avro, dict):
        return {name: without_logical(value) for name, value in avro.items() if name != "logicalType"}
    return [without_logical(each) for each in avro] if isinstance(avro, list) else avro


def block(reader: AvroReader, documents: Sequence[bytes], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of each document as the block's columns contain them."""
    columns = reader.block(documents, len(PREFIX), dict.fromkeys(names)).columns
    cells = {name: in_python(column) for name, column in columns.items() if not isinstance(column, Struct)}
    return [{name: comparable(each[row]) for name, each in cells.items()} for row in range(len(documents))]


def one_by_one(reader: AvroReader, documents: Sequence[bytes], names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of each document as AvroReader reads it alone."""
    values = [reader(document[len(PREFIX) :]).value for document in documents]
    return [{name: comparable(value[name]) for name in names} for value in values]


def comparable(value: Any) -> Any:
    """Return a value for comparison: NaN as a string; the tuples of a map are not converted to lists."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    return [comparable(each) for each in value] if isinstance(value, list) else value


@given(st.data())
def test_a_block_has_the_values_of_its_records(data: st.DataObject) -> None:
    """A block has the values of single documents for every type and every selection of fields."""
    avro, values = data.draw(records())
    documents = written(without_logical(avro), data.draw(st.lists(values, min_size=1, max_size=12)))
    names = [each["name"] for each in avro["fields"] if data.draw(st.booleans())]
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    assert block(reader, documents, names) == one_by_one(reader, documents, names)


@given(st.data())
def test_a_corrupt_block_is_refused_or_correct(data: st.DataObject) -> None:
    """A block with a corrupt document is refused or has the values of single documents: no read crosses documents."""
    avro, values = data.draw(records())
    documents = written(without_logical(avro), data.draw(st.lists(values, min_size=1, max_size=4)))
    broken = data.draw(st.integers(0, len(documents) - 1))
    cut = data.draw(st.integers(0, len(documents[broken]) - len(PREFIX)))
    tail = data.draw(st.binary(max_size=12))
    documents[broken] = documents[broken][: len(PREFIX) + cut] + tail
    names = [each["name"] for each in avro["fields"]]
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    try:
        decoded = block(reader, documents, names)
    except BadRecord:
        return
    assert decoded == one_by_one(reader, documents, names)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("long", b"\xff" * 9 + b"\2"),  # more than 64 bits
        ("string", b"\1"),  # a negative length
        ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1"),  # a length that overflows the address space
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
def test_bytes_that_do_not_match_the_schema_are_refused(kind: Any, payload: bytes) -> None:
    """A block is refused if its only document, its first document or all documents do not match the schema."""
    reader = AvroReader(
        RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}))
    )
    sound = b"\0\2a\0"
    for documents in ([payload], [payload, sound], [payload, payload]):
        with pytest.raises(BadRecord):
            reader.block(documents, 0, {"a": None})


def test_a_skipped_field_with_a_negative_length_is_refused() -> None:
    """A negative length in a field that is not selected does not move the read position backwards."""
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]
    reader = AvroReader(RegisteredSchema(json.dumps({"type": "record", "name": "R", "fields": fields})))
    with pytest.raises(BadRecord):
        reader.block([b"\1"], 0, {})


def test_wrong_lengths_allocate_no_memory() -> None:
    """Strings whose length exceeds their document are refused before they are copied."""
    reader = AvroReader(
        RegisteredSchema('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}')
    )
    documents = [b"\xf0\xa2\4" + b"x" * 97] * 1000  # 100 bytes each, with a length prefix of 33 thousand
    tracemalloc.start()
    try:
        with pytest.raises(BadRecord):
            reader.block(documents, 0, {"a": None})
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


def test_memory_of_large_strings_is_bounded() -> None:
    """Decoding a block of large strings allocates less than three times the size of its documents."""
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "string"]}]}
    values = [{"a": "ä" * 5000 if number % 3 else None} for number in range(300)]
    documents = written(avro, values)
    reader = AvroReader(RegisteredSchema(json.dumps(avro)))
    reader.block(documents[:2], len(PREFIX), {"a": None})  # the first call also imports modules
    tracemalloc.start()
    try:
        decoded = reader.block(documents, len(PREFIX), {"a": None})
        assert tracemalloc.get_traced_memory()[1] < 3 * sum(map(len, documents))
    finally:
        tracemalloc.stop()
    assert decoded.columns["a"].to_pylist() == [each["a"] for each in values]  # type: ignore[union-attr] # text is in Arrow


def test_a_schema_that_is_no_record_has_no_blocks() -> None:
    """A reader of a schema that is no record does not support blocks."""
    reader = AvroReader(RegisteredSchema('"long"'))
    assert not reader.reads_blocks
    with pytest.raises(BadRecord):
        reader.block([b"\2"], 0, {})


def test_numbers_of_every_length() -> None:
    """Varints of one to ten bytes are decoded next to each other."""
    avro = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    edges = [sign * 2**power + step for power in range(63) for sign in (1, -1) for step in (-1, 0, 1)]
    numbers = [*edges, 2**63 - 1, -(2**63)]
    decoded = block(
        AvroReader(RegisteredSchema(json.dumps(avro))), written(avro, [{"a": each} for each in numbers]), ["a"]
    )
    assert [each["a"] for each in decoded] == numbers
