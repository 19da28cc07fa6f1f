"""The recording with Avro converters: its records as JSON documents, and the Avro form of each document.

The checks of the recordings read JSON, so they get the result of the Avro converter in the form of JsonConverter. A
replay uses the Avro records themselves.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from recordings.records import RecordedRecord

from headrace.converters.avro import AvroReader
from headrace.converters.conversion import Conversion
from headrace.converters.registered import IdKind, RegisteredSchema, RegistryConverter, SchemaId, confluent_framing
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema
from headrace_dev.registry import Registry

_avro: dict[bytes, bytes] = {}


class RecordedRegistry:
    """The registry at the time of the recording: ids and their schemas."""

    def __init__(self, schemas: Path) -> None:
        self._schemas = json.loads(gzip.decompress(schemas.read_bytes()))["ids"]
        self.asked: list[SchemaId] = []

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        self.asked.append(schema_id)
        if str(schema_id.value) not in self._schemas:
            raise BadRecord(f"the schema registry has no schema with {schema_id}")
        return RegisteredSchema(self._schemas[str(schema_id.value)]["schema"])


def conversion(recordings: Path) -> Conversion:
    """Avro converters over the recorded registry."""
    registry = RecordedRegistry(recordings / "d-avro.schemas.json.gz")
    framings = map(confluent_framing, ("key", "value"))
    return Conversion(*(RegistryConverter(registry.fetch, framing, AvroReader) for framing in framings))


@cache
def _conversion(recordings: Path) -> Conversion:
    return conversion(recordings)


def as_json(record: RecordedRecord, recordings: Path) -> RecordedRecord:
    """An Avro record in the form of JsonConverter."""
    converted = _conversion(recordings).convert(record)
    return replace(record, key=_document(record.key, converted.key), value=_document(record.value, converted.value))


class Registered:
    """The recording's schemas in a running registry, where they have other ids."""

    def __init__(self, registry: Registry, recordings: Path) -> None:
        self._registry = registry
        self._recorded = RecordedRegistry(recordings / "d-avro.schemas.json.gz")
        self._ids: dict[int, int] = {}

    def record(self, record: RecordedRecord) -> RecordedRecord:
        """An Avro record with the ids of that registry."""
        return replace(record, key=self._document(record.key), value=self._document(record.value))

    def _document(self, document: bytes | None) -> bytes | None:
        if document is None:
            return None
        recorded = int.from_bytes(document[1:5], "big")
        if recorded not in self._ids:
            schema = self._recorded.fetch(SchemaId(IdKind.ID, recorded)).text
            self._ids[recorded] = self._registry.register(f"recorded-{recorded}", schema)
        return b"\0" + self._ids[recorded].to_bytes(4, "big") + document[5:]


def as_avro(record: RecordedRecord) -> RecordedRecord:
    """The record from which ``as_json`` made this one."""
    return replace(record, key=record.key and _avro[record.key], value=record.value and _avro[record.value])


def _document(given: bytes | None, data: Any) -> bytes | None:
    if given is None or not isinstance(data, SchemaAndValue) or data.schema is None:
        return None
    parts = {"schema": _schema(data.schema), "payload": _payload(data.schema, data.value)}
    document = json.dumps(parts, separators=(",", ":")).encode()
    _avro[document] = given
    return document


def _schema(schema: Schema) -> dict[str, Any]:
    nested: dict[str, Any] = {"type": schema.type, "optional": schema.optional}
    nested |= {name: value for name, value in (("name", schema.name), ("version", schema.version)) if value is not None}
    if schema.parameters:
        nested["parameters"] = dict(schema.parameters)
    if schema.type == "struct":
        nested["fields"] = [_schema(member.schema) | {"field": member.name} for member in schema.fields]
    for part in ("items", "keys", "values"):
        if getattr(schema, part) is not None:
            nested[part] = _schema(getattr(schema, part))
    return nested


def _payload(schema: Schema, value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if schema.type == "struct" and value is not None:
        return {member.name: _payload(member.schema, value[member.name]) for member in schema.fields}
    if schema.items is not None and value is not None:
        return [_payload(schema.items, each) for each in value]
    return value
