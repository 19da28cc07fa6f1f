"""Types for JSON without schemas: what can be read from the values alone.

Used only where neither the record nor the database says more; the status tells so. Integers become int64, numbers with
a fraction or exponent double, objects structs of what they hold. A column of nulls has type ``null``: it takes the type
that the table has, and is left out if the table has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from headrace.core.model.arrays import NOT_FINITE
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import DEEPEST, Field, Schema

_NULL = Schema("null", optional=True)
_STRING = Schema("string", optional=True)
_DOUBLE = Schema("double", optional=True)
_NUMBERS = frozenset({"int64", "double"})
INFERRED = (("headrace.inferred", "true"),)
"""Parameters of a column's schema that was inferred: the table's type counts for more (``core/model/conform.py``)."""

MAYBE_LOB = (*INFERRED, ("headrace.lob", "maybe"))
"""The same of a column whose nulls may hide a LOB of Oracle (``core/decode/hidden_nulls.py``)."""

UNTOLD_TYPES = frozenset({"array", "struct", "null"})
"""Inferred types of which a null in an update may hide an unchanged value; a null of the others is taken at its word.

Not even the bytes of a bit string or a large decimal show that they are no text. ``null`` is settled by the table.
"""

_MAYBE_NUMBER = replace(_STRING, name="NaN or text")


def is_inferred(schema: Schema) -> bool:
    """Whether a column's schema was made by ``infer_schema``."""
    return schema.parameters in (INFERRED, MAYBE_LOB)


def infer_schema(values: Iterable[Any]) -> Schema:
    """The narrowest schema that holds all values. Raises BadRecord with the index of the first that does not fit."""
    return replace(_settled(_inferred(values)), parameters=INFERRED)


def _inferred(values: Iterable[Any], depth: int = 0) -> Schema:
    """The schema of values at a depth. Raises BadRecord with the index of one of these, whatever is in it."""
    found = _NULL
    for index, value in enumerate(values):
        if value is not None:
            try:
                merged = _merged(found, _schema_of(value, depth))
            except BadRecord as error:
                error.index = index
                raise
            if merged is None:
                raise BadRecord("a value of another type than the column's other values", index=index)
            found = merged
    return found


def _schema_of(value: Any, depth: int) -> Schema:
    if isinstance(value, bool):
        return Schema("boolean", optional=True)
    if isinstance(value, int):
        return Schema("int64", optional=True)
    if isinstance(value, float):
        return _DOUBLE
    if isinstance(value, str):
        return _MAYBE_NUMBER if value in NOT_FINITE else _STRING
    if depth == DEEPEST:
        raise BadRecord(f"a value nested more than {DEEPEST} times")
    if isinstance(value, list):
        return Schema("array", optional=True, items=_inferred(value, depth + 1))
    return Schema("struct", optional=True, fields=tuple(Field(k, _inferred([v], depth + 1)) for k, v in value.items()))


def _merged(left: Schema, right: Schema) -> Schema | None:
    if left == right or right.type == "null":
        return left
    if left.type == "null":
        return right
    if left.type in _NUMBERS and right.type in _NUMBERS:
        return _DOUBLE
    if _MAYBE_NUMBER in (left, right):
        other = right if left == _MAYBE_NUMBER else left
        if other.type in _NUMBERS:
            return _DOUBLE
        return _STRING if other.type == "string" else None
    if left.type == right.type == "array" and left.items is not None and right.items is not None:
        items = _merged(left.items, right.items)
        return None if items is None else Schema("array", optional=True, items=items)
    if left.type == right.type == "struct":
        return _merged_structs(left, right)
    return None


def _merged_structs(left: Schema, right: Schema) -> Schema | None:
    fields: dict[str, Schema] = {member.name: member.schema for member in left.fields}
    for member in right.fields:
        merged = _merged(fields.get(member.name, _NULL), member.schema)
        if merged is None:
            return None
        fields[member.name] = merged
    return Schema("struct", optional=True, fields=tuple(Field(name, schema) for name, schema in fields.items()))


def _settled(schema: Schema) -> Schema:
    """The schema with every "NaN or text" taken as text."""
    if schema == _MAYBE_NUMBER:
        return _STRING
    if schema.items is not None:
        return replace(schema, items=_settled(schema.items))
    if schema.fields:
        return replace(schema, fields=tuple(Field(m.name, _settled(m.schema)) for m in schema.fields))
    return schema
