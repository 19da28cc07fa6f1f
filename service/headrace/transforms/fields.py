"""Transforms of a key or value: choose, rename, mask, insert, extract and flatten fields; wrap it, or name its schema.

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/transforms/test_laws.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.core.decode.json_converter import unscaled_bytes
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    SchemaMemo,
    Side,
    SinkRecord,
    cell,
    cells,
    class_of,
    default_of,
    plain_map,
    schemaless_type,
    struct,
    unusable,
    with_fields,
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
        data = self._side.of(record)
        if data.value is None:
            return record
        if data.schema is None:
            plain = plain_map(data, "field replacement")
            values = {self._new_name(name): value for name, value in plain.items() if self._wants(name)}
            return self._side.put(record, SchemaAndValue(None, values))
        schema, before = struct(data, "field replacement")
        values = {
            self._new_name(member.name): cell(before, member, default=self._default)
            for member in schema.fields
            if self._wants(member.name)
        }
        return self._side.put(record, SchemaAndValue(self._schemas(schema), values))

    def _schema(self, schema: Schema) -> Schema:
        wanted = (member for member in schema.fields if self._wants(member.name))
        return with_fields(schema, (Field(self._new_name(member.name), member.schema) for member in wanted))

    def _wants(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def _new_name(self, name: str) -> str:
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
        data = self._side.of(record)
        if data.schema is None:
            plain = plain_map(data, "mask fields")
            masked = {name: self._mask(SchemaAndValue(None, plain.get(name))) for name in self._fields}
            return self._side.put(record, SchemaAndValue(None, {**plain, **masked}))
        schema, values = struct(data, "mask fields")
        kept = cells(schema, values, default=self._default)
        for member in schema.fields:
            if member.name in self._fields:
                kept[member.name] = self._mask(SchemaAndValue(member.schema, kept[member.name]))
        return self._side.put(record, SchemaAndValue(schema, kept))

    def _mask(self, data: SchemaAndValue) -> Any:
        if data.value is None:
            return None
        kind = schemaless_type(data.value) if data.schema is None else data.schema.type
        name = None if data.schema is None else data.schema.name
        if self._replacement is not None:
            text = self._replacement
            if kind == "string":
                return text
            try:
                if name in (DATE, TIME, TIMESTAMP):
                    raise ValueError
                if kind.startswith("int"):
                    return int(text)
                if kind in ("float", "double"):
                    return float(text)
                if data.schema is not None and name == DECIMAL and (number := Decimal(text)).is_finite():
                    return unscaled_bytes(number, int(data.schema.parameter("scale") or 0))
            except (ValueError, InvalidOperation):
                pass
            raise unusable(f"Cannot mask value of type {class_of(data)} with custom replacement.")
        if name == DECIMAL:
            return b"\0"
        if kind == "map" and isinstance(data.value, list):
            return []
        if kind not in self._EMPTY:
            raise unusable(f"Cannot mask value of type: class {class_of(data)}")
        return self._EMPTY[kind]


@dataclass(frozen=True, slots=True)
class Insertion:
    """A field to insert: ``name`` and ``name?`` are optional, ``name!`` is required."""

    name: str
    optional: bool

    @classmethod
    def parse(cls, text: str | None) -> Insertion | None:
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
        return with_fields(schema, (*schema.fields, *(Field(name, kind) for name, kind, _ in self._insertions)))


class ValueToKey:
    """Make a key of fields of the value."""

    def __init__(self, fields: Sequence[str], default: bool = True) -> None:
        self._fields, self._default = tuple(fields), default
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
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


class Flatten:
    """Replace nested structs by their members, with joined names."""

    def __init__(self, side: Side, delimiter: str = ".") -> None:
        self._side, self._delimiter = side, delimiter
        self._schemas = SchemaMemo(lambda schema: with_fields(schema, self._fields(schema, "", schema.optional, None)))

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        if data.value is None:
            return record
        flat: dict[str, Any] = {}
        if data.schema is None:
            self._flatten_map(plain_map(data, "flattening"), "", flat)
            return self._side.put(record, SchemaAndValue(None, flat))
        schema, values = struct(data, "flattening")
        made = self._schemas(schema)
        self._flatten_struct(schema, values, "", flat)
        return self._side.put(record, SchemaAndValue(made, flat))

    def _fields(self, schema: Schema, prefix: str, optional: bool, default: Mapping[str, Any] | None) -> list[Field]:
        members = []
        for member in schema.fields:
            name, member_schema = self._name(prefix, member.name), member.schema
            may_lack = optional or member_schema.optional
            inherited = member_schema.default if member_schema.default is not None else (default or {}).get(member.name)
            if member_schema.type == "map":
                raise unusable(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            if member_schema.type == "struct":
                members += self._fields(member_schema, name, may_lack, inherited)
            else:
                made = replace(member_schema, optional=may_lack, default=inherited)
                members.append(Field(name, made))
        return members

    def _flatten_struct(
        self, schema: Schema, values: Mapping[str, Any] | None, prefix: str, flat: dict[str, Any]
    ) -> None:
        for member in schema.fields:
            name = self._name(prefix, member.name)
            value = None if values is None else values.get(member.name)
            value = default_of(member.schema) if value is None and values is not None else value
            if member.schema.type == "struct":
                self._flatten_struct(member.schema, value, name, flat)
            else:
                flat[name] = value

    def _flatten_map(self, values: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for member, value in values.items():
            name = self._name(prefix, member)
            if isinstance(value, dict):
                self._flatten_map(value, name, flat)
            else:
                flat[name] = value

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name


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
    """Replace a key or value by one of its fields."""

    def __init__(self, side: Side, field: str, version: str = "V1", default: bool = True) -> None:
        self._side, self._name, self._default = side, field, default
        self._path = field_path(field, version)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        if data.schema is None:
            for step in self._path:
                if data.value is None:
                    break
                data = SchemaAndValue(None, plain_map(data, "field extraction").get(step))
            return self._side.put(record, SchemaAndValue(None, data.value))
        schema, value = data.schema, data.value
        for place, step in enumerate(self._path):
            if value is not None:
                struct(SchemaAndValue(schema, value), "field extraction" if place == 0 else "nested field access")
            member = next((field for field in schema.fields if field.name == step), None)
            if member is None:
                raise unusable(f"Unknown field: {self._name}")
            value = None if value is None else cell(value, member, default=self._default)
            schema = member.schema
        return self._side.put(record, SchemaAndValue(schema, value))


class HoistField:
    """Wrap a key or value into a struct of one field."""

    def __init__(self, side: Side, field: str) -> None:
        self._side, self._name = side, field
        self._schemas = SchemaMemo(lambda schema: Schema("struct", fields=(Field(field, schema),)))

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        schema = None if data.schema is None else self._schemas(data.schema)
        return self._side.put(record, SchemaAndValue(schema, {self._name: data.value}))


class SetSchemaMetadata:
    """Give a schema another name or version."""

    def __init__(self, side: Side, name: str | None, version: int | None, default: bool = True) -> None:
        self._side, self._name, self._version, self._default = side, name, version, default
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
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
