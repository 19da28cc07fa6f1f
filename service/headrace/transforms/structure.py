"""Transforms of a complete key or value: ExtractField, HoistField, SetSchemaMetadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import Side, SinkRecord, unusable
from headrace.transforms.structs import SchemaMemo, cell, cells, plain_map, struct


def field_path(text: str, version: str = "V1") -> tuple[str, ...]:
    """Return the steps of a field's path: the name itself in V1, the parts between dots in V2 (KIP-821).

    In V2, backticks quote a part that contains dots, and a backslash escapes a backtick. Raises ValueError for an
    unterminated quote.
    """
    if version.upper() == "V1":
        return (text,)
    steps, index = [], 0
    while index < len(text):
        if text[index] == "`":
            step, index = _quoted_step(text, index)
        else:
            end = text.find(".", index)
            step, index = (text[index:], len(text)) if end < 0 else (text[index:end], end + 1)
        steps.append(step)
    return tuple([*steps, ""] if text.endswith(".") else steps)


def _quoted_step(text: str, begin: int) -> tuple[str, int]:
    step, place = "", begin + 1
    while True:
        end = text.find("`", place)
        last = end == len(text) - 1
        escaped = text[end - 1] == "\\"
        if end < 0 or (last and escaped):
            raise ValueError(
                f"Incomplete backtick pair in path: [{text}], "
                f"consider adding a backslash before backtick at position {begin} to escape it"
            )
        if last:
            return step + text[place:end], len(text)
        if text[end + 1] != ".":
            step, place = step + text[place : end + 1], end + 1
        elif escaped:
            step, place = step + text[place : end - 1] + "`", end + 1
        else:
            return step + text[place:end], end + 2


class ExtractField:
    """Puts one field of a key or value in its place."""

    def __init__(self, side: Side, field: str, version: str = "V1", default: bool = True) -> None:
        self._side, self._name, self._default = side, field, default
        self._path = field_path(field, version)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the field as its key or value."""
        data = self._side.of(record)
        if data.schema is None:
            return self._side.put(record, SchemaAndValue(None, self._of_map(data)))
        schema, value = data.schema, data.value
        for place, step in enumerate(self._path):
            if value is not None:
                struct(SchemaAndValue(schema, value), "field extraction" if place == 0 else "nested field access")
            member = next((each for each in schema.fields if each.name == step), None)
            if member is None:
                raise unusable(f"Unknown field: {self._name}")
            value = None if value is None else cell(value, member, default=self._default)
            schema = member.schema
        return self._side.put(record, SchemaAndValue(schema, value))

    def _of_map(self, data: SchemaAndValue) -> Any:
        for step in self._path:
            if data.value is None:
                return None
            data = SchemaAndValue(None, plain_map(data, "field extraction").get(step))
        return data.value


class HoistField:
    """Wraps a key or value into a struct of one field."""

    def __init__(self, side: Side, field: str) -> None:
        self._side, self._name = side, field
        self._schemas = SchemaMemo(lambda schema: Schema("struct", fields=(Field(field, schema),)))

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the struct."""
        data = self._side.of(record)
        schema = None if data.schema is None else self._schemas(data.schema)
        return self._side.put(record, SchemaAndValue(schema, {self._name: data.value}))


class SetSchemaMetadata:
    """Gives a schema another name or version."""

    def __init__(self, side: Side, name: str | None, version: int | None, default: bool = True) -> None:
        self._side, self._name, self._version, self._default = side, name, version, default
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the schema. Raises BadRecord for schemaless data."""
        data = self._side.of(record)
        if data.schema is None and data.value is None:
            return record
        if data.schema is None:
            raise unusable("Schema required for [updating schema metadata]")
        if data.value is None:
            return self._side.put(record, SchemaAndValue(self._schemas(data.schema), None))
        schema, values = struct(data, "updating schema metadata")  # Connect 4.3 takes no other type either
        kept = cells(schema, values, default=self._default)
        return self._side.put(record, SchemaAndValue(self._schemas(schema), kept))

    def _schema(self, schema: Schema) -> Schema:
        version = schema.version if self._version is None else self._version
        return replace(schema, name=self._name or schema.name, version=version)
