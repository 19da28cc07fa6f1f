"""Infer types for JSON without schemas from the values.

It is used only where neither the record nor the database provides a type; the status contains a note. Integers become
int64, numbers with a fraction or exponent double, objects structs. A column with only nulls has type ``null``: it gets
the type of the table's column, and is omitted if the table has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from headrace.core.model.arrow_columns import NOT_FINITE
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import DEEPEST, Field, Schema

_NULL = Schema("null", optional=True)
_STRING = Schema("string", optional=True)
_DOUBLE = Schema("double", optional=True)
_NUMBERS = frozenset({"int64", "double"})
INFERRED = (("headrace.inferred", "true"),)
"""The parameters of an inferred schema: the table's type takes precedence (``core/model/conform.py``)."""

MAYBE_LOB = (*INFERRED, ("headrace.lob", "maybe"))
"""The parameters of an inferred schema whose nulls may hide a LOB of Oracle (``core/decode/hidden_nulls.py``)."""

UNCERTAIN_NULL_TYPES = frozenset({"array", "struct", "null"})
"""Inferred types of which a null in an update may hide an unchanged value; a null of other types is a null.

The inferred type of a bit string or a large decimal is text, too. For ``null``, the table's type decides.
"""

_MAYBE_NUMBER = replace(_STRING, name="NaN or text")


def is_inferred(schema: Schema) -> bool:
    """Return whether ``infer_schema`` made the schema of a column."""
    return schema.parameters in (INFERRED, MAYBE_LOB)


def infer_schema(values: Iterable[Any]) -> Schema:
    """Return the narrowest schema of all values. Raises BadRecord with the indexes of the values that conflict."""
    return replace(_without_maybe_number(_inferred(values)), parameters=INFERRED)


def _inferred(values: Iterable[Any], depth: int = 0) -> Schema:
    """Return the schema of values at a depth. Raises BadRecord with the indexes of ``values`` that do not fit it."""
    found, conflicts, message = _NULL, [], ""
    for index, value in enumerate(values):
        if value is not None:
            try:
                merged = _merged(found, _schema_of(value, depth))
                problem = "a value has another type than the column's other values"
            except BadRecord as error:
                merged, problem = None, str(error)
            if merged is None:
                message = message or problem
                conflicts.append(index)
            else:
                found = merged
    if conflicts:
        raise BadRecord(message, index=conflicts[0], also=conflicts[1:])
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
        raise BadRecord(f"a value is nested more than {DEEPEST} times")
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


def _without_maybe_number(schema: Schema) -> Schema:
    """Replace each "NaN or text" within a schema by text."""
    if schema == _MAYBE_NUMBER:
        return _STRING
    if schema.items is not None:
        return replace(schema, items=_without_maybe_number(schema.items))
    if schema.fields:
        return replace(schema, fields=tuple(Field(m.name, _without_maybe_number(m.schema)) for m in schema.fields))
    return schema
