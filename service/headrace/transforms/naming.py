"""The transforms of Debezium's JDBC sink, which change the naming style of topics and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import SinkRecord, unusable
from headrace.transforms.structs import SchemaMemo, unique
from headrace.transforms.unwrap import is_envelope

_BOUNDARY = re.compile(r"([a-z])([A-Z])|([a-zA-Z])([0-9])|([0-9])([a-zA-Z])|\.")
_IMAGES = ("before", "after")


def _camel(name: str) -> str:
    """Convert a name to camel case; dots and underscores separate its words."""
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
        """The name in this style."""
        return f"{self._prefix}{self._styled(name)}{self._suffix}"


class CollectionNameTransformation:
    """Rename topics, from which Debezium's JDBC sink derives the names of its tables."""

    def __init__(self, name: NamingStyle) -> None:
        self._name = name

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with its new topic."""
        return record.with_topic(self._name(record.topic))


class FieldNameTransformation:
    """Rename the columns of rows and keys, but not the members of an envelope."""

    def __init__(self, name: NamingStyle) -> None:
        self._name = name
        self._rows, self._envelopes = SchemaMemo(self._row_schema), SchemaMemo(self._envelope_schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with its columns renamed; a record whose value is not a struct does not change."""
        if record.value.schema is None or record.value.schema.type != "struct":
            return record
        return replace(record, key=self._row(record.key), value=self._value(record.value.schema, record.value))

    def _value(self, schema: Schema, data: SchemaAndValue) -> SchemaAndValue:
        if not is_envelope(schema):
            return self._row(data)
        if data.value is None:
            raise unusable("the record has the schema of a change event, but its value is null")
        images = {name: self._members(data.value[name]) for name in _IMAGES if data.value.get(name) is not None}
        return SchemaAndValue(self._envelopes(schema), data.value | images)

    def _row(self, data: SchemaAndValue) -> SchemaAndValue:
        if data.schema is None or data.schema.type != "struct":
            return data
        return SchemaAndValue(self._rows(data.schema), None if data.value is None else self._members(data.value))

    def _members(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {self._name(name): value for name, value in row.items()}

    def _row_schema(self, schema: Schema) -> Schema:
        renamed = (Field(self._name(member.name), member.schema) for member in schema.fields)
        return replace(schema, fields=unique(renamed))

    def _envelope_schema(self, schema: Schema) -> Schema:
        members = (
            Field(member.name, self._rows(member.schema)) if member.name in _IMAGES else member
            for member in schema.fields
        )
        return replace(schema, fields=tuple(members))
