"""Kafka Connect schemas, the types of a converter's values.

A schema is a value: two schemas with the same content are equal and hash alike, so that decoders, columns and cache
fingerprints can be keyed by them. The JSON form is JsonConverter's (``connect.md`` section 11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.model.errors import BadRecord

DEEPEST = 100
"""The limit of nested schemas: no table is nested as deeply, and each level is a recursive call."""

PRIMITIVES = frozenset({"boolean", "int8", "int16", "int32", "int64", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Field:
    """A named member of a struct schema."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One Connect schema. ``type`` has JsonConverter's names (``float`` is FLOAT32, ``double`` FLOAT64).

    ``name`` is the logical or semantic type (``io.debezium.time.Date``), ``parameters`` its sorted name-value pairs.
    ``fields`` is filled for structs, ``items`` for arrays, ``keys`` and ``values`` for maps.
    """

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    fields: tuple[Field, ...] = ()
    items: Schema | None = None
    keys: Schema | None = None
    values: Schema | None = None
    default: Any = field(default=None, compare=False)

    @property
    def semantic(self) -> str:
        """The last segment of the name, or "". Schema adjustment and Protobuf's converter change the others."""
        return (self.name or "").rpartition(".")[2]

    def parameter(self, name: str) -> str | None:
        return dict(self.parameters).get(name)

    def field(self, name: str) -> Schema | None:
        return next((member.schema for member in self.fields if member.name == name), None)


MOST_FIELDS = 10_000
"""Fields of a struct. MySQL has up to 4,096 columns, others fewer; decoders need seconds for 20,000."""
MOST_PARTS = 20_000
"""Schemas within a schema. A few lines of a registry's schema mean a billion, if each type contains the next twice."""


def check_size(schema: Schema) -> Schema:
    """Return ``schema``. Raises BadRecord if it has too many fields or parts, or is nested too deeply."""
    _parts(schema, {}, 0)
    return schema


def _parts(schema: Schema, counts: dict[int, int], depth: int) -> int:
    """Count the schemas within one, each time that it occurs. ``counts`` has those of schemas counted before, by id."""
    if id(schema) in counts:
        return counts[id(schema)]
    if depth > DEEPEST:
        raise BadRecord(f"a schema nested more than {DEEPEST} times")
    _check_fields(len(schema.fields))
    within = [member.schema for member in schema.fields]
    within += [inner for inner in (schema.items, schema.keys, schema.values) if inner is not None]
    counts[id(schema)] = 1 + sum(_parts(inner, counts, depth + 1) for inner in within)
    if counts[id(schema)] > MOST_PARTS:
        raise too_many_parts()
    return counts[id(schema)]


def _check_fields(fields: int) -> None:
    if fields > MOST_FIELDS:
        raise BadRecord(f"a struct with {fields} fields; at most {MOST_FIELDS} are supported")


def too_many_parts() -> BadRecord:
    return BadRecord(f"a schema with more than {MOST_PARTS} parts")


def schema_from_json(document: Mapping[str, Any], depth: int = 0) -> Schema:
    """Parse JsonConverter's schema JSON within ``depth`` outer schemas. Raises BadRecord if it is invalid."""
    if depth > DEEPEST:
        raise BadRecord(f"a schema nested more than {DEEPEST} times")
    kind, within = document.get("type"), depth + 1
    if kind in PRIMITIVES:
        return _schema(document, kind)
    if kind == "struct":
        children = document["fields"]
        _check_fields(len(children))
        members = tuple(Field(child["field"], schema_from_json(child, within)) for child in children)
        if not all(isinstance(member.name, str) for member in members):
            raise BadRecord("Struct schema's field name not specified properly")
        if len({member.name for member in members}) < len(members):
            raise BadRecord("a struct schema has two fields of one name")
        return _schema(document, kind, fields=members)
    if kind == "array":
        return _schema(document, kind, items=schema_from_json(document["items"], within))
    if kind == "map":
        keys, values = (schema_from_json(document[part], within) for part in ("keys", "values"))
        return _schema(document, kind, keys=keys, values=values)
    raise BadRecord(f"unknown schema type {kind!r}")


def _schema(document: Mapping[str, Any], type_name: str, **nested: Any) -> Schema:
    """Return a value if it has the type; other values are ignored, as in Kafka Connect."""
    name, version, parameters = (document.get(word) for word in ("name", "version", "parameters"))
    if not isinstance(parameters, dict):
        parameters = {}
    for parameter, value in parameters.items():
        if not isinstance(value, str):
            raise BadRecord("Schema parameters must have string values.")
        if parameter in _NUMBERS and not _NUMBER.fullmatch(value):
            raise BadRecord(f"Invalid {parameter} parameter found in a schema: it is no number")
    return Schema(
        type=type_name,
        optional=document.get("optional") is True,
        name=name if isinstance(name, str) else None,
        version=version if isinstance(version, int) else None,
        parameters=tuple(sorted(parameters.items())),
        default=document.get("default"),
        **nested,
    )


_NUMBERS = frozenset({"scale", "length", "connect.decimal.precision"})
_NUMBER = re.compile(r"-?[0-9]{1,10}")
