"""Convert maps that Avro encodes as lists of entries to the form that ``core/model/connect_data.py`` describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.core.model.schema import Schema


def with_pairs(schema: Schema) -> Callable[[Any], Any] | None:
    """Return a function that converts the entries of maps to pairs; None if the schema has no such map."""
    if schema.type == "struct":
        members = {m.name: shape for m in schema.fields if (shape := with_pairs(m.schema)) is not None}
        if not members:
            return None
        return lambda value: value and {**value, **{name: shape(value[name]) for name, shape in members.items()}}
    if schema.items is not None:
        inner = with_pairs(schema.items)
        return None if inner is None else lambda value: value and [inner(each) for each in value]
    if schema.keys is None or schema.values is None:
        return None
    plain = schema.keys == Schema("string") and with_pairs(schema.values) is None  # an Avro map
    return None if plain else _shaped_map(schema.keys, schema.values)


def _shaped_map(keys: Schema, values: Schema) -> Callable[[Any], Any]:
    key, inner = with_pairs(keys) or _same, with_pairs(values) or _same

    def shaped(given: Any) -> Any:
        if given is None:
            return None
        pairs = [(each["key"], each["value"]) for each in given] if isinstance(given, list) else given.items()
        entries = [(key(name), inner(value)) for name, value in pairs]
        return dict(entries) if keys.type == "string" else entries

    return shaped


def _same(value: Any) -> Any:
    return value
