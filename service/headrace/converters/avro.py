"""Convert Avro's binary format to Connect data, with the schema of the registry.

fastavro reads single records. Logical types are removed from the schema first, so that values have the physical form
that ``core/model/connect_data.py`` describes; only maps that Avro encodes as lists of entries are converted afterwards.
Blocks of records of one schema are read to columns without fastavro (``converters/avro_fields.py``).
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro

from headrace.converters.avro_block import Payloads
from headrace.converters.avro_fields import RecordReader, as_record_reader, field_reader
from headrace.converters.avro_maps import with_pairs
from headrace.converters.avro_schema import Named, connect_schema
from headrace.converters.registered import RegisteredSchema
from headrace.core.decode.column_rows import Struct, Wanted
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema, check_size

_FAILURES = (EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, UnicodeDecodeError)
"""The errors of fastavro for bytes that do not match the schema."""


class AvroReader:
    """Read payloads of one schema. Raises BadRecord for a schema without an equivalent in Connect."""

    def __init__(self, registered: RegisteredSchema) -> None:
        if registered.schema_type.upper() != "AVRO":
            raise BadRecord(
                f"the schema with the record's id is of type {registered.schema_type} in the registry, not Avro"
            )
        definitions: dict[str, Any] = {}
        self._parsed, self.schema = _parsed(registered, Named(), definitions)
        self._shape = with_pairs(self.schema)
        self._fields = field_reader(self._parsed, definitions, self.schema)
        self.reads_blocks = isinstance(self._fields, RecordReader)

    def __call__(self, payload: bytes) -> SchemaAndValue:
        """The data of one payload. Raises BadRecord."""
        stream = io.BytesIO(payload)
        try:
            value: Any = fastavro.schemaless_reader(stream, self._parsed, None)
        except _FAILURES as error:
            raise BadRecord(f"the bytes do not match their Avro schema ({type(error).__name__})") from error
        if stream.tell() != len(payload):
            raise BadRecord("the record has more bytes than its Avro schema describes")
        return SchemaAndValue(self.schema, value if self._shape is None else self._shape(value))

    def block(self, documents: Sequence[bytes], offset: int, wanted: Wanted) -> Struct:
        """The wanted fields of all documents, whose payloads begin at ``offset``. Raises BadRecord for all of them."""
        try:
            payloads = Payloads(documents, offset)
            at = payloads.begins.copy()
            fields = as_record_reader(self._fields).struct(payloads, at, wanted)
        except _FAILURES as error:
            raise BadRecord("the bytes do not match their Avro schema") from error
        if (at != payloads.ends).any():
            raise BadRecord("the records have more or fewer bytes than their Avro schema describes")
        return fields


def _parsed(registered: RegisteredSchema, named: Named, definitions: dict[str, Any]) -> tuple[Any, Schema]:
    for each in registered.references.values():
        _parsed(each, named, definitions)
    try:
        described = _json(registered.text)
        schema = check_size(connect_schema(described, named))
        parsed = fastavro.parse_schema(_physical(described), definitions)
    except BadRecord:
        raise
    except Exception as error:  # fastavro raises various errors for an invalid schema
        raise BadRecord(f"the registry's schema is not a valid Avro schema: {type(error).__name__}") from error
    return parsed, schema


def _json(text: str) -> Any:
    """Parse the text of a schema, which may be the name of a type without quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _physical(avro: Any) -> Any:
    """Remove logical types and defaults, which only a writer needs, from a schema."""
    if isinstance(avro, list):
        return [_physical(each) for each in avro]
    if isinstance(avro, dict):
        return {
            name: value if name in ("symbols", "name", "namespace", "aliases", "size") else _physical(value)
            for name, value in avro.items()
            if name not in ("logicalType", "default") and not name.startswith("connect.")
        }
    return avro
