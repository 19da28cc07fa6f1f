"""Convert Avro's binary format to Connect data, with the schema of the registry.

Schemas are converted as Confluent's and Apicurio's converters do (``AvroData``): the properties ``connect.name``,
``connect.version``, ``connect.parameters``, ``connect.default``, ``connect.type`` and ``connect.internal.type`` take
precedence over Avro's own. ``[null, T]`` is an optional T. Logical types that Connect does not have (micros, uuid…)
become their physical types, and enums become strings.

fastavro reads single records. Logical types are removed from the schema first, so that values have the physical form
that ``core/model/connect_data.py`` describes; only maps that Avro encodes as lists of entries are converted afterwards.
Blocks of records of one schema are read to columns without fastavro (``converters/avro_block.py``).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import fastavro

from headrace.converters.avro_block import Payloads, RecordReader, as_record_reader, field_reader, with_pairs
from headrace.converters.registered import RegisteredSchema
from headrace.core.decode.column_rows import Struct, Wanted
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Field, Schema, check_size


@dataclass(frozen=True, slots=True)
class Named:
    """Definitions by full name: None while one is being converted. ``entries`` are the definitions of map entries."""

    schemas: dict[str, Schema | None] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)

    def find(self, name: str, namespace: str) -> str | None:
        """The full name of the definition that ``name`` refers to in a namespace."""
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        return next((candidate for candidate in (full, name) if candidate in self.schemas), None)


_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "enum": "string",
    "fixed": "bytes",
}
_NAMED = ("record", "error", "enum", "fixed")
_CONNECT = "org.apache.kafka.connect.data."
_LOGICAL = {
    ("int", "date"): f"{_CONNECT}Date",
    ("int", "time-millis"): f"{_CONNECT}Time",
    ("long", "timestamp-millis"): f"{_CONNECT}Timestamp",
}
_NAMELESS = "io.confluent.connect.avro.ConnectDefault"
"""The name that Confluent's converter gives to a record whose Connect schema has no name."""
_ANY_PRECISION = 64
"""The precision that Connect's converters write for a Decimal without one."""
_MAP_ENTRY = "io.confluent.connect.avro.MapEntry"


def connect_schema(avro: Any, named: Named, namespace: str = "") -> Schema:
    """Return the Connect schema of an Avro schema, which is given as parsed JSON.

    ``named`` contains the definitions that it refers to; its own definitions are added. Raises BadRecord for schemas
    without an equivalent in Connect: unions of several types, and records that contain themselves.
    """
    if isinstance(avro, list):
        branches = [branch for branch in avro if branch != "null" and branch != {"type": "null"}]
        if len(branches) != 1:
            raise BadRecord(f"the Avro schema has a union of {len(branches)} types, which a column cannot store")
        schema = connect_schema(branches[0], named, namespace)
        return replace(schema, optional=True) if len(branches) < len(avro) else schema
    if isinstance(avro, str):
        return _type_by_name(avro, named, namespace)
    kind = avro["type"]
    if isinstance(kind, dict | list):
        return connect_schema(kind, named, namespace)
    if kind in _NAMED:
        return _definition(avro, kind, named, namespace)
    if kind == "array":
        items = connect_schema(avro["items"], named, namespace)
        items_name = avro["items"] if isinstance(avro["items"], str) else full_name(avro["items"], namespace)
        if named.find(items_name, namespace) in named.entries:
            return _with_properties(Schema("map", keys=items.field("key"), values=items.field("value")), avro)
        if _is_empty(items):
            raise BadRecord(
                "the Avro schema has an array of items without bytes: five bytes could mean a billion items"
            )
        return _with_properties(Schema("array", items=items), avro)
    if kind == "map":
        values = connect_schema(avro["values"], named, namespace)
        return _with_properties(Schema("map", keys=Schema("string"), values=values), avro)
    return _scalar(avro, kind) if kind in _PRIMITIVES else _type_by_name(kind, named, namespace)


def full_name(avro: Any, namespace: str = "") -> str:
    """The name of a definition with its namespace; empty for anything else."""
    if not isinstance(avro, Mapping) or "name" not in avro:
        return ""
    name = str(avro["name"])
    inherited = str(avro.get("namespace", namespace))
    return name if "." in name or not inherited else f"{inherited}.{name}"


def _type_by_name(name: str, named: Named, namespace: str) -> Schema:
    if name in _PRIMITIVES:
        return Schema(_PRIMITIVES[name])
    full = named.find(name, namespace)
    definition = None if full is None else named.schemas[full]
    if definition is None:
        problem = "is used but not defined" if full is None else "contains itself"
        raise BadRecord(f"the Avro schema {name} {problem}")
    return definition


def _definition(avro: Mapping[str, Any], type_name: str, named: Named, namespace: str) -> Schema:
    name = full_name(avro, namespace)
    inner = name.rpartition(".")[0]
    if avro.get("connect.internal.type") == "MapEntry" or name == _MAP_ENTRY:
        named.entries.add(name)
    named.schemas[name] = None
    if type_name in ("record", "error"):
        members = tuple(Field(field["name"], connect_schema(field["type"], named, inner)) for field in avro["fields"])
        shown_name = None if name.startswith(_NAMELESS) else name
        schema = _with_properties(Schema("struct", fields=members, name=shown_name), avro)
    else:
        if type_name == "fixed" and int(avro["size"]) < 1:
            raise BadRecord(f"the Avro schema {name} is of a fixed size of {avro['size']} bytes")
        schema = _scalar(avro, type_name)
    named.schemas[name] = schema
    return schema


def _is_empty(schema: Schema) -> bool:
    """Whether a value has no bytes: a record without fields, or of such records."""
    return schema.type == "struct" and not schema.optional and all(_is_empty(field.schema) for field in schema.fields)


def _scalar(avro: Mapping[str, Any], type_name: str) -> Schema:
    logical = avro.get("logicalType")
    if logical == "decimal" and type_name in ("bytes", "fixed"):
        parameters = {"scale": str(avro.get("scale", 0))}
        if avro.get("precision", _ANY_PRECISION) != _ANY_PRECISION:
            parameters["connect.decimal.precision"] = str(avro["precision"])
        return _with_properties(Schema("bytes", name=DECIMAL), avro, parameters)
    connects = avro.get("connect.type")
    physical = connects if type_name == "int" and connects in ("int8", "int16") else _PRIMITIVES[type_name]
    return _with_properties(Schema(physical, name=_LOGICAL.get((type_name, str(logical)))), avro)


def _with_properties(
    schema: Schema, avro: Mapping[str, Any], logical_parameters: Mapping[str, str] | None = None
) -> Schema:
    """Add the properties that Connect's converter has stored in the Avro schema."""
    parameters = {str(name): str(value) for name, value in (avro.get("connect.parameters") or {}).items()}
    return replace(
        schema,
        name=avro.get("connect.name", schema.name),
        version=avro.get("connect.version"),
        parameters=tuple(sorted((dict(logical_parameters or {}) | parameters).items())),
        default=avro.get("connect.default"),
    )


_FAILURES = (EOFError, IndexError, ValueError, KeyError, TypeError, OverflowError, UnicodeDecodeError)
"""The errors of fastavro for bytes that do not match the schema."""


class AvroReader:
    """Read payloads of one schema. Raises BadRecord for a schema without an equivalent in Connect."""

    def __init__(self, registered: RegisteredSchema) -> None:
        registered.require_type("AVRO", "Avro")
        definitions: dict[str, Any] = {}
        self._parsed, self.schema = _parse_with_references(registered, Named(), definitions)
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


def _parse_with_references(
    registered: RegisteredSchema, named: Named, definitions: dict[str, Any]
) -> tuple[Any, Schema]:
    for reference in registered.references.values():
        _parse_with_references(reference, named, definitions)
    try:
        try:
            described = json.loads(registered.text)
        except ValueError:  # the name of a type, without quotes
            described = registered.text.strip()
        schema = check_size(connect_schema(described, named))
        parsed = fastavro.parse_schema(_physical(described), definitions)
    except BadRecord:
        raise
    except Exception as error:  # fastavro raises various errors for an invalid schema
        raise BadRecord(f"the registry's schema is not a valid Avro schema: {type(error).__name__}") from error
    return parsed, schema


def _physical(avro: Any) -> Any:
    """Remove logical types and defaults, which only a writer needs, from a schema."""
    if isinstance(avro, list):
        return [_physical(branch) for branch in avro]
    if isinstance(avro, dict):
        return {
            name: value if name in ("symbols", "name", "namespace", "aliases", "size") else _physical(value)
            for name, value in avro.items()
            if name not in ("logicalType", "default") and not name.startswith("connect.")
        }
    return avro
