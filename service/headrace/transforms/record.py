"""Kafka Connect's ``SinkRecord``, which transforms take and return, and functions for its structs and maps.

Tests: ``tests/unit/transforms/test_values.py``, ``tests/unit/transforms/test_recorded.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec
from cachetools import LRUCache

from headrace.converters.conversion import Converter
from headrace.core.decode.json_converter import json_type
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.schema import Field, Schema
from headrace.transforms.literals import parse_literal

NOTHING = SchemaAndValue(None, None)
"""The key or value of a record without one."""

Header = tuple[str, "bytes | SchemaAndValue | None"]
"""A header's name and value: the bytes from Kafka, or data that a transform has added."""


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record. ``partition`` and ``offset`` are those in Kafka, also after a transform has renamed the topic.

    A ``timestamp`` below zero is none, as with Kafka's clients.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: SchemaAndValue
    value: SchemaAndValue
    headers: tuple[Header, ...] = ()
    header_converter: Converter | None = None
    """The converter of headers that are bytes; None is SimpleHeaderConverter, which infers their type."""

    def header_value(self, header: Header) -> SchemaAndValue:
        """Convert a header to data, if it is bytes. Raises BadRecord (stage HEADER_CONVERTER)."""
        _, value = header
        if isinstance(value, SchemaAndValue):
            return value
        if value is None:
            return NOTHING
        if self.header_converter is None:
            return parse_literal(value.decode("utf-8", "replace"))
        try:
            return self.header_converter.to_connect_data(value, ())
        except BadRecord as error:
            error.stage = Stage.HEADER_CONVERTER
            raise

    def with_topic(self, topic: str) -> SinkRecord:
        return self if topic == self.topic else replace(self, topic=topic)

    def with_header(self, name: str, value: SchemaAndValue) -> SinkRecord:
        return replace(self, headers=(*self.headers, (name, value)))


Transform = Callable[[SinkRecord], "SinkRecord | None"]
"""Returns the transformed record, None if it is dropped. Raises BadRecord if it cannot transform the record."""

Predicate = Callable[[SinkRecord], bool]


class Side(StrEnum):
    """The half of a record that a ``$Key`` or ``$Value`` class works on."""

    KEY = "Key"
    VALUE = "Value"

    def of(self, record: SinkRecord) -> SchemaAndValue:
        return record.key if self is Side.KEY else record.value

    def put(self, record: SinkRecord, data: SchemaAndValue) -> SinkRecord:
        return replace(record, key=data) if self is Side.KEY else replace(record, value=data)


def unusable(message: str) -> BadRecord:
    """Return the error for a record that a transform cannot use. The message must not contain a value."""
    return BadRecord(message, stage=Stage.TRANSFORMATION)


DECIMAL = "org.apache.kafka.connect.data.Decimal"
DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"

OPTIONAL_STRING = Schema("string", optional=True)
_SCHEMAS = 64  # a topic has a handful

_JAVA_CLASSES = {
    "boolean": "java.lang.Boolean",
    "int8": "java.lang.Byte",
    "int16": "java.lang.Short",
    "int32": "java.lang.Integer",
    "int64": "java.lang.Long",
    "float": "java.lang.Float",
    "double": "java.lang.Double",
    "string": "java.lang.String",
    "bytes": "byte array",
    "array": "java.util.ArrayList",
    "map": "java.util.HashMap",
    "struct": "org.apache.kafka.connect.data.Struct",
}
_LOGICAL_CLASSES = {DECIMAL: "java.math.BigDecimal", **dict.fromkeys((DATE, TIME, TIMESTAMP), "java.util.Date")}


def schemaless_type(value: Any) -> str:
    """Return the type of a schemaless value in Connect."""
    if isinstance(value, bool):
        return "boolean"
    types = ((int, "int64"), (float, "double"), (str, "string"), (bytes, "bytes"), (dict, "map"), (list, "array"))
    return next((name for python_type, name in types if isinstance(value, python_type)), "unknown")


def class_of(data: SchemaAndValue) -> str:
    """Return the Java class of a value, as in Connect's messages."""
    if data.value is None:
        return "null"
    if data.schema is None:
        return _JAVA_CLASSES.get(schemaless_type(data.value), "unknown")
    return _LOGICAL_CLASSES.get(data.schema.name or "") or _JAVA_CLASSES[data.schema.type]


def struct(data: SchemaAndValue, purpose: str) -> tuple[Schema, dict[str, Any]]:
    """Return the schema and the members of a struct. Raises BadRecord, with Connect's message, for anything else."""
    if data.schema is None or data.schema.type != "struct" or data.value is None:
        raise unusable(f"Only Struct objects supported for [{purpose}], found: {class_of(data)}")
    return data.schema, data.value


def plain_map(data: SchemaAndValue, purpose: str) -> dict[str, Any]:
    """Return the members of schemaless data. Raises BadRecord, with Connect's message, for anything else."""
    if not isinstance(data.value, dict):
        java_class = class_of(data)
        raise unusable(f"Only Map objects supported in absence of schema for [{purpose}], found: {java_class}")
    return data.value


def default_of(schema: Schema) -> Any:
    """Return the default of a schema as a value, or None."""
    if schema.default is None:
        return None
    return msgspec.convert({"v": schema.default}, dict[str, json_type(schema)], strict=False)["v"]  # type: ignore[misc] # built at run time


def cell(values: dict[str, Any], member: Field, *, default: bool = True) -> Any:
    """Return a member of a struct, or its schema's default instead of a null if ``default`` is true."""
    value = values.get(member.name)
    return default_of(member.schema) if value is None and default else value


def cells(schema: Schema, values: dict[str, Any], *, default: bool = True) -> dict[str, Any]:
    return {member.name: cell(values, member, default=default) for member in schema.fields}


def with_fields(schema: Schema, fields: Iterable[Field]) -> Schema:
    """Return a required struct schema with other fields; the rest is copied as by Connect's ``copySchemaBasics``."""
    return replace(schema, optional=False, default=None, fields=unique(fields))


def unique(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return the fields of a new schema. Raises BadRecord if two have the same name."""
    members = tuple(fields)
    names = [member.name for member in members]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise unusable(f"Cannot create field because of field name duplication {twice}")
    return members


class SchemaMemo:
    """Derive schemas from schemas, once for each, because decoders recognize a schema by its identity."""

    def __init__(self, make: Callable[..., Schema]) -> None:
        self._make = make
        self._made: LRUCache[tuple[Any, ...], tuple[Schema, Schema]] = LRUCache(_SCHEMAS)

    def __call__(self, schema: Schema, *others: Any) -> Schema:
        key = (id(schema), *others)
        if key not in self._made:
            self._made[key] = (schema, self._make(schema, *others))  # holds the schema, so that its id stays unique
        return self._made[key][1]
