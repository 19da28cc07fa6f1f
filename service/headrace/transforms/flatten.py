"""The transform Flatten: nested structs become one struct."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import Side, SinkRecord, unusable
from headrace.transforms.structs import SchemaMemo, default_of, plain_map, remade, struct


class Flatten:
    """Replace nested structs by their members, with joined names."""

    def __init__(self, side: Side, delimiter: str = ".") -> None:
        self._side, self._delimiter = side, delimiter
        self._schemas = SchemaMemo(lambda schema: remade(schema, self._fields(schema, "", schema.optional, None)))

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record without nested structs."""
        data = self._side.of(record)
        if data.value is None:
            return record
        flat: dict[str, Any] = {}
        if data.schema is None:
            self._flatten_map(plain_map(data, "flattening"), "", flat)
            return self._side.put(record, SchemaAndValue(None, flat))
        schema, values = struct(data, "flattening")
        made = self._schemas(schema)
        self._flatten(schema, values, "", flat)
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

    def _flatten(self, schema: Schema, values: Mapping[str, Any] | None, prefix: str, flat: dict[str, Any]) -> None:
        for member in schema.fields:
            name = self._name(prefix, member.name)
            value = None if values is None else values.get(member.name)
            value = default_of(member.schema) if value is None and values is not None else value
            if member.schema.type == "struct":
                self._flatten(member.schema, value, name, flat)
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
