"""Columns of inferred type, brought to the types that their table has (``merge.md`` section 8).

Without schemas a batch tells only the types of the values that it happens to hold: an empty list says nothing of its
elements, a NaN looks like text, a struct's member that is null here may be an integer in the next batch. Such a column
takes the table's type where its values fit without loss. Where the table has no such column yet, what has no type is
left out until a value gives it one.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrays import NOT_FINITE
from headrace.core.model.events import CellState, Changes, Column
from headrace.core.model.inference import MAYBE_LOB, is_inferred


def conformed(values: pa.Array, known: pa.DataType | None) -> pa.Array | None:
    """``values`` as ``known``, unchanged where they do not fit it. Without ``known`` they lose what has no type.

    None if nothing is left of them.
    """
    if known is not None:
        return _as_known(values, known)
    kind = _without_nulls(values.type)
    return None if kind is None else _as_known(values, kind)


def told(changes: Changes, stored: pa.Schema | None) -> Changes:
    """The changes with the nulls of untyped columns settled by the table's type: NULL where that hides nothing.

    Whether a null is trusted must not depend on the other rows of its batch.
    """
    if not any(is_inferred(column.schema) and column.states is not None for column in changes.columns):
        return changes
    known = {} if stored is None else {column.name: column.type for column in stored}
    return replace(changes, columns=tuple(_told(column, known.get(column.name)) for column in changes.columns))


def _told(column: Column, known: pa.DataType | None) -> Column:
    kind = known if pa.types.is_null(column.values.type) else column.values.type
    if column.states is None or not is_inferred(column.schema) or kind is None or _hides(column, kind):
        return column
    states = np.where(column.states == CellState.UNKNOWN, CellState.NULL, column.states)
    return replace(column, states=states.astype(np.uint8))


def _hides(column: Column, kind: pa.DataType) -> bool:
    """Whether a null of a column with this type may hide a value (``core/decode/hidden_nulls.py``)."""
    if column.schema.parameters == MAYBE_LOB:
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
    return bool(pa.types.is_nested(kind))


def _without_nulls(kind: pa.DataType) -> pa.DataType | None:
    """The type without its untyped parts; None if it has no others."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        items = _without_nulls(kind.value_type)
        return None if items is None else pa.list_(items)
    if pa.types.is_struct(kind):
        members = [(member.name, _without_nulls(member.type)) for member in kind]
        typed = [pa.field(name, member) for name, member in members if member is not None]
        return pa.struct(typed) if typed else None
    return kind


def _as_known(values: pa.Array, known: pa.DataType) -> pa.Array:
    kind = values.type
    if kind == known:
        return values
    if pa.types.is_null(kind):
        return pa.nulls(len(values), known)
    if pa.types.is_list(kind) and pa.types.is_list(known):
        return _list(values, known)
    if pa.types.is_struct(kind) and pa.types.is_struct(known):
        return _struct(values, known)
    if pa.types.is_floating(known):
        return _floats(values, known)
    return values


def _list(values: pa.ListArray, known: pa.DataType) -> pa.Array:
    items = _as_known(values.flatten(), known.value_type)
    if items.type != known.value_type:
        return values
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, items, type=known, mask=values.is_null())


def _struct(values: pa.StructArray, known: pa.DataType) -> pa.Array:
    """The table's members, then those that it does not have yet: its evolution adds them."""
    members = [*known]
    if (typed := _without_nulls(values.type)) is not None:
        members += [member for member in typed if known.get_field_index(member.name) < 0]
    children = [_member(values, member) for member in members]
    if any(child.type != member.type for child, member in zip(children, known, strict=False)):
        return values
    return pa.StructArray.from_arrays(children, fields=members, mask=values.is_null())


def _member(values: pa.StructArray, member: pa.Field) -> pa.Array:
    if values.type.get_field_index(member.name) < 0:
        return pa.nulls(len(values), member.type)
    return _as_known(pc.struct_field(values, [member.name]), member.type)


def _floats(values: pa.Array, known: pa.DataType) -> pa.Array:
    """Whole numbers and the names of what JSON cannot write as a number, where the table has floating numbers."""
    if pa.types.is_int64(values.type):
        try:
            return values.cast(known)
        except pa.ArrowInvalid:  # a number that a float does not hold
            return values
    if pa.types.is_string(values.type) and pc.all(pc.is_in(values.drop_null(), pa.array(sorted(NOT_FINITE)))).as_py():
        return pa.array([None if text is None else float(text) for text in values.to_pylist()], known)
    return values
