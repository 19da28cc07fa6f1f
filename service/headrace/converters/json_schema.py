"""Read JSON documents whose schema is stored in a registry: JSON Schema of Confluent's converter, or Connect's schema.

JSON Schema is converted as ``JsonSchemaData`` does: ``title`` names a schema; ``connect.type``, ``connect.version``,
``connect.parameters`` and ``connect.index`` take precedence over JSON Schema's own properties; and ``oneOf`` with null
is an optional type. Apicurio's ``ExtJsonConverter`` registers JsonConverter's schemas instead.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count
from typing import Any

from headrace.converters.registered import Read, RegisteredSchema
from headrace.core.decode.json_converter import FixedSchema, unscaled_bytes
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import MOST_PARTS, Field, Schema, check_size, too_many_parts

_TYPES = {
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "float32": "float",
    "float64": "double",
    "bytes": "bytes",
    "string": "string",
    "boolean": "boolean",
}
_DIGITS_OF_INT64 = 19
_DEFAULTS = {"integer": "int64", "number": "double", "string": "string", "boolean": "boolean"}


def json_schema_reader(registered: RegisteredSchema) -> Read:
    """Return a reader of one JSON Schema. Raises BadRecord for a schema without an equivalent in Connect."""
    registered.require_type("JSON", "JSON Schema")
    schema = _Document(registered, _parse_json(registered.text)).schema()

    def read(payload: bytes) -> SchemaAndValue:
        try:
            return SchemaAndValue(schema, _value(schema, json.loads(payload, parse_float=Decimal)))
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError) as error:
            raise BadRecord(f"the document does not match its JSON Schema ({type(error).__name__})") from error

    return read


def connect_json_reader(registered: RegisteredSchema) -> Read:
    """Return a reader of documents whose schema is in JsonConverter's format. Raises BadRecord for another format."""
    data = FixedSchema(registered.text.encode())
    return lambda payload: data.to_connect_data(payload)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRecord("the registry's schema is not valid JSON") from error


@dataclass(frozen=True, slots=True)
class _Document:
    """A JSON Schema: the text with its references, and its root."""

    registered: RegisteredSchema
    root: Any
    parts: Iterator[int] = field(default_factory=count)

    def schema(self) -> Schema:
        """The Connect schema of the document. Raises BadRecord."""
        try:
            return check_size(self._of(self.root, ()))
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRecord("the registry's JSON Schema has no equivalent in Connect") from error

    def _of(self, node: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
        if next(self.parts) > MOST_PARTS:
            raise too_many_parts()
        if "$ref" in node:
            return self._resolve_reference(node["$ref"], within)
        branches = node.get("oneOf") or node.get("anyOf")
        if branches:
            return self._union(branches, within)
        kind = node.get("type")
        if isinstance(kind, list):
            return self._union([{**node, "type": branch} for branch in kind], within)
        parameters = node.get("connect.parameters") or {}
        return replace(
            self._of_type(node, kind, within),
            name=node.get("title"),
            version=node.get("connect.version"),
            parameters=tuple(sorted((str(name), str(value)) for name, value in parameters.items())),
        )

    def _of_type(self, node: Mapping[str, Any], type_name: str | None, within: tuple[str, ...]) -> Schema:
        connects = node.get("connect.type")
        if connects == "map" and type_name == "object":
            return Schema("map", keys=Schema("string"), values=self._of(node["additionalProperties"], within))
        if connects == "map":
            entry = node["items"]["properties"]
            return Schema("map", keys=self._of(entry["key"], within), values=self._of(entry["value"], within))
        if type_name == "object":
            members = list((node.get("properties") or {}).items())
            members.sort(key=lambda member: member[1].get("connect.index", len(members)))
            return Schema("struct", fields=tuple(Field(name, self._of(member, within)) for name, member in members))
        if type_name == "array":
            return Schema("array", items=self._of(node["items"], within))
        if type_name is None and "enum" in node:
            return Schema("string")
        return Schema(_TYPES[connects] if connects else _DEFAULTS[str(type_name)])

    def _union(self, branches: list[Any], within: tuple[str, ...]) -> Schema:
        kinds = [branch for branch in branches if branch.get("type") != "null"]
        if len(kinds) != 1:
            raise BadRecord(f"the JSON Schema has a choice of {len(kinds)} types, which a column cannot store")
        schema = self._of(kinds[0], within)
        return replace(schema, optional=True) if len(kinds) < len(branches) else schema

    def _resolve_reference(self, reference: str, within: tuple[str, ...]) -> Schema:
        if reference in within:
            raise BadRecord(f"the JSON Schema {reference} contains itself")
        name, _, path = reference.partition("#")
        document = self
        if name:
            if name not in self.registered.references:
                raise BadRecord(f"the JSON Schema refers to {name}, which the registry does not name as a reference")
            other = self.registered.references[name]
            document = _Document(other, _parse_json(other.text), self.parts)
        node = document.root
        for part in filter(None, path.split("/")):
            node = node[part.replace("~1", "/").replace("~0", "~")]
        return document._of(node, (*within, reference))


def _value(schema: Schema, value: Any) -> Any:
    """Convert a JSON value to its physical form. Raises Python's errors for a value of another type."""
    if value is None:
        if not schema.optional:
            raise TypeError("null")
        return None
    return _VALUES[schema.type](schema, value)


def _struct(schema: Schema, value: Any) -> Any:
    _a(dict, value)
    return {field.name: _value(field.schema, value[field.name]) for field in schema.fields if field.name in value}


def _array(schema: Schema, value: Any) -> Any:
    items = schema.items or Schema("string")
    return [_value(items, item) for item in _a(list, value)]


def _map(schema: Schema, value: Any) -> Any:
    keys, values = schema.keys or Schema("string"), schema.values or Schema("string")
    if isinstance(value, dict):
        return {name: _value(values, item) for name, item in value.items()}
    pairs = [(_value(keys, entry["key"]), _value(values, entry["value"])) for entry in _a(list, value)]
    return dict(pairs) if keys.type == "string" else pairs


def _bytes(schema: Schema, value: Any) -> Any:
    if schema.name == DECIMAL and not isinstance(value, str):
        return unscaled_bytes(Decimal(value), int(schema.parameter("scale") or 0))
    return base64.b64decode(_a(str, value), validate=True)


def _number(schema: Schema, value: Any) -> Any:
    return value if value in ("NaN", "Infinity", "-Infinity") else float(_a((int, Decimal), value))


def _integer(schema: Schema, value: Any) -> Any:
    if isinstance(value, Decimal) and value.adjusted() > _DIGITS_OF_INT64:
        raise TypeError("out of range")  # an exponent of a billion would compute for minutes
    if int(_a((int, Decimal), value)) != value:
        raise TypeError("a fraction")
    return int(value)


def _a(python_type: type | tuple[type, ...], value: Any) -> Any:
    """Return the value if it has the type, else raise TypeError; a boolean is not a number."""
    if not isinstance(value, python_type) or (isinstance(value, bool) and python_type is not bool):
        raise TypeError(type(value).__name__)
    return value


_VALUES: Mapping[str, Callable[[Schema, Any], Any]] = {
    "struct": _struct,
    "array": _array,
    "map": _map,
    "bytes": _bytes,
    "string": lambda schema, value: _a(str, value),
    "boolean": lambda schema, value: _a(bool, value),
    **dict.fromkeys(("int8", "int16", "int32", "int64"), _integer),
    **dict.fromkeys(("float", "double"), _number),
}
