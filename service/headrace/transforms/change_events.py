"""Debezium's transforms of change events (``connect.md`` section 14.2), above all ``ExtractNewRecordState``.

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/transforms/test_decoder.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cachetools import LRUCache

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.fields import InsertField, ReplaceField
from headrace.transforms.record import (
    NOTHING,
    OPTIONAL_STRING,
    SchemaMemo,
    Side,
    SinkRecord,
    cells,
    struct,
    unique,
    unusable,
    with_fields,
)

DELETED = "__deleted"
_TRANSACTION = ("id", "data_collection_order", "total_order")
_ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns")


def is_envelope(schema: Schema | None) -> bool:
    """Return whether a value is a Debezium change event. Debezium's transforms do not change other values."""
    return schema is not None and (schema.name or "").endswith(".Envelope")


class Deletes(StrEnum):
    """``delete.tombstone.handling.mode``: how a delete and its tombstone are transformed."""

    DROP = "drop"
    TOMBSTONE = "tombstone"
    REWRITE = "rewrite"
    REWRITE_WITH_TOMBSTONE = "rewrite-with-tombstone"
    DELETE_TO_TOMBSTONE = "delete-to-tombstone"

    @property
    def rewrites(self) -> bool:
        return self in (Deletes.REWRITE, Deletes.REWRITE_WITH_TOMBSTONE)


@dataclass(frozen=True, slots=True)
class FieldReference:
    """A field of the envelope that is added to a row or its headers: ``op``, ``source.lsn``, ``table:renamed``."""

    struct: str | None
    field: str
    name: str

    @classmethod
    def parse(cls, text: str, prefix: str) -> FieldReference:
        """Parse one entry of ``add.fields`` or ``add.headers``. Raises ValueError for more than one new name."""
        path, *renamed = text.strip().split(":")
        if len(renamed) > 1:
            raise ValueError(f"Unexpected field name: {text}")
        struct, dot, field = path.partition(".")
        if not dot:  # a field of the transaction, of the envelope itself, or of the source block
            struct, field = "source", path
            if path in _TRANSACTION or path in _ENVELOPE:
                struct = "transaction" if path in _TRANSACTION else ""
        name = renamed[0] if renamed else (f"{struct}_{field}" if dot else field)
        return cls(struct or None, field, prefix + name)

    def schema(self, envelope: Schema) -> Schema | None:
        """The schema of the new field, None if the envelope does not have the field."""
        home = envelope.field(self.struct) if self.struct is not None else envelope
        if home is None:
            raise unusable(f"add.fields or add.headers names {self.struct!r}, which the change event does not have")
        field_schema = home.field(self.field) or envelope.field(self.field)
        return None if field_schema is None else replace(field_schema, optional=True, default=None)

    def value(self, schema: Schema, values: dict[str, Any]) -> Any:
        """The value of the field in an envelope."""
        if self.struct is None:
            return values.get(self.field)
        home, members = schema.field(self.struct), values.get(self.struct)
        if members is None:
            return None
        return (members if home is not None and home.field(self.field) else values).get(self.field)


@dataclass(frozen=True, slots=True)
class DropFields:
    """``drop.fields.*``: the header that lists fields to remove, and from where to remove them."""

    header: str = ""
    from_key: bool = False
    keep_schema_compatible: bool = True


class ExtractNewRecordState:
    """Replace envelopes by rows. Truncates are dropped; other values do not change."""

    def __init__(
        self,
        deletes: Deletes = Deletes.TOMBSTONE,
        add_fields: Sequence[FieldReference] = (),
        add_headers: Sequence[FieldReference] = (),
        route_by_field: str = "",
        drop_fields: DropFields | None = None,
        default: bool = True,
        *,
        keep_tombstones: bool = False,
    ) -> None:
        self._deletes, self._route, self._keep_tombstones = deletes, route_by_field, keep_tombstones
        self._add_fields, self._add_headers = tuple(add_fields), tuple(add_headers)
        self._drop_fields = drop_fields or DropFields()
        self._marks = {
            deleted: InsertField(Side.VALUE, static=DELETED, static_value=str(deleted).lower(), default=default)
            for deleted in (True, False)
        }
        self._rows: LRUCache[int, tuple[Schema, SchemaMemo]] = LRUCache(64)
        self._removals: LRUCache[tuple[Side, tuple[str, ...]], ReplaceField] = LRUCache(64)

    def __call__(self, record: SinkRecord) -> SinkRecord | None:
        if record.value.value is None:
            if not self._keep_tombstones:
                return None
            operation = next((reference for reference in self._add_headers if reference.field == "op"), None)
            if operation is None:
                return record
            return record.with_header(operation.name, SchemaAndValue(Schema("string"), "d"))
        if not is_envelope(record.value.schema):
            return record
        envelope, values = record.value.schema, record.value.value
        assert envelope is not None  # noqa: S101 - is_envelope has checked it
        if values.get("after") is None and values.get("before") is None:
            return None  # a truncate
        for reference in self._add_headers:
            field_schema = reference.schema(envelope)
            if field_schema is not None:
                header = SchemaAndValue(field_schema, reference.value(envelope, values))
                record = record.with_header(reference.name, header)
        if values.get("after") is None:
            return self._delete(record, envelope, values)
        row = self._image("after", record, envelope, values)
        row = self._marks[False](row) if self._deletes.rewrites else row
        return self._finish(row, envelope, values, values["after"])

    def _delete(self, record: SinkRecord, envelope: Schema, values: dict[str, Any]) -> SinkRecord | None:
        if self._deletes is Deletes.DROP:
            return None
        if self._deletes is Deletes.DELETE_TO_TOMBSTONE:
            return self._route_to_field(replace(record, value=NOTHING), values["before"])
        if not self._deletes.rewrites:
            empty = SchemaAndValue(envelope.field("after"), None)
            return self._route_to_field(replace(record, value=empty), values["before"])
        row = self._marks[True](self._image("before", record, envelope, values))
        return self._finish(row, envelope, values, values["before"])

    def _image(self, name: str, record: SinkRecord, envelope: Schema, values: dict[str, Any]) -> SinkRecord:
        return replace(record, value=SchemaAndValue(envelope.field(name), values[name]))

    def _finish(self, row: SinkRecord, envelope: Schema, values: dict[str, Any], image: dict[str, Any]) -> SinkRecord:
        if row.value.schema is not None:
            added = {
                reference.name: reference.value(envelope, values)
                for reference in self._add_fields
                if reference.schema(envelope) is not None
            }
            if id(envelope) not in self._rows:  # the entry holds the schema, so that no other object gets its id
                self._rows[id(envelope)] = envelope, SchemaMemo(lambda schema: self._row_schema(schema, envelope))
            row_schema = self._rows[id(envelope)][1](row.value.schema)
            row = replace(row, value=SchemaAndValue(row_schema, {**row.value.value, **added}))
        row = self._route_to_field(row, image)

        header = next((item for item in row.headers if item[0] == self._drop_fields.header), None)
        names = None if header is None else row.header_value(header).value
        if not names or not isinstance(names, list):
            return row
        if self._drop_fields.from_key and row.key.value is not None:
            row = self._drop(Side.KEY, row, names)
        return self._drop(Side.VALUE, row, names)

    def _route_to_field(self, record: SinkRecord, image: dict[str, Any]) -> SinkRecord:
        topic = image.get(self._route) if self._route else None
        if topic is not None and not isinstance(topic, str):
            raise unusable(f"Field '{self._route}' is not a string, so it cannot be a topic")
        return record.with_topic(topic) if topic and topic.strip() else record

    def _row_schema(self, schema: Schema, envelope: Schema) -> Schema:
        added = ((reference.name, reference.schema(envelope)) for reference in self._add_fields)
        return with_fields(
            schema,
            (*schema.fields, *(Field(name, field_schema) for name, field_schema in added if field_schema is not None)),
        )

    def _drop(self, side: Side, record: SinkRecord, names: Sequence[str]) -> SinkRecord:
        schema = side.of(record).schema
        fields = () if schema is None else schema.fields
        compatible = self._drop_fields.keep_schema_compatible
        leaving = [m.name for m in fields if m.name in names and (m.schema.optional or not compatible)]
        if not leaving:
            return record
        removal = (side, tuple(leaving))
        if removal not in self._removals:
            self._removals[removal] = ReplaceField(side, leaving, (), {})
        return self._removals[removal](record)


class ExtractChangedRecordState:
    """List the changed and the unchanged columns of an update in headers. The lists of other events are empty."""

    def __init__(self, changed: str | None, unchanged: str | None) -> None:
        self._changed = _names_schema(changed)
        self._unchanged = _names_schema(unchanged)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        schema, values = record.value.schema, record.value.value
        if values is None or schema is None or not is_envelope(schema):
            return record
        before, after, row = values.get("before"), values.get("after"), schema.field("after")
        names = [] if before is None or after is None or row is None else [member.name for member in row.fields]
        changed = [name for name in names if before.get(name) != after.get(name)]
        for listing, columns in ((self._changed, changed), (self._unchanged, [n for n in names if n not in changed])):
            if listing is not None:
                record = record.with_header(listing.name or "", SchemaAndValue(listing, columns))
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
        schema, values = struct(record.value, "Header field insertion")
        header_values = {
            header[0]: record.header_value(header) for header in record.headers if header[0] in self._places
        }
        if not header_values:
            return record
        for name, data in header_values.items():
            if not _has_column_type(data.schema):
                raise unusable(f"header {name}: the elements of its list or map have no common type")
        kinds = tuple((name, data.schema or OPTIONAL_STRING) for name, data in header_values.items())
        made = SchemaAndValue(self._schemas(schema, kinds), self._fill(schema, values, header_values))
        kept = tuple(header for header in record.headers if not (self._move and header[0] in self._places))
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

    def _fill(
        self,
        schema: Schema,
        values: dict[str, Any],
        header_values: Mapping[str, SchemaAndValue],
        at: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """The members of the new struct, in which a null becomes its default as in Debezium."""
        made = cells(schema, values)
        for member in schema.fields:
            value = made[member.name]
            if isinstance(value, dict) and member.schema.type == "struct" and self._goes_into((*at, member.name)):
                made[member.name] = self._fill(member.schema, value, header_values, (*at, member.name))
        return made | {
            self._places[n][-1]: data.value for n, data in header_values.items() if self._places[n][:-1] == at
        }

    def _goes_into(self, path: tuple[str, ...]) -> bool:
        return any(place[: len(path)] == path and len(place) > len(path) for place in self._places.values())


class SchemaChangeEventFilter:
    """Drop the schema change events of some types (``CREATE``, ``ALTER``, ``DROP``, ``TRUNCATE``, ``DATABASE``)."""

    def __init__(self, excluded: Sequence[str]) -> None:
        self._excluded = frozenset(excluded)

    def __call__(self, record: SinkRecord) -> SinkRecord | None:
        schema, values = record.value.schema, record.value.value
        if values is None or schema is None or not (schema.name or "").endswith("SchemaChangeValue"):
            return record
        changes = values.get("tableChanges")
        if changes is None:
            return None
        kind = changes[0].get("type") if changes else "DATABASE"
        return None if kind in self._excluded else record
