"""The transform TimestampConverter: convert times to text, numbers, or Connect's Date, Time and Timestamp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.java_dates import DateFormat
from headrace.transforms.record import Side, SinkRecord, unusable
from headrace.transforms.structs import (
    DATE,
    TIME,
    TIMESTAMP,
    SchemaMemo,
    cell,
    class_of,
    plain_map,
    remade,
    struct,
)

_DAY = 86_400_000
_KINDS = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}
TYPES = {
    "string": Schema("string"),
    "unix": Schema("int64"),
    "Date": Schema("int32", name=DATE, version=1),
    "Time": Schema("int32", name=TIME, version=1),
    "Timestamp": Schema("int64", name=TIMESTAMP, version=1),
}
_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
PRECISIONS = tuple(_PER_SECOND)


class TimestampConverter:
    """Convert one field, or a complete key or value."""

    def __init__(
        self,
        side: Side,
        field: str,
        target: str,
        pattern: str,
        precision: str = "milliseconds",
        default: bool = True,
    ) -> None:
        self._side, self._field, self._target, self._default = side, field, target, default
        self._dates = DateFormat(pattern) if pattern else None
        self._per_second = _PER_SECOND[precision]
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the time converted."""
        data = self._side.of(record)
        if data.schema is None and data.value is None:
            return record
        return self._side.put(record, self._plain(data) if data.schema is None else self._typed(data.schema, data))

    def _plain(self, data: SchemaAndValue) -> SchemaAndValue:
        if not self._field:
            return SchemaAndValue(None, self._converted(_plain_kind(data), data.value))
        values = dict(plain_map(data, "converting timestamp formats"))
        value = values.get(self._field)
        representation = _plain_kind(SchemaAndValue(None, value)) if value is not None else ""
        values[self._field] = self._converted(representation, value)
        return SchemaAndValue(None, values)

    def _typed(self, schema: Schema, data: SchemaAndValue) -> SchemaAndValue:
        if not self._field:
            return SchemaAndValue(self._schemas(schema), self._converted(_kind(schema), data.value))
        if data.value is None:
            return SchemaAndValue(self._schemas(schema), None)
        _, values = struct(data, "converting timestamp formats")
        converted = {}
        for member in schema.fields:
            value = cell(values, member, default=self._default)
            mine = member.name == self._field
            converted[member.name] = self._converted(_kind(member.schema), value) if mine else value
        return SchemaAndValue(self._schemas(schema), converted)

    def _schema(self, schema: Schema) -> Schema:
        if not self._field:
            return self._target_schema(schema)
        fields = (
            Field(member.name, self._target_schema(member.schema)) if member.name == self._field else member
            for member in schema.fields
        )
        return replace(remade(schema, fields), optional=schema.optional)

    def _target_schema(self, schema: Schema) -> Schema:
        return replace(TYPES[self._target], optional=schema.optional)

    def _converted(self, representation: str, value: Any) -> Any:
        return None if value is None else self._written(self._milliseconds(representation, value))

    def _milliseconds(self, representation: str, value: Any) -> int:
        if representation == "string":
            if self._dates is None:
                raise unusable("TimestampConverter: the timestamp is text; set the option format")
            return self._dates.parse(value)
        if representation == "unix":
            return _towards_zero(int(value) * 1000, self._per_second)
        return int(value) * (_DAY if representation == "Date" else 1)

    def _written(self, milliseconds: int) -> Any:
        if self._target == "string" and self._dates is not None:
            return self._dates.format(milliseconds)
        if self._target == "unix":
            return _towards_zero(milliseconds * self._per_second, 1000)
        return {"Date": milliseconds // _DAY, "Time": milliseconds % _DAY}.get(self._target, milliseconds)


def _towards_zero(number: int, divisor: int) -> int:
    """Divide as Java does."""
    return number // divisor if number >= 0 else -(-number // divisor)


def _kind(schema: Schema) -> str:
    """Return the representation of a time, by its schema."""
    representation = _KINDS.get(schema.name or "") or {"string": "string", "int64": "unix"}.get(schema.type)
    if representation is None:
        raise unusable(f"Schema of type {schema.type.upper()} does not correspond to a known timestamp type format")
    return representation


def _plain_kind(data: SchemaAndValue) -> str:
    """Return the representation of a time without a schema."""
    if isinstance(data.value, str):
        return "string"
    if isinstance(data.value, int) and not isinstance(data.value, bool):
        return "unix"
    raise unusable(f"TimestampConverter does not support class {class_of(data)} objects as timestamps")
