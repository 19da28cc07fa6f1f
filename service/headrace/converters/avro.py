"""Avro's binary form as Connect data, by the schema that the registry has.

fastavro reads records one by one; logical types are taken out of the schema before, so that values keep the physical
form that ``core/model/connect_data.py`` describes. Only maps that Avro has as lists of entries have to be put into it
afterwards. Blocks of records of one schema are read to columns without it (``converters/avro_fields.py``).
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro

from headrace.converters.avro_block import Octets
from headrace.converters.avro_fields import Record, as_record, field_reader
from headrace.converters.avro_maps import with_pairs
from headrace.converters.avro_schema import Named, connect_schema
from headrace.converters.registered import RegisteredSchema
from headrace.core.decode.column_rows import Struct, Wanted
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema

_FAILURES = (EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, UnicodeDecodeError)
"""What fastavro raises for bytes that are not what the schema says."""


class AvroReader:
    """Reads payloads of one schema. Raises BadRecord for a schema that Connect has none for."""

    def __init__(self, registered: RegisteredSchema) -> None:
        if registered.kind.upper() != "AVRO":
            raise BadRecord(f"the registry has a {registered.kind} schema under the record's id, not an Avro schema")
        definitions: dict[str, Any] = {}
        self._parsed, self.schema = _parsed(registered, Named(), definitions)
        self._shape = with_pairs(self.schema)
        self._fields = field_reader(self._parsed, definitions, self.schema)
        self.reads_blocks = isinstance(self._fields, Record)

    def __call__(self, payload: bytes) -> SchemaAndValue:
        """The data of one payload. Raises BadRecord."""
        stream = io.BytesIO(payload)
        try:
            value: Any = fastavro.schemaless_reader(stream, self._parsed, None)
        except _FAILURES as error:
            raise BadRecord(f"the bytes are not what their Avro schema says ({type(error).__name__})") from error
        if stream.tell() != len(payload):
            raise BadRecord("there are more bytes than the record's Avro schema describes")
        return SchemaAndValue(self.schema, value if self._shape is None else self._shape(value))

    def block(self, documents: Sequence[bytes], offset: int, wanted: Wanted) -> Struct:
        """The wanted fields of all documents, whose payloads begin at ``offset``. Raises BadRecord, naming none."""
        try:
            octets = Octets(documents, offset)
            at = octets.begins.copy()
            fields = as_record(self._fields).struct(octets, at, wanted)
        except _FAILURES as error:
            raise BadRecord("the bytes are not what their Avro schema says") from error
        if (at != octets.ends).any():
            raise BadRecord("there are more or fewer bytes than the records' Avro schema describes")
        return fields


def _parsed(registered: RegisteredSchema, named: Named, definitions: dict[str, Any]) -> tuple[Any, Schema]:
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
    return parsed, schema


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
