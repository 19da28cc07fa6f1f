"""Debezium's transforms of columns: geometries and vectors at any depth of a value, and styles of names.

The naming styles of topics and columns are those of Debezium's JDBC sink. Tests:
``tests/unit/transforms/test_recorded.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms import wkb
from headrace.transforms.casting import cast
from headrace.transforms.change_events import is_envelope
from headrace.transforms.record import SchemaMemo, SinkRecord, Transform, struct, unique, unusable

_GEOMETRY = "io.debezium.data.geometry.Geometry"
_DENSE = ("io.debezium.data.DoubleVector", "io.debezium.data.FloatVector")
_SPARSE = "io.debezium.data.SparseDoubleVector"
SRIDS = (4326, 3857, 4269)
"""The reference systems whose coordinates are swapped by default."""


class _Geometries:
    """Change the geometries of a value. A null stays null, where Debezium's classes write its column's default.

    ``change`` returns the new bytes of a geometry, or raises MalformedGeometry. ``nested`` is whether to change
    geometries in arrays and maps.
    """

    def __init__(self, change: Callable[[dict[str, Any]], bytes], *, nested: bool) -> None:
        self._change = change
        self._nested = nested

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = record.value
        if data.schema is None or data.schema.type != "struct" or data.value is None:
            return record
        return replace(record, value=SchemaAndValue(data.schema, self._members(data.schema, data.value)))

    def _value(self, schema: Schema, value: Any) -> Any:
        if value is None:
            return None
        if schema.type == "struct":
            if schema.name != _GEOMETRY:
                return self._members(schema, value)
            try:
                return value | {"wkb": self._change(value)}
            except wkb.MalformedGeometry as error:
                raise unusable(f"A geometry cannot be read: {error}") from None
        if self._nested and schema.type == "array" and schema.items is not None:
            return [self._value(schema.items, item) for item in value]
        if self._nested and schema.type == "map" and schema.values is not None:
            if isinstance(value, dict):
                return {key: self._value(schema.values, item) for key, item in value.items()}
            return [(key, self._value(schema.values, item)) for key, item in value]
        return value

    def _members(self, schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
        return {member.name: self._value(member.schema, value.get(member.name)) for member in schema.fields}


def swap_geometry_coordinates(srids: Collection[int] = SRIDS) -> Transform:
    """Return a transform that exchanges x and y of the geometries of some reference systems."""

    def swap(geometry: dict[str, Any]) -> bytes:
        binary: bytes = geometry["wkb"]
        return wkb.swap_ordinates(binary) if geometry.get("srid") in srids else binary

    return _Geometries(swap, nested=True)


def geometry_format_transformer(*, extend: bool) -> Transform:
    """Return a transform that removes the SRID from extended geometries and, with ``extend``, adds it to plain ones.

    Debezium's class changes its mode permanently at the first extended geometry, so that its result depends on the
    records before. Here every geometry is changed by itself: a replay gives the same table.
    """

    def other_form(geometry: dict[str, Any]) -> bytes:
        binary: bytes = geometry["wkb"]
        if wkb.is_extended(binary):
            return wkb.remove_srid(binary)
        return wkb.add_srid(binary, geometry["srid"]) if extend and geometry.get("srid") is not None else binary

    return _Geometries(other_form, nested=False)


class VectorToJsonConverter:
    """Convert the vectors of a value to JSON, in all its structs."""

    def __init__(self) -> None:
        self._schemas = SchemaMemo(_without_vectors)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        if record.value.value is None:
            return record
        schema, members = struct(record.value, "Value should be a struct")
        return replace(record, value=SchemaAndValue(self._schemas(schema), _with_json(schema, members)))


def _without_vectors(schema: Schema) -> Schema:
    fields = []
    for member in schema.fields:
        member_schema = member.schema
        if member_schema.name in (*_DENSE, _SPARSE):
            member_schema = Schema("string", member_schema.optional, "io.debezium.data.Json", 1)
        elif member_schema.type == "struct":
            member_schema = _without_vectors(member_schema)
        fields.append(Field(member.name, member_schema))
    return replace(schema, fields=tuple(fields))


def _with_json(schema: Schema, members: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for member in schema.fields:
        member_schema, value = member.schema, members.get(member.name)
        if value is None:
            pass
        elif member_schema.name in _DENSE and member_schema.items is not None:
            numbers = ", ".join(_number(member_schema.items, number) for number in value)
            value = f'{{ "values": [{numbers}] }}'
        elif member_schema.name == _SPARSE:
            vector = member_schema.field("vector")
            if vector is None or vector.values is None or value.get("vector") is None:
                raise unusable("A sparse vector has no values")
            number_schema = vector.values
            numbers = ", ".join(
                f'"{index}": {_number(number_schema, number)}'
                for index, number in sorted(dict(value["vector"]).items())
            )
            value = f'{{ "dimensions": {value.get("dimensions")}, "vector": {{ {numbers} }} }}'
        elif member_schema.type == "struct":
            value = _with_json(member_schema, value)
        values[member.name] = value
    return values


def _number(schema: Schema, value: Any) -> str:
    return "null" if value is None else str(cast(SchemaAndValue(schema, value), "string"))


_BOUNDARY = re.compile(r"([a-z])([A-Z])|([a-zA-Z])([0-9])|([0-9])([a-zA-Z])|\.")
_IMAGES = ("before", "after")


def _camel(name: str) -> str:
    first, *others = re.split(r"[._]+", name)
    return first.lower() + "".join(word[:1].upper() + word[1:].lower() for word in others)


STYLES: Mapping[str, Callable[[str], str]] = {
    "SNAKE_CASE": lambda name: _BOUNDARY.sub(r"\1\3\5_\2\4\6", name).lower(),
    "CAMEL_CASE": _camel,
    "UPPER_CASE": str.upper,
    "LOWER_CASE": str.lower,
    "DEFAULT": str,
}
"""Debezium's ``NamingStyle``; names are not case-sensitive."""


class NamingStyle:
    """A style, with a prefix and a suffix of names."""

    def __init__(self, style: str, prefix: str, suffix: str) -> None:
        """Raise ValueError, with Debezium's message, for an unknown style."""
        if style.upper() not in STYLES:
            raise ValueError(f"Invalid naming style: {style}. Allowed styles are: {', '.join(STYLES)}")
        self._styled, self._prefix, self._suffix = STYLES[style.upper()], prefix, suffix

    def __call__(self, name: str) -> str:
        return f"{self._prefix}{self._styled(name)}{self._suffix}"


class CollectionNameTransformation:
    """Rename topics, from which Debezium's JDBC sink derives the names of its tables."""

    def __init__(self, name: NamingStyle) -> None:
        self._name = name

    def __call__(self, record: SinkRecord) -> SinkRecord:
        return record.with_topic(self._name(record.topic))


class FieldNameTransformation:
    """Rename the columns of rows and keys, but not the members of an envelope."""

    def __init__(self, name: NamingStyle) -> None:
        self._name = name
        self._rows, self._envelopes = SchemaMemo(self._rename_columns), SchemaMemo(self._rename_images)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        if record.value.schema is None or record.value.schema.type != "struct":
            return record
        schema, value = record.value.schema, record.value.value
        if not is_envelope(schema):
            return replace(record, key=self._row(record.key), value=self._row(record.value))
        if value is None:
            raise unusable("the record has the schema of a change event, but its value is null")
        images = {name: self._members(value[name]) for name in _IMAGES if value.get(name) is not None}
        return replace(record, key=self._row(record.key), value=SchemaAndValue(self._envelopes(schema), value | images))

    def _row(self, data: SchemaAndValue) -> SchemaAndValue:
        if data.schema is None or data.schema.type != "struct":
            return data
        return SchemaAndValue(self._rows(data.schema), None if data.value is None else self._members(data.value))

    def _members(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {self._name(name): value for name, value in row.items()}

    def _rename_columns(self, schema: Schema) -> Schema:
        fields = (Field(self._name(member.name), member.schema) for member in schema.fields)
        return replace(schema, fields=unique(fields))

    def _rename_images(self, schema: Schema) -> Schema:
        fields = (
            Field(member.name, self._rows(member.schema)) if member.name in _IMAGES else member
            for member in schema.fields
        )
        return replace(schema, fields=tuple(fields))
