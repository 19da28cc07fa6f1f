"""Convert Debezium's Cassandra envelopes to writes (``merge.md`` section 7; observed on connector 3.4.1).

They differ from the envelopes of all other connectors. They have no ``before``. ``op`` is i, u, d or r, where r is a
range tombstone instead of a read. ``after`` has a cell ``{value, deletion_ts, set}`` or null per column, and the bounds
of a range. All cells of an event have the write time ``source.ts_us``. In a snapshot, that is the time of the SELECT,
which does not order writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cassandra.cell_writes import (
    MARKED,
    SNAPSHOT_TIME,
    Bound,
    Cell,
    CellWrites,
    Delete,
    Range,
    Write,
    comparison_bytes,
)
from headrace.cassandra.losses import Loss, Losses, losses_of
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema
from headrace.core.model.versioned_writes import Key

_START, _END = "_range_start", "_range_end"
_BOUNDS = (_START, _END)
_TYPES: Mapping[type, str] = {bool: "boolean", int: "int64", float: "double"}


def write_of(
    payload: Mapping[str, Any], key_fields: Sequence[str], losses: Losses, after: Schema | None = None
) -> Write:
    """Return the write that an event's payload describes.

    ``key_fields`` are the fields of the record's key, in the order of the primary key. ``after`` is the schema of the
    payload's member of that name, where the record has schemas. Raises BadRecord for a payload that no Cassandra
    connector sends.
    """
    operation, cells = payload.get("op"), payload.get("after")
    source = payload.get("source") or {}
    if not isinstance(cells, Mapping) or "ts_us" not in source:
        raise BadRecord(f"the Cassandra event with op={operation} has no 'after' or no source.ts_us")
    snapshot = str(source.get("snapshot", "false")) not in ("false", "None")
    written = SNAPSHOT_TIME if snapshot else int(source["ts_us"])
    key = _key(cells, key_fields)
    if operation == "r":
        return Delete(key, written, _range(cells, key_fields))
    if operation == "d":
        return Delete(key, written)
    if operation not in ("i", "u"):
        raise BadRecord(f"the Cassandra event has an unknown operation {str(operation)[:20]!r}")
    if len(key_fields) > 1:  # only tables with clustering columns can have static columns
        losses.note(Loss.STATIC, events=int(len(key) < len(key_fields)))
    if len(key) < len(key_fields):
        return CellWrites(key)
    made = {
        name: _cell(name, cell, written, after, losses)
        for name, cell in cells.items()
        if cell is not None and name not in key_fields and name not in _BOUNDS
    }
    if operation == "u":
        return CellWrites(key, made, None)
    # USING TTL of an INSERT applies to its cells and its marker: both expire together. Without cells it is unknown.
    ends = {cell.expires for cell in made.values() if cell.value is not None}
    return CellWrites(key, made, Cell(written, MARKED, expires=ends.pop() if len(ends) == 1 else None))


def _key(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Key:
    """Return the key's values up to the first null: a delete of several rows omits the last clustering columns."""
    values: list[Any] = []
    for name in key_fields:
        value = (cells.get(name) or {}).get("value")
        if value is None:
            break
        values.append(value)
    if not values:
        raise BadRecord("the Cassandra event does not contain the values of its partition key")
    return tuple(values)


def _cell(name: str, cell: Mapping[str, Any], written: int, after: Schema | None, losses: Losses) -> Cell:
    value = cell.get("value")
    if value is None:
        return Cell(written)
    declared = None if after is None else after.field(name)
    schema = None if declared is None else declared.field("value")
    for loss in losses_of(value, schema):
        losses.note(loss, name)
    schema_type = _TYPES.get(type(value), "string") if schema is None else schema.type
    ends = cell.get("deletion_ts")
    return Cell(written, value, comparison_bytes(schema_type, value), None if ends is None else int(ends))


def _range(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Range:
    start, end = cells.get(_START), cells.get(_END)
    if not isinstance(start, Mapping) or not isinstance(end, Mapping):
        raise BadRecord("the Cassandra range tombstone has no bounds")
    longest = max(start["values"], end["values"], key=len)
    descending = tuple("ReversedType" in each["type"] for each in longest)
    return Range(_bound(start), _bound(end), descending)


def _bound(bound: Mapping[str, Any]) -> Bound:
    prefix = tuple(_clustering_value(each) for each in bound["values"])
    return Bound(prefix, str(bound["method"]).startswith("INCL"))


_INTEGERS = ("Int32Type", "LongType", "ShortType", "ByteType")
_TEXTS = ("UTF8Type", "AsciiType")


def _clustering_value(bound: Mapping[str, Any]) -> Any:
    """Convert a bound, which is always text, to the type of its column. Raises BadRecord for an unknown type."""
    column_type, value = str(bound["type"]), bound["value"]
    if any(name in column_type for name in _INTEGERS):
        try:
            return int(value)
        except ValueError as error:
            raise BadRecord(
                f"the bound of clustering column {bound['name']} is not a number, although its type is {column_type}"
            ) from error
    if any(name in column_type for name in _TEXTS):
        return value
    raise BadRecord(
        f"the range tombstone is bounded by clustering column {bound['name']} of type {column_type}, whose order "
        "Headrace does not know"
    )
