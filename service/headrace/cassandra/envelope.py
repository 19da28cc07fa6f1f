"""Debezium's Cassandra envelopes as writes (``merge.md`` section 7; observed on connector 3.4.1).

They differ from all others: no ``before``; ``op`` is i, u, d or r, where r is a range tombstone and no read; ``after``
has a cell ``{value, deletion_ts, set}`` or null per column, and the bounds of a range. All cells of an event have the
write time ``source.ts_us``; in a snapshot that is the time of the SELECT, and means nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.cassandra.losses import Loss, Losses, losses_of
from headrace.core.model.cell_writes import (
    MARKED,
    SNAPSHOT_TIME,
    Bound,
    Cell,
    CellWrites,
    Delete,
    Key,
    Range,
    Write,
    octets,
)
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema

_START, _END = "_range_start", "_range_end"
_BOUNDS = (_START, _END)
_KINDS: Mapping[type, str] = {bool: "boolean", int: "int64", float: "double"}


def write_of(
    payload: Mapping[str, Any], key_fields: Sequence[str], losses: Losses, after: Schema | None = None
) -> Write:
    """What an event's payload does. ``key_fields`` are the fields of the record's key: the primary key in its order.

    ``after`` is the schema of the payload's member of that name, where the record has schemas. Raises BadRecord for
    what no Cassandra connector sends.
    """
    operation, cells = payload.get("op"), payload.get("after")
    source = payload.get("source") or {}
    if not isinstance(cells, Mapping) or "ts_us" not in source:
        raise BadRecord(f"a Cassandra event with op={operation} and no 'after', or without source.ts_us")
    snapshot = str(source.get("snapshot", "false")) not in ("false", "None")
    written = SNAPSHOT_TIME if snapshot else int(source["ts_us"])
    key = _key(cells, key_fields)
    if operation == "r":
        return Delete(key, written, _range(cells, key_fields))
    if operation == "d":
        return Delete(key, written)
    if operation not in ("i", "u"):
        raise BadRecord(f"unknown operation {operation!r} in a Cassandra event")
    if len(key_fields) > 1:  # there may be clustering columns, without which there are no static ones
        losses.note(Loss.STATIC, events=int(len(key) < len(key_fields)))
    if len(key) < len(key_fields):
        return CellWrites(key)
    made = {
        name: _cell(name, cell, written, after, losses)
        for name, cell in cells.items()
        if cell is not None and name not in key_fields and name not in _BOUNDS
    }
    return CellWrites(key, made, _marker(made, written) if operation == "i" else None)


def _key(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Key:
    """The key's values up to the first that is null: clustering columns of a delete that covers more than a row."""
    values: list[Any] = []
    for name in key_fields:
        value = (cells.get(name) or {}).get("value")
        if value is None:
            break
        values.append(value)
    if not values:
        raise BadRecord("a Cassandra event without the values of its partition key")
    return tuple(values)


def _cell(name: str, cell: Mapping[str, Any], written: int, after: Schema | None, losses: Losses) -> Cell:
    value = cell.get("value")
    if value is None:
        return Cell(written)
    told = None if after is None else after.field(name)
    schema = None if told is None else told.field("value")
    for loss in losses_of(value, schema):
        losses.note(loss, name)
    kind = _KINDS.get(type(value), "string") if schema is None else schema.type
    ends = cell.get("deletion_ts")
    return Cell(written, value, octets(kind, value), None if ends is None else int(ends))


def _marker(cells: Mapping[str, Cell], written: int) -> Cell:
    """The marker of an INSERT ends with its cells: USING TTL counts for both. One without cells does not tell."""
    ends = {cell.expires for cell in cells.values() if cell.value is not None}
    return Cell(written, MARKED, expires=ends.pop() if len(ends) == 1 else None)


def _range(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Range:
    start, end = cells.get(_START), cells.get(_END)
    if not isinstance(start, Mapping) or not isinstance(end, Mapping):
        raise BadRecord("a range tombstone without its bounds")
    longest = max(start["values"], end["values"], key=len)
    descending = tuple("ReversedType" in each["type"] for each in longest)
    return Range(_bound(start), _bound(end), descending)


def _bound(bound: Mapping[str, Any]) -> Bound:
    prefix = tuple(_clustering_value(each) for each in bound["values"])
    return Bound(prefix, str(bound["method"]).startswith("INCL"))


_INTEGERS = ("Int32Type", "LongType", "ShortType", "ByteType")
_TEXTS = ("UTF8Type", "AsciiType")


def _clustering_value(bound: Mapping[str, Any]) -> Any:
    """A bound's value, which is always text, as events have that column. Raises BadRecord where that is unknown."""
    kind, value = str(bound["type"]), bound["value"]
    if any(name in kind for name in _INTEGERS):
        try:
            return int(value)
        except ValueError as error:
            raise BadRecord(f"the bound of clustering column {bound['name']} is no number, as {kind} has it") from error
    if any(name in kind for name in _TEXTS):
        return value
    raise BadRecord(
        f"a range of rows is bounded by clustering column {bound['name']} of type {kind}, whose order is not known here"
    )
