"""JSON without schemas: the cells of a row do not depend on the rows that are decoded with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records.envelopes import change, key

from headrace.core.decode.codec import MAP_NOTE
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.events import CellState, Changes, Operation
from headrace.core.model.inferred_types import resolve_untyped_nulls, to_table_type
from headrace.core.model.notes import Note

TYPES = {"id": pa.int64(), "size": pa.int64(), "name": pa.string(), "tags": pa.list_(pa.string()), "on": pa.bool_()}
STORED = pa.schema(TYPES)
CELLS = {
    "size": st.none() | st.integers(0, 9),
    "name": st.none() | st.sampled_from(["a", "b", "__debezium_unavailable_value"]),
    "tags": st.none() | st.lists(st.sampled_from("xy"), max_size=2),
    "on": st.none() | st.booleans(),
}
rows = st.fixed_dictionaries({"id": st.integers(1, 3)}, optional=CELLS)
events = st.lists(st.tuples(st.sampled_from("cruud"), rows), max_size=8)
Event = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes | None
    offset: int
    partition: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


def enveloped(offset: int, op: str, row: dict[str, Any]) -> Record:
    after = None if op == "d" else row
    value = change(op, after, offset + 1, columns={"id": 1}, schemas=False)
    return Record(key({"id": row["id"]}, schemas=False), value, offset)


def flattened(offset: int, op: str, row: dict[str, Any]) -> Record:
    added = {"__op": op, "__lsn": offset + 1, "__deleted": str(op == "d").lower()}
    return Record(key({"id": row["id"]}, schemas=False), json.dumps(row | added).encode(), offset)


def cells(records: Sequence[Record], size: int) -> Iterator[tuple[Any, ...]]:
    """Yield operation, key and cells of each row; the decoder gets ``size`` records at a time."""
    decoder = TopicDecoder("t", EnvelopeOptions(False, False))
    for begin in range(0, len(records), size):
        decoded = decoder.decode(records[begin : begin + size])
        assert decoded.errant == []
        for piece in decoded.events:
            assert isinstance(piece, Changes)
            changes = resolve_untyped_nulls(piece, STORED)
            for place, operation in enumerate(changes.operation.tolist()):
                found = {} if operation == Operation.DELETE else dict(_row(changes, place))
                yield operation, changes.key[place].as_py(), found


def _row(changes: Changes, place: int) -> Iterator[tuple[str, Any]]:
    for column in changes.columns:
        values = to_table_type(column.values, STORED.field(column.name).type)
        value = None if values is None else values[place].as_py()
        state = CellState.NULL if value is None else CellState.VALUE
        if column.states is not None:
            state = CellState(int(column.states[place]))
        if state is not CellState.ABSENT:  # as where the piece has no such column
            yield column.name, (state, value)


@pytest.mark.parametrize("form", [enveloped, flattened])
@given(made=events, size=st.integers(1, 4))
def test_any_chunking_gives_the_same_cells(form: Any, made: Sequence[Event], size: int) -> None:
    """A field that an event lacks is absent from its row, whether or not other events of the chunk have it."""
    records = [form(offset, *event) for offset, event in enumerate(made)]
    assert list(cells(records, size)) == list(cells(records, 100))


def test_a_dropped_column_is_absent() -> None:
    """An event without the field has no cell of the column, so that an update keeps the stored value."""
    records = [enveloped(0, "u", {"id": 1, "size": 2}), enveloped(1, "u", {"id": 1}), enveloped(2, "u", {"id": 1})]
    assert [each[2].keys() for each in cells(records, 3)] == [{"id", "size"}, {"id"}, {"id"}]


def test_objects_with_different_members_are_noted_as_a_map() -> None:
    """A struct has a fixed set of members, so the decoder makes a map of objects with different ones, with a note."""
    decoder = TopicDecoder("t", EnvelopeOptions(False, False))
    alike = [enveloped(0, "c", {"id": 1, "doc": {"a": "x"}}), enveloped(1, "c", {"id": 2, "doc": {"a": None}})]
    assert decoder.decode(alike).notes == []
    others = [enveloped(2, "c", {"id": 3, "doc": {"a": "x"}}), enveloped(3, "c", {"id": 4, "doc": {"b": "x"}})]
    assert decoder.decode(others).notes == [Note(MAP_NOTE, "doc")]
