"""Transforms that choose, rename, mask and insert the fields of a key or value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.core.decode.json_converter import unscaled_bytes
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import Side, SinkRecord, unusable
from headrace.transforms.structs import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    SchemaMemo,
    cell,
    cells,
    class_of,
    plain_map,
    remade,
    schemaless_type,
    struct,
)


class ReplaceField:
    """Remove and rename fields."""

    def __init__(
        self,
        side: Side,
        exclude: Sequence[str],
        include: Sequence[str],
        renames: Mapping[str, str],
        default: bool = True,
    ) -> None:
        self._side, self._default = side, default
        self._exclude, self._include, self._renames = frozenset(exclude), frozenset(include), dict(renames)
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the selected fields."""
        data = self._side.of(record)
        if data.value is None:
            return record
        if data.schema is None:
            plain = plain_map(data, "field replacement")
            values = {self._renamed(name): value for name, value in plain.items() if self._wants(name)}
            return self._side.put(record, SchemaAndValue(None, values))
        schema, before = struct(data, "field replacement")
        values = {
            self._renamed(member.name): cell(before, member, default=self._default)
            for member in schema.fields
            if self._wants(member.name)
        }
        return self._side.put(record, SchemaAndValue(self._schemas(schema), values))

    def _schema(self, schema: Schema) -> Schema:
        wanted = (member for member in schema.fields if self._wants(member.name))
        return remade(schema, (Field(self._renamed(member.name), member.schema) for member in wanted))

    def _wants(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _renamed(self, name: str) -> str:
        return self._renames.get(name, name)


class MaskField:
    """Replace a field's value by the empty value of its type, or by a configured text."""

    _EMPTY: Mapping[str, Any] = {
        "boolean": False,
        **dict.fromkeys(("int8", "int16", "int32", "int64"), 0),
        **dict.fromkeys(("float", "double"), 0.0),
        "string": "",
        "array": [],
        "map": {},
    }

    def __init__(self, side: Side, fields: Sequence[str], replacement: str | None = None, default: bool = True) -> None:
        self._side, self._default = side, default
        self._fields = frozenset(fields)
        self._replacement = replacement or None

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with masked fields."""
        data = self._side.of(record)
        if data.schema is None:
            plain = plain_map(data, "mask fields")
            masked = {name: self._masked(SchemaAndValue(None, plain.get(name))) for name in self._fields}
            return self._side.put(record, SchemaAndValue(None, {**plain, **masked}))
        schema, values = struct(data, "mask fields")
        kept = cells(schema, values, default=self._default)
        for member in schema.fields:
            if member.name in self._fields:
                kept[member.name] = self._masked(SchemaAndValue(member.schema, kept[member.name]))
        return self._side.put(record, SchemaAndValue(schema, kept))

    def _masked(self, data: SchemaAndValue) -> Any:
        if data.value is None:
            return None
        kind = schemaless_type(data.value) if data.schema is None else data.schema.type
        name = None if data.schema is None else data.schema.name
        if self._replacement is not None:
            return self._replaced(data, kind, name, self._replacement)
        if name == DECIMAL:
            return b"\0"
        if kind == "map" and isinstance(data.value, list):
            return []
        if kind not in self._EMPTY:
            raise unusable(f"Cannot mask value of type: class {class_of(data)}")
        return self._EMPTY[kind]

    @staticmethod
    def _replaced(data: SchemaAndValue, type_name: str, name: str | None, text: str) -> Any:
        """Convert the configured text to the field's type."""
        try:
            if type_name == "string":
                return text
            if name in (DATE, TIME, TIMESTAMP):
                raise ValueError
            if type_name.startswith("int"):
                return int(text)
            if type_name in ("float", "double"):
                return float(text)
            if data.schema is not None and name == DECIMAL and (number := Decimal(text)).is_finite():
                return unscaled_bytes(number, int(data.schema.parameter("scale") or 0))
        except (ValueError, InvalidOperation):
            pass
        raise unusable(f"Cannot mask value of type {class_of(data)} with custom replacement.")


@dataclass(frozen=True, slots=True)
class Insertion:
    """A field to insert: ``name`` and ``name?`` are optional, ``name!`` is required."""

    name: str
    optional: bool

    @classmethod
    def parse(cls, text: str | None) -> Insertion | None:
        """Parse an option's value."""
        if text is None:
            return None
        return cls(text[:-1] if text.endswith(("?", "!")) else text, not text.endswith("!"))


class InsertField:
    """Insert fields with the record's topic, partition, offset or timestamp, or with a fixed text."""

    def __init__(
        self,
        side: Side,
        topic: str | None = None,
        partition: str | None = None,
        offset: str | None = None,
        timestamp: str | None = None,
        static: str | None = None,
        static_value: str | None = None,
        default: bool = True,
    ) -> None:
        self._side, self._default, self._text = side, default, static_value
        wanted = (
            (topic, "string", None, lambda record: record.topic),
            (partition, "int32", None, lambda record: record.partition),
            (offset, "int64", None, lambda record: record.offset),
            (timestamp, "int64", TIMESTAMP, lambda record: record.timestamp if record.timestamp >= 0 else None),
            (static, "string", None, lambda _: self._text),
        )
        self._insertions = [
            (insertion.name, Schema(kind, insertion.optional, name, None if name is None else 1), value)
            for text, kind, name, value in wanted
            if (insertion := Insertion.parse(text)) is not None
        ]
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the fields."""
        data = self._side.of(record)
        if data.value is None:
            return record
        if data.schema is None:
            values, schema = dict(plain_map(data, "field insertion")), None
        else:
            before, members = struct(data, "field insertion")
            values, schema = cells(before, members, default=self._default), self._schemas(before)
        values |= {name: value(record) for name, _, value in self._insertions}
        return self._side.put(record, SchemaAndValue(schema, values))

    def _schema(self, schema: Schema) -> Schema:
        return remade(schema, (*schema.fields, *(Field(name, kind) for name, kind, _ in self._insertions)))


class ValueToKey:
    """Make a key of fields of the value."""

    def __init__(self, fields: Sequence[str], default: bool = True) -> None:
        self._fields, self._default = tuple(fields), default
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the key."""
        data = record.value
        if data.schema is None:
            plain = plain_map(data, "copying fields from value to key")
            return Side.KEY.put(record, SchemaAndValue(None, {name: plain.get(name) for name in self._fields}))
        schema, values = struct(data, "copying fields from value to key")
        made = self._schemas(schema)
        return Side.KEY.put(record, SchemaAndValue(made, cells(made, values, default=self._default)))

    def _schema(self, schema: Schema) -> Schema:
        members = []
        for name in self._fields:
            kind = schema.field(name)
            if kind is None:
                raise unusable(f"Field does not exist: {name}")
            members.append(Field(name, kind))
        return Schema("struct", fields=tuple(members))
