"""Debezium's transforms of change events: ExtractChangedRecordState, HeaderToValue, SchemaChangeEventFilter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import Side, SinkRecord, unusable
from headrace.transforms.structs import OPTIONAL_STRING, SchemaMemo, cells, struct, unique
from headrace.transforms.unwrap import is_envelope


class ExtractChangedRecordState:
    """List the changed and the unchanged columns of an update in headers. The lists of other events are empty."""

    def __init__(self, changed: str | None, unchanged: str | None) -> None:
        self._changed = _names_schema(changed)
        self._unchanged = _names_schema(unchanged)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the headers."""
        schema, values = record.value.schema, record.value.value
        if values is None or schema is None or not is_envelope(schema):
            return record
        before, after, row = values.get("before"), values.get("after"), schema.field("after")
        names = [] if before is None or after is None or row is None else [member.name for member in row.fields]
        changed = [name for name in names if before.get(name) != after.get(name)]
        for listing, found in ((self._changed, changed), (self._unchanged, [n for n in names if n not in changed])):
            if listing is not None:
                record = record.with_header(listing.name or "", SchemaAndValue(listing, found))
        return record


def _names_schema(header: str | None) -> Schema | None:
    return Schema("array", optional=True, name=header, items=OPTIONAL_STRING) if header and header.strip() else None


def _has_column_type(schema: Schema | None) -> bool:
    """Whether a column can store values of a schema: not if the elements of a list or map have several types."""
    if schema is None or schema.type not in ("array", "map"):
        return True
    parts = (schema.items,) if schema.type == "array" else (schema.keys, schema.values)
    return None not in parts and all(map(_has_column_type, parts))


class HeaderToValue:
    """Copy or move headers to fields of the value; a dot in a field's name is a path into a struct."""

    def __init__(self, headers: Sequence[str], fields: Sequence[str], *, move: bool) -> None:
        self._places = {header: tuple(field.split(".")) for header, field in zip(headers, fields, strict=True)}
        self._move = move
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the fields."""
        schema, values = struct(record.value, "Header field insertion")
        found = {each[0]: record.header_value(each) for each in record.headers if each[0] in self._places}
        if not found:
            return record
        for name, data in found.items():
            if not _has_column_type(data.schema):
                raise unusable(f"header {name}: the elements of its list or map have no common type")
        kinds = tuple((name, data.schema or OPTIONAL_STRING) for name, data in found.items())
        made = SchemaAndValue(self._schemas(schema, kinds), self._filled(schema, values, found))
        kept = tuple(each for each in record.headers if not (self._move and each[0] in self._places))
        return replace(Side.VALUE.put(record, made), headers=kept)

    def _schema(self, schema: Schema, kinds: tuple[tuple[str, Schema], ...], at: tuple[str, ...] = ()) -> Schema:
        fields = [
            Field(member.name, self._schema(member.schema, kinds, (*at, member.name)))
            if self._goes_into((*at, member.name)) and member.schema.type == "struct"
            else member
            for member in schema.fields
        ]
        fields += [Field(self._places[name][-1], kind) for name, kind in kinds if self._places[name][:-1] == at]
        return replace(schema, fields=unique(fields), optional=bool(at) and schema.optional, default=None)

    def _filled(
        self, schema: Schema, values: dict[str, Any], found: Mapping[str, SchemaAndValue], at: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """The members of the new struct, in which a null becomes its default as in Debezium."""
        made = cells(schema, values)
        for member in schema.fields:
            value = made[member.name]
            if isinstance(value, dict) and member.schema.type == "struct" and self._goes_into((*at, member.name)):
                made[member.name] = self._filled(member.schema, value, found, (*at, member.name))
        return made | {self._places[n][-1]: data.value for n, data in found.items() if self._places[n][:-1] == at}

    def _goes_into(self, path: tuple[str, ...]) -> bool:
        return any(place[: len(path)] == path and len(place) > len(path) for place in self._places.values())


class SchemaChangeEventFilter:
    """Drop the schema change events of some types (``CREATE``, ``ALTER``, ``DROP``, ``TRUNCATE``, ``DATABASE``)."""

    def __init__(self, excluded: Sequence[str]) -> None:
        self._excluded = frozenset(excluded)

    def __call__(self, record: SinkRecord) -> SinkRecord | None:
        """The record, None for one of these types."""
        schema, values = record.value.schema, record.value.value
        if values is None or schema is None or not (schema.name or "").endswith("SchemaChangeValue"):
            return record
        changes = values.get("tableChanges")
        if changes is None:
            return None
        kind = changes[0].get("type") if changes else "DATABASE"
        return None if kind in self._excluded else record
