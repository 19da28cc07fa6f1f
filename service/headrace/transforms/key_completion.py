"""Complete records whose keys a chain has changed: each field of the key must be a column of the row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cachetools import LRUCache

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import PRIMITIVES, Field, Schema
from headrace.transforms.record import Side, SinkRecord
from headrace.transforms.unwrap import is_envelope

_IMAGES = ("before", "after")
_Made = tuple[Schema, Schema, Schema, tuple[str, ...]]


class KeyCompletion:
    """Add the fields of keys that rows do not have, such as ByLogicalTableRouter's.

    ``named`` are the key columns of the connector's configuration: a key that is not a struct becomes the only one.
    """

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = named
        self._made: LRUCache[tuple[int, int], _Made] = LRUCache(64)
        self._structs: LRUCache[int, tuple[Schema, Schema]] = LRUCache(64)

    def completed(self, record: SinkRecord) -> SinkRecord:
        """Return the record with a key that is a struct, and with all fields of the key in its row."""
        record = self._with_struct(record)
        key, value = record.key, record.value
        if not isinstance(key.value, dict) or not isinstance(value.value, dict):
            return record
        if key.schema is not None and value.schema is not None:
            return self._completed(record, key.schema, value.schema)
        if key.schema is None and value.schema is None and _is_event(value.value):
            return Side.VALUE.put(record, SchemaAndValue(None, _filled(value.value, key.value, tuple(key.value))))
        return record

    def _with_struct(self, record: SinkRecord) -> SinkRecord:
        key = record.key
        if len(self._named) != 1 or key.value is None or isinstance(key.value, dict):
            return record
        [name] = self._named
        schema = None
        if key.schema is not None:
            if key.schema.type not in PRIMITIVES:
                return record
            if id(key.schema) not in self._structs:
                made = Schema("struct", fields=(Field(name, key.schema),))
                self._structs[id(key.schema)] = key.schema, made
            schema = self._structs[id(key.schema)][1]
        return replace(record, key=SchemaAndValue(schema, {name: key.value}))

    def _completed(self, record: SinkRecord, key: Schema, value: Schema) -> SinkRecord:
        known = id(key), id(value)
        if known not in self._made:
            self._made[known] = key, value, *_with_fields(value, key.fields)
        *_, schema, missing = self._made[known]
        if not missing:
            return record
        return Side.VALUE.put(record, SchemaAndValue(schema, _filled(record.value.value, record.key.value, missing)))


def _with_fields(value: Schema, fields: tuple[Field, ...]) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema of a value with ``fields`` added to its row, and the names of the added fields."""
    row = value.field("after") if is_envelope(value) else value
    if row is None or row.type != "struct":
        return value, ()
    names = {member.name for member in row.fields}
    added = tuple(member for member in fields if member.name not in names)
    longer = replace(row, fields=(*row.fields, *added))
    if not is_envelope(value):
        return longer, tuple(member.name for member in added)
    members = (Field(each.name, longer if each.name in _IMAGES else each.schema) for each in value.fields)
    return replace(value, fields=tuple(members)), tuple(member.name for member in added)


def _is_event(value: dict[str, Any]) -> bool:
    """Whether a value is an envelope. Other values without a schema may not be rows, such as heartbeats."""
    return "op" in value and ("after" in value or "before" in value)


def _filled(value: dict[str, Any], key: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Add the key's fields ``names`` to the row of a value, if it does not have them."""
    if _is_event(value):
        return {
            name: _filled(each, key, names) if name in _IMAGES and isinstance(each, dict) else each
            for name, each in value.items()
        }
    return {**{name: key.get(name) for name in names if name not in value}, **value}
