"""Transforms that change a record's topic: RegexRouter, TimestampRouter, and ByLogicalTableRouter.

``ByLogicalTableRouter`` (``ToLogicalTopicRouter``) makes one topic of tables with equal columns, such as shards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.change_events import is_envelope
from headrace.transforms.java_formats import DateFormat, compile_pattern, replace_first
from headrace.transforms.record import NOTHING, SchemaMemo, SinkRecord, cells, struct, unique, unusable


class RegexRouter:
    """Rename topics whose complete name matches a pattern."""

    def __init__(self, regex: str, replacement: str) -> None:
        self._pattern = compile_pattern(regex)
        self._replacement = replacement

    def __call__(self, record: SinkRecord) -> SinkRecord:
        topic = replace_first(self._pattern, self._replacement, record.topic)
        return record if topic is None else record.with_topic(topic)


class TimestampRouter:
    """Rename topics by their records' timestamps."""

    def __init__(self, topic_format: str, timestamp_format: str) -> None:
        self._format = topic_format
        self._dates = DateFormat(timestamp_format)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        if record.timestamp < 0:
            raise unusable("Timestamp missing on record")
        when = self._dates.format(record.timestamp)
        return record.with_topic(self._format.replace("${topic}", record.topic).replace("${timestamp}", when))


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
        made = replace_first(compile_pattern(self.regex), self.replacement, topic)
        return topic if made is None else made


class ByLogicalTableRouter:
    """Rename topics and, unless ``key_field`` is None, add the physical table to the key."""

    def __init__(self, regex: str, replacement: str, key_field: KeyField | None) -> None:
        self._pattern = compile_pattern(regex)
        self._replacement, self._key_field = replacement, key_field
        self._keys = SchemaMemo(self._key_schema)
        self._envelopes = SchemaMemo(_envelope_schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        topic = replace_first(self._pattern, self._replacement, record.topic)
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
