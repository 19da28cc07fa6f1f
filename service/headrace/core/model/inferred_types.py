"""Types for JSON without schemas: inferred from values, and converted to the table's (``merge.md`` section 8).

Types are inferred only where neither the record nor the database provides one; the status contains a note. Integers
become int64, numbers with a fraction or exponent double, objects structs. A column with only nulls has type ``null``.

A batch only shows the types of its own values: an empty list has no element type, a NaN looks like text, and a member
of a struct that is null may be an integer in the next batch. Such a column gets the table's type if its values can be
converted without loss. If the table does not have the column yet, parts without a type are omitted until a value has a
type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrow_columns import NOT_FINITE
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import CellState, Changes
from headrace.core.model.schema import DEEPEST, Field, Schema

_NULL = Schema("null", optional=True)
_STRING = Schema("string", optional=True)
_DOUBLE = Schema("double", optional=True)
_NUMBERS = frozenset({"int64", "double"})
INFERRED = (("headrace.inferred", "true"),)
"""The parameters of an inferred schema: the table's type takes precedence (``core/model/inferred_types.py``)."""

MAYBE_LOB = (*INFERRED, ("headrace.lob", "maybe"))
"""The parameters of an inferred schema whose nulls may hide a LOB of Oracle (``core/decode/cell_states.py``)."""

UNCERTAIN_NULL_TYPES = frozenset({"array", "struct", "null"})
"""Inferred types of which a null in an update may hide an unchanged value; a null of other types is a null.

The inferred type of a bit string or a large decimal is text, too. For ``null``, the table's type decides.
"""

_MAYBE_NUMBER = replace(_STRING, name="NaN or text")


def is_inferred(schema: Schema) -> bool:
    return schema.parameters in (INFERRED, MAYBE_LOB)


def infer_schema(values: Iterable[object]) -> Schema:
    """Return the narrowest schema of all values. Raises BadRecord with the indexes of the values that conflict."""
    return replace(_without_maybe_number(_infer(values)), parameters=INFERRED)


def common_inferred_schema(left: Schema, right: Schema) -> Schema | None:
    """Return the schema that ``infer_schema`` returns for the values of both schemas; None if the values decide it.

    ``["NaN"]`` and ``["text"]`` have the same schema, but only the first has a common type with ``[1.5]``.
    """
    common = _common_schema(left, right)
    return None if common is None else replace(common, parameters=INFERRED)


def _infer(values: Iterable[object], depth: int = 0) -> Schema:
    """Return the schema of values at a depth. Raises BadRecord with the indexes of ``values`` that do not fit it."""
    common, conflicts, message = _NULL, [], ""
    for index, value in enumerate(values):
        if value is not None:
            try:
                merged = _common_schema(common, _schema_of(value, depth))
                problem = "a value has another type than the column's other values"
            except BadRecord as error:
                merged, problem = None, str(error)
            if merged is None:
                message = message or problem
                conflicts.append(index)
            else:
                common = merged
    if conflicts:
        raise BadRecord(message, index=conflicts[0], also=conflicts[1:])
    return common


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
        return Schema("array", optional=True, items=_infer(value, depth + 1))
    return Schema("struct", optional=True, fields=tuple(Field(k, _infer([v], depth + 1)) for k, v in value.items()))


def _common_schema(left: Schema, right: Schema) -> Schema | None:
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
        items = _common_schema(left.items, right.items)
        return None if items is None else Schema("array", optional=True, items=items)
    if not left.type == right.type == "struct":
        return None
    fields: dict[str, Schema] = {member.name: member.schema for member in left.fields}
    for member in right.fields:
        merged = _common_schema(fields.get(member.name, _NULL), member.schema)
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


# -- conversion to the table's types -----------------------------------------------------------------------------------


def to_table_type(values: pa.Array, table_type: pa.DataType | None) -> pa.Array | None:
    """Convert ``values`` to the type of the table's column; return them unchanged if that is impossible.

    If the table does not have the column, remove the parts that have no type; None if nothing remains.
    """
    target = _without_nulls(values.type) if table_type is None else table_type
    return None if target is None else _convert(values, target)


def resolve_untyped_nulls(changes: Changes, stored: pa.Schema | None) -> Changes:
    """Change UNKNOWN to NULL in untyped columns whose type in the table shows that a null cannot hide a value.

    Whether a null is trusted must not depend on the other rows of its batch.
    """
    if not any(is_inferred(column.schema) and column.states is not None for column in changes.columns):
        return changes
    stored_types = {} if stored is None else {column.name: column.type for column in stored}
    columns = []
    for column in changes.columns:
        data_type = column.values.type
        if pa.types.is_null(data_type):
            data_type = stored_types.get(column.name)
        if column.states is not None and is_inferred(column.schema) and data_type is not None:
            # Whether a null of a column with this type may hide a value: see core/decode/cell_states.py.
            if column.schema.parameters == MAYBE_LOB:
                hides_value = pa.types.is_string(data_type) or pa.types.is_binary(data_type)
            else:
                hides_value = pa.types.is_nested(data_type)
            if not hides_value:
                states = np.where(column.states == CellState.UNKNOWN, CellState.NULL, column.states)
                column = replace(column, states=states.astype(np.uint8))
        columns.append(column)
    return replace(changes, columns=tuple(columns))


def _without_nulls(arrow_type: pa.DataType) -> pa.DataType | None:
    """Remove the untyped parts of a type; None if nothing remains."""
    if pa.types.is_null(arrow_type):
        return None
    if pa.types.is_list(arrow_type):
        items = _without_nulls(arrow_type.value_type)
        return None if items is None else pa.list_(items)
    if pa.types.is_struct(arrow_type):
        members = [(member.name, _without_nulls(member.type)) for member in arrow_type]
        typed = [pa.field(name, member) for name, member in members if member is not None]
        return pa.struct(typed) if typed else None
    return arrow_type


def _convert(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values without loss; return them unchanged if that is impossible."""
    source = values.type
    if source == target:
        return values
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    if pa.types.is_list(source) and pa.types.is_list(target):
        items = _convert(values.flatten(), target.value_type)
        if items.type != target.value_type:
            return values
        lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
        return pa.ListArray.from_arrays(offsets, items, type=target, mask=values.is_null())
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        return _convert_struct(values, target)
    if pa.types.is_floating(target) and pa.types.is_int64(source):
        try:
            return values.cast(target)
        except pa.ArrowInvalid:  # the conversion is not exact
            return values
    if pa.types.is_floating(target) and pa.types.is_string(source):  # JSON has numbers that are not finite as text
        if not pc.all(pc.is_in(values.drop_null(), pa.array(sorted(NOT_FINITE)))).as_py():
            return values
        return pa.array([None if text is None else float(text) for text in values.to_pylist()], target)
    return values


def _convert_struct(values: pa.StructArray, target: pa.DataType) -> pa.Array:
    """Convert a struct: first the table's members, then new ones, which schema evolution will add to the table."""
    members = [*target]
    if (typed := _without_nulls(values.type)) is not None:
        members += [member for member in typed if target.get_field_index(member.name) < 0]
    children = [
        pa.nulls(len(values), member.type)
        if values.type.get_field_index(member.name) < 0
        else _convert(pc.struct_field(values, [member.name]), member.type)
        for member in members
    ]
    if any(child.type != member.type for child, member in zip(children, target, strict=False)):
        return values
    return pa.StructArray.from_arrays(children, fields=members, mask=values.is_null())
