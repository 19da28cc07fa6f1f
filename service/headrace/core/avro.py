"""Avro's binary form as Connect data, by the schema that the registry has.

fastavro reads it; logical types are taken out of the schema before, so that values keep the physical form that
``core/connect_data.py`` describes. Only maps that Avro has as lists of entries have to be put into it afterwards.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro

from headrace.core.avro_schema import Named, connect_schema
from headrace.core.connect_data import SchemaAndValue
from headrace.core.errors import BadRecord
from headrace.core.registered import Read, RegisteredSchema
from headrace.core.schema import Schema

_FAILURES = (EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, UnicodeDecodeError)
"""What fastavro raises for bytes that are not what the schema says."""


def avro_reader(registered: RegisteredSchema) -> Read:
    """Reads payloads of one schema. Raises BadRecord for a schema that Connect has none for."""
    if registered.kind.upper() != "AVRO":
        raise BadRecord(f"the registry has a {registered.kind} schema under the record's id, not an Avro schema")
    return _reader(*_parsed(registered, Named(), {}))


def _reader(parsed: Any, schema: Schema, shape: Callable[[Any], Any] | None) -> Read:
    def read(payload: bytes) -> SchemaAndValue:
        stream = io.BytesIO(payload)
        try:
            value: Any = fastavro.schemaless_reader(stream, parsed, None)
        except _FAILURES as error:
            raise BadRecord(f"the bytes are not what their Avro schema says ({type(error).__name__})") from error
        if stream.tell() != len(payload):
            raise BadRecord("there are more bytes than the record's Avro schema describes")
        return SchemaAndValue(schema, value if shape is None else shape(value))

    return read


def _parsed(
    registered: RegisteredSchema, named: Named, definitions: dict[str, Any]
) -> tuple[Any, Schema, Callable[[Any], Any] | None]:
    for each in registered.references.values():
        _parsed(each, named, definitions)
    try:
        described = _json(registered.text)
        schema = connect_schema(described, named)
        parsed = fastavro.parse_schema(_physical(described), definitions)
    except BadRecord:
        raise
    except Exception as error:  # whatever fastavro says of a schema that is none
        raise BadRecord(f"the registry's schema is no Avro schema: {type(error).__name__}") from error
    return parsed, schema, _shape(schema)


def _json(text: str) -> Any:
    """The schema, whose text may be a bare name as well."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _physical(avro: Any) -> Any:
    """A schema without logical types and defaults, which only a writer needs."""
    if isinstance(avro, list):
        return [_physical(each) for each in avro]
    if isinstance(avro, dict):
        return {
            name: value if name in ("symbols", "name", "namespace", "aliases", "size") else _physical(value)
            for name, value in avro.items()
            if name not in ("logicalType", "default") and not name.startswith("connect.")
        }
    return avro


def _shape(schema: Schema) -> Callable[[Any], Any] | None:
    """Makes pairs of the entries of maps; None where a schema has no such map."""
    if schema.type == "struct":
        return _shaped_members({m.name: shape for m in schema.fields if (shape := _shape(m.schema)) is not None})
    if schema.items is not None:
        inner = _shape(schema.items)
        return None if inner is None else lambda value: value and [inner(each) for each in value]
    if schema.keys is None or schema.values is None:
        return None
    plain = schema.keys == Schema("string") and _shape(schema.values) is None  # as Avro's own maps are
    return None if plain else _shaped_map(schema.keys, schema.values)


def _shaped_members(members: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    if not members:
        return None
    return lambda value: value and {**value, **{name: shape(value[name]) for name, shape in members.items()}}


def _shaped_map(keys: Schema, values: Schema) -> Callable[[Any], Any]:
    key, inner = _shape(keys) or _same, _shape(values) or _same

    def shaped(given: Any) -> Any:
        if given is None:
            return None
        pairs = [(each["key"], each["value"]) for each in given] if isinstance(given, list) else given.items()
        entries = [(key(name), inner(value)) for name, value in pairs]
        return dict(entries) if keys.type == "string" else entries

    return shaped


def _same(value: Any) -> Any:
    return value
