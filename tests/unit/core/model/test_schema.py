"""Connect schemas are read from JSON and compared by value."""

from __future__ import annotations

import pytest

from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema, schema_from_json

DOCUMENT = {
    "type": "struct",
    "name": "shop.Value",
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "array", "items": {"type": "string", "optional": True}, "optional": True, "field": "tags"},
        {"type": "map", "keys": {"type": "string"}, "values": {"type": "int64"}, "field": "counts"},
        {"type": "bytes", "name": "D", "version": 1, "parameters": {"b": "2", "a": "1"}, "default": "x", "field": "d"},
    ],
}


def test_reading_gives_the_schema() -> None:
    """``schema_from_json`` reads structs, arrays and maps, and sorts the parameters of a schema."""
    schema = schema_from_json(DOCUMENT)
    assert schema.field("tags") == Schema("array", optional=True, items=Schema("string", optional=True))
    assert schema.field("counts") == Schema("map", keys=Schema("string"), values=Schema("int64"))
    decimal = schema.field("d")
    assert decimal is not None
    assert decimal.parameters == (("a", "1"), ("b", "2"))
    assert decimal.parameter("b") == "2"
    assert schema.field("nope") is None


def test_schemas_are_equal_by_their_types() -> None:
    """Schemas are equal if their types are equal; defaults do not count."""
    assert schema_from_json(DOCUMENT) == schema_from_json(DOCUMENT)
    assert Schema("int32", default=1) == Schema("int32")
    assert hash(Schema("struct", fields=(Field("a", Schema("int8")),)))


def test_an_unknown_type_is_a_bad_record() -> None:
    """An unknown type is a bad record whose message names the type."""
    with pytest.raises(BadRecord, match="unknown schema type 'uint8'"):
        schema_from_json({"type": "uint8"})


def test_members_of_a_wrong_type_are_ignored() -> None:
    """Members of a schema with a wrong JSON type are ignored, as in Kafka Connect."""
    odd = {"type": "int32", "optional": 1, "name": ["a"], "version": "1", "parameters": "x", "default": {}}
    assert schema_from_json(odd) == Schema("int32")


@pytest.mark.parametrize(
    "members",
    [
        {"type": "int32", "parameters": {"a": 1}},
        {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "two"}},
        {"type": "struct", "fields": [{"type": "int32", "field": 5}]},
        {"type": "struct", "fields": [{"type": "int32", "field": "a"}, {"type": "int32", "field": "a"}]},
    ],
)
def test_an_invalid_schema_is_a_bad_record(members: dict[str, object]) -> None:
    """A parameter or field name that is no text, a scale that is no number, and a repeated field name are refused."""
    with pytest.raises(BadRecord):
        schema_from_json(members)
