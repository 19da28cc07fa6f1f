"""Rows that lack what their schema requires (``connect.md`` section 11)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.records.envelopes import key

from headrace.converters.conversion import converting_decoder
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain
from headrace_dev.memory.feed import MemoryRecord

TOPIC = "shop.public.items"
FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "int32", "optional": False, "field": "count"},
    {"type": "int32", "optional": False, "default": 7, "field": "size"},
    {"type": "string", "optional": True, "field": "name"},
]
WHOLE = {"id": 1, "count": 2, "size": 3, "name": "a"}
SOURCE = {"connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "items", "lsn": 5}
DROP = {"transforms": "drop", "transforms.drop.type": "DropHeaders", "transforms.drop.headers": "x"}


def envelope(after: dict[str, Any] | None, before: dict[str, Any] | None = None, op: str = "c") -> bytes:
    row = {"type": "struct", "name": "shop.public.items.Value", "optional": True, "fields": FIELDS}
    members = [row | {"field": "before"}, row | {"field": "after"}, {"type": "string", "field": "op"}]
    payload = {"before": before, "after": after, "op": op, "source": SOURCE}
    return document({"type": "struct", "name": "shop.public.items.Envelope", "fields": members}, payload)


def flattened(row: dict[str, Any]) -> bytes:
    return document({"type": "struct", "name": "shop.public.items.Value", "fields": FIELDS}, row)


def document(schema: dict[str, Any], payload: dict[str, Any]) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def decoded(*values: bytes, transformed: bool = False) -> Decoded:
    options = EnvelopeOptions()
    decoder = TransformingDecoder(TOPIC, options, chain(DROP)) if transformed else converting_decoder(TOPIC, options)
    return decoder.decode([MemoryRecord(TOPIC, 0, place, 0, key({"id": 1}), each) for place, each in enumerate(values)])


@pytest.mark.parametrize("transformed", [False, True])
@pytest.mark.parametrize("make", [envelope, flattened])
@pytest.mark.parametrize(
    "lacking", [WHOLE | {"count": None}, {"id": 1, "size": 3, "name": "a"}], ids=["null", "absent"]
)
def test_a_required_field_that_is_null_or_absent_makes_a_bad_record(
    make: Any, lacking: dict[str, Any], transformed: bool
) -> None:
    """The decoder refuses a null that the source cannot have, at the converter's stage, and keeps other records."""
    found = decoded(make(WHOLE), make(lacking), make(WHOLE), transformed=transformed)
    assert [(each.index, each.stage) for each in found.errant] == [(1, Stage.VALUE_CONVERTER)]
    assert "count" in str(found.errant[0].error) or "null" in str(found.errant[0].error)
    assert sum(len(piece) for piece in found.events if isinstance(piece, Changes)) == 2


@pytest.mark.parametrize("make", [envelope, flattened])
@pytest.mark.parametrize("row", [WHOLE | {"name": None}, WHOLE | {"size": None}, {"id": 1, "count": 2}])
def test_optional_fields_and_fields_with_a_default_may_be_null(make: Any, row: dict[str, Any]) -> None:
    """The decoder accepts a null in such a field, and the cell is null."""
    found = decoded(make(row))
    assert found.errant == []
    [piece] = (piece for piece in found.events if isinstance(piece, Changes))
    cells = {column.name: column.values[0].as_py() for column in piece.columns}
    assert cells == {"id": 1, "count": 2, **{name: row.get(name) for name in ("size", "name") if name in cells}}


def test_the_before_of_an_event_may_lack_required_fields() -> None:
    """Sources often send only the key of a deleted row."""
    assert decoded(envelope(None, {"id": 1}, "d"), envelope(WHOLE, {"id": 1}, "u")).errant == []
