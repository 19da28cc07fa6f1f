"""Decode blocks of events of one schema from bytes to columns, without an object per event.

Nearly all blocks contain only valid row changes. Any other block is Unsuited: its records are decoded one by one
(``core/decode/envelope_events.py``), which determines their operations and errors.

Tests: ``tests/unit/converters/test_avro_block.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from types import NoneType
from typing import Any, get_args

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.decode.codec import SOURCE_NAMES, Codec, Names, Source
from headrace.core.decode.column_rows import ColumnRows, Places, Struct, Wanted, fill_rows, in_python
from headrace.core.decode.envelope_events import NO_SOURCE, ROW_CHANGES, WITH_ROW, Events
from headrace.core.decode.records import KafkaRecord
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.events import Operation
from headrace.core.model.schema import Schema

Key = bytes | SchemaAndValue


class Unsuited(Exception):
    """The block contains a record that is not a valid row change."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records whose values are of one schema.

    ``values`` reads the wanted fields of the values that are not null. ``keys`` converts the keys at the given places,
    and may omit fields that are not named. Both raise BadRecord if any of the records is bad.
    """

    records: Sequence[KafkaRecord]
    schema: Schema
    values: Callable[[Wanted], Struct]
    keys: Callable[[Sequence[int], Sequence[str]], Sequence[Key]]


def block_events(block: Block, codec: Codec, key_row: Callable[[Codec, Key], Sequence[Any]]) -> Events:
    """The events of a block. Raises Unsuited or BadRecord."""
    records, count = block.records, len(block.records)
    with_value = np.array([place for place, record in enumerate(records) if record.value is not None], np.int64)
    _require(len(with_value) > 0 and with_value[0] == 0 and None not in [record.key for record in records])
    source = {field.name: None for field in _source_fields(codec.source)}
    values = block.values({"op": None, "source": source, "after": dict.fromkeys(codec.names), "before": {}})
    op = values.columns.get("op")
    _require(isinstance(op, pa.StringArray))
    operations_with_value: list[Any] = list(map(ROW_CHANGES.get, in_python(op)))
    _require(None not in operations_with_value)
    operations: list[Operation] = _with_others(operations_with_value, with_value, count, Operation.TOMBSTONE)
    after = values.columns.get("after")
    if not isinstance(after, Struct):
        raise Unsuited
    with_row = with_value if after.present is None else with_value[after.present]
    # c and u have a row, d and tombstones do not. Any other record (an update without 'after'…) needs a closer look.
    without_row = [place for place, operation in enumerate(operations) if operation not in WITH_ROW]
    _require(len(with_row) + len(without_row) == count and not set(without_row).intersection(with_row.tolist()))
    sources, common = _sources(codec.source, values, with_value, count)
    keys = dict(
        zip(without_row, (key_row(codec, key) for key in block.keys(without_row, codec.key_fields)), strict=True)
    )
    may_have_before, before = np.ones(count, np.bool_), values.columns.get("before")
    if isinstance(before, Struct) and before.present is not None:  # a null: the event does not have the earlier row
        may_have_before[np.delete(with_value, before.present)] = False
    return Events(
        indexes=list(range(count)),
        records=list(records),
        operations=operations,
        sources=sources,
        rows=_with_keys(codec, after.columns, with_row, count, keys),
        before=may_have_before.tolist(),
        common=common,
    )


def _with_keys(
    codec: Codec, after: Mapping[str, Any], places: Places, count: int, keys: Mapping[int, Sequence[Any]]
) -> ColumnRows:
    """Return ``count`` rows: those of ``after`` at ``places``, and rows with only a key at the places in ``keys``."""
    columns = {}
    for at, name in enumerate(codec.names):
        others = {place: row[at] for place, row in keys.items()} if at in codec.key_indexes else {}
        try:
            columns[name] = fill_rows(after.get(name, []), places, count, others)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise Unsuited from error
    return ColumnRows(columns, count)


def _require(suits: bool) -> None:
    if not suits:
        raise Unsuited


def _with_others(those: list[Any], places: Places, count: int, other: Any) -> list[Any]:
    """Return ``count`` values: ``those`` at ``places``, and ``other`` at all other places."""
    if len(places) == count:
        return those
    remaining = iter(those)
    given_places = set(places.tolist())
    return [next(remaining) if place in given_places else other for place in range(count)]


# -- sources -----------------------------------------------------------------------------------------------


def _sources(
    source_class: type[Source], values: Struct, with_value: Places, count: int
) -> tuple[list[Source], Names | None]:
    """The source of each record, and the names in them, if they are the same in all."""
    given = values.columns.get("source")
    if not isinstance(given, Struct) or given.present is not None:
        raise Unsuited
    fields = _source_fields(source_class)
    parts = [field.cells(given.columns.get(field.name)) for field in fields]
    names = [part for field, part in zip(fields, parts, strict=True) if field.name in SOURCE_NAMES]
    common = tuple(value for value, _ in names) if all(same for _, same in names) else None
    sources = list(map(source_class, *(repeat(part, len(with_value)) if same else part for part, same in parts)))
    return _with_others(sources, with_value, count, NO_SOURCE), common


@dataclass(frozen=True, slots=True)
class _SourceField:
    """A field of the source block, as ``Source`` declares it. ``types`` are its possible types, None for any type."""

    name: str
    default: Any
    types: frozenset[Any] | None

    def cells(self, column: Any) -> tuple[Any, bool]:
        """Return the value of each source and False, or one value for all sources and True."""
        if column is None:
            return self.default, True
        if not isinstance(column, pa.Array):
            raise Unsuited
        types = {_TYPES.get(column.type), NoneType if column.null_count else _TYPES.get(column.type)}
        if self.types is not None and not types <= self.types:
            raise Unsuited
        if column.null_count == len(column):
            return None, True
        first = column[0]
        if pa.types.is_string(column.type) and not column.null_count and pc.all(pc.equal(column, first)).as_py():
            return first.as_py(), True
        return column.to_pylist(), False


_TYPES = {pa.int64(): int, pa.string(): str, pa.bool_(): bool, pa.null(): NoneType}


@lru_cache(64)
def _source_fields(source: type[Source]) -> tuple[_SourceField, ...]:
    """The fields of a source block. Their types are without annotated bounds: a column of int64 has its own."""
    return tuple(
        _SourceField(
            field.encode_name,
            field.default,
            None
            if field.type is Any
            else frozenset(
                getattr(member_type, "__origin__", member_type) for member_type in get_args(field.type) or (field.type,)
            ),
        )
        for field in msgspec.structs.fields(source)
    )
