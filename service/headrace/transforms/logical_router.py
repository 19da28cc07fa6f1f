"""``ByLogicalTableRouter`` (``ToLogicalTopicRouter``): one topic for tables with equal columns, such as shards."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms import java_regex
from headrace.transforms.record import NOTHING, SinkRecord
from headrace.transforms.structs import SchemaMemo, cells, struct, unique
from headrace.transforms.unwrap import is_envelope

_PURPOSE = "Updating schema"


@dataclass(frozen=True, slots=True)
class KeyField:
    """The field that identifies the physical table of a row: its name, and how its value is derived from the topic."""

    name: str
    regex: str = ""
    replacement: str = ""

    def text(self, topic: str) -> str:
        """The value of the field for rows of a topic."""
        if not self.regex:
            return topic
        made = java_regex.replaced(java_regex.compiled(self.regex), self.replacement, topic)
        return topic if made is None else made


class ByLogicalTableRouter:
    """Rename topics and, unless ``key_field`` is None, add the physical table to the key."""

    def __init__(self, regex: str, replacement: str, key_field: KeyField | None) -> None:
        self._pattern = java_regex.compiled(regex)
        self._replacement, self._key_field = replacement, key_field
        self._keys = SchemaMemo(self._key_schema)
        self._envelopes = SchemaMemo(_envelope_schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the logical topic."""
        topic = java_regex.replaced(self._pattern, self._replacement, record.topic)
        if not topic:
            return record
        key = NOTHING
        if record.key.value is not None:
            schema, values = struct(record.key, _PURPOSE)
            made = dict(cells(schema, values))
            if self._key_field is not None:
                made[self._key_field.name] = self._key_field.text(record.topic)
            key = SchemaAndValue(self._keys(schema, topic), made)
        value = record.value
        if value.value is not None and is_envelope(value.schema) and value.schema is not None:
            value = SchemaAndValue(self._envelopes(value.schema, topic), value.value)
        return replace(record, topic=topic, key=key, value=value)

    def _key_schema(self, schema: Schema, topic: str) -> Schema:
        added = [] if self._key_field is None else [Field(self._key_field.name, Schema("string"))]
        return replace(schema, name=f"{topic}.Key", fields=unique((*schema.fields, *added)), default=None)


def _envelope_schema(schema: Schema, topic: str) -> Schema:
    """Rename the schema of an envelope, and the schemas of its rows."""
    fields = (
        Field(member.name, replace(member.schema, name=f"{topic}.Value", default=None))
        if member.name in ("before", "after")
        else member
        for member in schema.fields
    )
    return replace(schema, name=f"{topic}.Envelope", fields=tuple(fields), default=None)
