"""Kafka Connect schemas: what a converter knows about the values it hands on.

A schema is a value: two schemas that say the same are equal and hash alike, so that decoders, columns and cache
fingerprints can be keyed by them. The JSON form is JsonConverter's (``connect.md`` section 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import BadRecord

DEEPEST = 100
"""How many schemas may be within one another: no table nests like that, and each level is a call within a call."""

PRIMITIVES = frozenset({"boolean", "int8", "int16", "int32", "int64", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True)
class Field:
    """A named member of a struct schema."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """One Connect schema. ``type`` uses JsonConverter's words (``float`` is FLOAT32, ``double`` FLOAT64).

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

    def parameter(self, name: str) -> str | None:
        """The parameter called ``name``, or None."""
        return dict(self.parameters).get(name)

    def field(self, name: str) -> Schema | None:
        """The schema of the struct field called ``name``, or None if there is no such field."""
        return next((member.schema for member in self.fields if member.name == name), None)


def schema_from_json(document: Mapping[str, Any]) -> Schema:
    """Read JsonConverter's schema JSON. Raises BadRecord when it is not one."""
    kind = document.get("type")
    if kind in PRIMITIVES:
        return _schema(document, kind)
    if kind == "struct":
        members = tuple(Field(str(child["field"]), schema_from_json(child)) for child in document["fields"])
        return _schema(document, kind, fields=members)
    if kind == "array":
        return _schema(document, kind, items=schema_from_json(document["items"]))
    if kind == "map":
        keys, values = schema_from_json(document["keys"]), schema_from_json(document["values"])
        return _schema(document, kind, keys=keys, values=values)
    raise BadRecord(f"unknown schema type {kind!r}")


def _schema(document: Mapping[str, Any], kind: str, **nested: Any) -> Schema:
    return Schema(
        type=kind,
        optional=bool(document.get("optional", False)),
        name=document.get("name"),
        version=document.get("version"),
        parameters=tuple(sorted((document.get("parameters") or {}).items())),
        default=document.get("default"),
        **nested,
    )
