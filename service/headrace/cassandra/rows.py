"""Merge Cassandra's writes with the rows of a lake table: values, and a map of the cells' versions (``merge.md``
section 7).

``__headrace_cells`` maps a column's name to the write time and the expiry time of its cell, and the empty name to those
of the insert marker. A column with a version and no value is a deleted cell, or an expired cell if the version has an
expiry time. Deletes that have no stored row (of rows, partitions, ranges, and of the cells of absent rows) are stored
in the table's ledger, under a text that describes them.

``CassandraWrites.merged_with`` needs every stored row that one of the writes may change: the rows under their keys, and
the rows that their deletes cover.

Tests: ``tests/unit/runtime/pipeline/test_cassandra_pipeline.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa

from headrace.cassandra.cell_writes import (
    MARKED,
    NEVER,
    Bound,
    CassandraTable,
    Cell,
    CellWrites,
    Delete,
    Range,
    RowState,
    Write,
    comparison_bytes,
)
from headrace.core.model.actions import Actions, Gates
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import OWN_PREFIX, CellState, Column, RowVersion, TableId, Versions
from headrace.core.model.inferred_types import common_inferred_schema, infer_schema, is_inferred
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Field, Schema
from headrace.core.model.versioned_writes import CELL_VERSIONS, Key, MergedWrites, VersionedWrites

_COUNT, _MAYBE = Schema("int64"), Schema("int64", optional=True)
_VERSION = Schema("struct", fields=(Field("written", _COUNT), Field("expires", _MAYBE)))
CELLS_SCHEMA = Schema("map", optional=True, keys=Schema("string"), values=_VERSION)
MARKER = ""
"""The name of the insert marker among the versions; no column has this name."""

_EARLIEST = 2**63
_EXPIRED = 0
_MICROS = 1000  # microseconds in a millisecond, the unit of Connect's Timestamp


class _Kept:
    """The type of ``KEPT``, which represents the value of the stored row."""


KEPT: Final = _Kept()


@dataclass(frozen=True, slots=True)
class CassandraWrites(VersionedWrites):
    """Writes of one Cassandra table. See ``VersionedWrites`` for the attributes and methods."""

    source: ClassVar[str] = "Cassandra"

    table: TableId
    key_fields: tuple[str, ...]
    fields: tuple[Field, ...]
    writes: tuple[Write, ...]
    version: RowVersion
    size: int = 0

    def __len__(self) -> int:
        return len(self.writes)

    def with_fields(self, names: Iterable[str]) -> CassandraWrites:
        kept = set(names)
        writes: list[Write] = []
        for write in self.writes:
            if isinstance(write, CellWrites):
                write = replace(write, cells={name: cell for name, cell in write.cells.items() if name in kept})
            writes.append(write)
        return replace(self, fields=tuple(field for field in self.fields if field.name in kept), writes=tuple(writes))

    def followed_by(self, other: VersionedWrites) -> CassandraWrites | None:
        if not isinstance(other, CassandraWrites):
            return None
        if (self.table, self.key_fields) != (other.table, other.key_fields):
            return None
        writes = self.writes + other.writes
        fields = {field.name: field for field in self.fields}
        for field in other.fields:
            before = fields.setdefault(field.name, field)
            if before.schema == field.schema:
                continue
            if not (is_inferred(before.schema) and is_inferred(field.schema)):
                return None
            name, schema = field.name, common_inferred_schema(before.schema, field.schema)
            if schema is None:
                if name in self.key_fields:
                    index = self.key_fields.index(name)
                    values = [write.key[index] for write in writes if index < len(write.key)]
                else:
                    cells = [write.cells for write in writes if isinstance(write, CellWrites)]
                    values = [row[name].value for row in cells if name in row]
                try:
                    schema = infer_schema(values)
                except BadRecord:  # no common type: the table's type decides whether the later values fit
                    return None
            fields[name] = Field(name, schema)
        version = replace(other.version, source_time=max(self.version.source_time, other.version.source_time))
        size = self.size + other.size
        return CassandraWrites(self.table, self.key_fields, tuple(fields.values()), writes, version, size)

    def keys(self, length: int) -> list[Key]:
        return list(dict.fromkeys(write.key for write in self.writes if len(write.key) == length))

    def merged_with(self, stored: pa.Table, ledger: Mapping[str, RowVersion], now: int) -> MergedWrites:
        # Stored rows and the ledger are writes as well, in any order: with the ledger's delete(k=1, time 20), the
        # batch's late update(k=1, v='a', time 10) changes nothing, and update(k=1, w='b', time 30) makes the row.
        state = CassandraTable()
        before = dict(_stored_rows(self, stored))
        for write in (*before.values(), *_writes_in_ledger(ledger), *self.writes):
            state.apply(write)
        full = len(self.key_fields)
        rows = {key: row for key, row in state.rows().items() if len(key) == full}
        touched = {write.key for write in self.writes if isinstance(write, CellWrites)} | before.keys()
        changed = {key: rows[key] for key in rows if key in touched and _is_new(rows[key], before.get(key), now)}
        gone = {key: row for key, row in changed.items() if row.visible(now) is None}
        tombstones = {**_deletes(self), **_cells_without_row(self, gone)}
        written = {key: row for key, row in changed.items() if key not in gone or key in before}
        return MergedWrites(_actions(self, written, stored.schema, now), tombstones)


def _is_new(row: RowState, stored: CellWrites | None, now: int) -> bool:
    """Whether the batch, or the end of a TTL, changes the stored row."""
    if stored is None:
        return True
    old = RowState(dict(stored.cells), stored.marker)
    return _versions_of(row) != _versions_of(old) or row.visible(now) != old.visible(NEVER)


# -- rows to write ----------------------------------------------------------------------------------------------------


def _actions(batch: CassandraWrites, rows: Mapping[Key, RowState], stored: pa.Schema, now: int) -> Actions:
    keys, states = list(rows), list(rows.values())
    delete = np.array([row.visible(now) is None for row in states], np.bool_)
    columns = []
    for index, member in enumerate(batch.fields[: len(batch.key_fields)]):
        values = [key[index] for key in keys]
        # Without schemas, and if all rows are deleted stored ones, only the table has the type of the column.
        untyped = member.schema.type == "null" and member.name in stored.names
        array = pa.array(values, stored.field(member.name).type) if untyped else build_array(member.schema, values)
        columns.append(Column(member.name, member.schema, array))
    key = canonical_keys([column.values for column in columns])
    columns += [_data_column(member, states, now) for member in batch.fields if member.name not in batch.key_fields]
    batch_columns = {member.name for member in batch.fields}
    columns += [
        _table_column(column, states, now)
        for column in stored
        if column.name not in batch_columns and not column.name.startswith(OWN_PREFIX)
    ]
    columns.append(
        Column(CELL_VERSIONS, CELLS_SCHEMA, build_array(CELLS_SCHEMA, [_versions_of(row) for row in states]))
    )
    last, count = batch.version, len(keys)
    versions = Versions(
        last.topic,
        np.full(count, last.position, "S1"),
        np.full(count, last.partition, np.int32),
        np.full(count, last.offset, np.int64),
        np.full(count, last.source_time, np.int64),
    )
    nothing = np.zeros(count, np.bool_)
    return Actions(
        table=batch.table,
        key_fields=batch.key_fields,
        key=key,
        delete=delete,
        fresh=nothing,
        version=versions,
        gates=Gates(versions.position, versions, nothing),  # ``CassandraTable`` has compared the versions of all cells
        transaction=np.full(len(keys), -1, np.int64),
        columns=tuple(columns),
    )


def _data_column(member: Field, rows: Sequence[RowState], now: int) -> Column:
    seen = [(row.visible(now) or {}).get(member.name) for row in rows]
    values = build_array(member.schema, [None if value is KEPT else value for value in seen])
    states = np.where(np.asarray(values.is_null()), CellState.NULL, CellState.VALUE).astype(np.uint8)
    states[[index for index, value in enumerate(seen) if value is KEPT]] = CellState.UNCHANGED
    return Column(member.name, member.schema, values, states if any(value is KEPT for value in seen) else None)


def _table_column(column: pa.Field, rows: Sequence[RowState], now: int) -> Column:
    """Return a column that only the table has: its cells are kept, or deleted by a delete that covers them."""
    kept = np.array([column.name in (row.visible(now) or {}) for row in rows], np.bool_)
    states = np.where(kept, CellState.UNCHANGED, CellState.NULL).astype(np.uint8)
    return Column(column.name, Schema("string", optional=True), pa.nulls(len(rows), column.type), states)


def _versions_of(row: RowState) -> dict[str, dict[str, int | None]]:
    """Return the versions that a later write is compared with. The ledger stores what a delete covers."""
    cells = {**row.cells, **({MARKER: row.marker} if row.marker is not None else {})}
    return {
        name: {"written": cell.written, "expires": cell.expires}
        for name, cell in cells.items()
        if cell.written > row.deleted
    }


# -- stored rows ------------------------------------------------------------------------------------------------------


def _stored_rows(batch: CassandraWrites, stored: pa.Table) -> Iterator[tuple[Key, CellWrites]]:
    """Return the stored rows, as the writes that would have made them."""
    if len(stored) == 0:
        return
    schemas = {member.name: member.schema for member in batch.fields}
    columns = {
        name: _plain(stored[name], schemas.get(name)) for name in stored.column_names if not name.startswith(OWN_PREFIX)
    }
    for index, versions in enumerate(stored[CELL_VERSIONS].to_pylist()):
        key = tuple(columns[name][index] for name in batch.key_fields)
        cells = {}
        for name, version in versions or ():
            value, schema = columns[name][index] if name in columns else None, schemas.get(name)
            if value is None:
                cells[name] = Cell(version["written"], expires=version["expires"])
                continue
            # These bytes decide only between versions with one write time. A column without a schema is not in the
            # batch, which then has no other version of the cell.
            compared = comparison_bytes(schema.type, value) if schema else b""
            cells[name] = Cell(version["written"], KEPT, compared, version["expires"])
        marker = cells.pop(MARKER, None)
        if marker is not None:
            marker = Cell(marker.written, MARKED, expires=marker.expires)
        yield key, CellWrites(key, cells, marker)


def _plain(column: pa.ChunkedArray, schema: Schema | None) -> list[Any]:
    """Return cells as events contain them: dates and times are counts."""
    array = column.combine_chunks()
    if pa.types.is_date32(array.type):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    cells: list[Any] = array.to_pylist()
    if schema is not None and (schema.name or "").endswith(".Timestamp"):
        return [None if cell is None else cell // _MICROS for cell in cells]
    return cells


# -- the ledger -------------------------------------------------------------------------------------------------------


def _deletes(batch: CassandraWrites) -> dict[str, RowVersion]:
    write_times: dict[str, int] = {}
    for write in batch.writes:
        if isinstance(write, Delete):
            start, end = write.range.start, write.range.end
            bounds = [list(start.prefix), start.inclusive, list(end.prefix), end.inclusive]
            text = json.dumps(["delete", list(write.key), *bounds, list(write.range.descending)])
            write_times[text] = max(write.written, write_times.get(text, write.written))
    return {text: _ledger_version(batch, written) for text, written in write_times.items()}


def _cells_without_row(batch: CassandraWrites, gone: Mapping[Key, RowState]) -> dict[str, RowVersion]:
    """Return entries for deleted and expired cells of absent rows, so that older writes of them have no effect.

    The text of an expired cell contains its expiry time: of two such cells of one microsecond, the one that expires
    later wins.
    """
    entries = {}
    for key, row in gone.items():
        for name, version in _versions_of(row).items():
            expires = [] if version["expires"] is None else [version["expires"]]
            text = json.dumps(["cell", list(key), name, *expires])
            entries[text] = _ledger_version(batch, version["written"] or 0)
    return entries


def _ledger_version(batch: CassandraWrites, written: int) -> RowVersion:
    """Return a version with the write time as its position, so that the ledger keeps the later of two entries."""
    last = batch.version
    return RowVersion(b"%020d" % (written + _EARLIEST), last.topic, last.partition, last.offset, last.source_time)


def _writes_in_ledger(ledger: Mapping[str, RowVersion]) -> Iterator[Write]:
    """Return the entries of the ledger, as writes."""
    for text, version in ledger.items():
        kind, key, *rest = json.loads(text)
        written = int(version.position) - _EARLIEST
        if kind == "delete":
            start, start_in, end, end_in, descending = rest
            bounds = Bound(tuple(start), start_in), Bound(tuple(end), end_in)
            yield Delete(tuple(key), written, Range(*bounds, tuple(descending)))
        elif rest[0] == MARKER:  # a marker is never deleted by itself, and earlier releases did not write its expiry
            yield CellWrites(tuple(key), {}, Cell(written, expires=rest[1] if len(rest) > 1 else _EXPIRED))
        else:
            yield CellWrites(tuple(key), {rest[0]: Cell(written, expires=rest[1] if len(rest) > 1 else None)})
