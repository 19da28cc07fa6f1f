"""Convert rows of the source to changes, for `headrace verify --repair` (``merge.md`` section 15).

A repaired row counts as an event without a position at the partition's current offset: it replaces the result of
earlier events, every later event replaces it, and the stored position does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.model.absent_columns import untyped_fields
from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.events import (
    NO_POSITION,
    UNVERSIONED,
    CellState,
    Changes,
    Column,
    Operation,
    RowVersion,
    TableId,
    Versions,
    arrived_later,
)
from headrace.core.model.keys import FLOOR_KEY, canonical_keys
from headrace.core.verify.verification import Comparison, Rows


@dataclass(frozen=True, slots=True)
class Repair:
    """The table to repair. ``ends`` are the next offsets of the topic's partitions, read before the source was read.

    ``read_at`` is that time, in microseconds. ``versions`` are those of stored rows and of tombstones by canonical
    key, and the floor of a truncate under ``FLOOR_KEY``.
    """

    table: TableId
    topic: str
    ends: Mapping[int, int]
    read_at: int
    versions: Mapping[str, RowVersion]


def repair_changes(wanted: Comparison, source: Rows, deleted_keys: pa.Table, repair: Repair) -> Changes:
    """Return updates for the rows of ``source`` and deletes for ``deleted_keys`` (key columns in lake types).

    They are updates rather than new images, so that columns that only the lake has are kept. The columns have the types
    of events, which the writer converts as it always does. The cells of ``wanted.changed`` count as unchanged, because
    only an event has what the transforms make of it. So an update never creates a row that lacks them.
    """
    columns = []
    for member in wanted.fields:
        event_type = arrow_type(member.schema)
        updated = source.columns[member.name].cast(event_type)
        deleted = (
            deleted_keys[member.name].combine_chunks().cast(event_type)
            if member.name in deleted_keys.column_names
            else pa.nulls(len(deleted_keys), event_type)
        )
        columns.append(Column(member.name, member.schema, pa.concat_arrays([updated, deleted])))
    states = np.full(len(source) + len(deleted_keys), CellState.UNCHANGED, np.uint8)
    states[len(source) :] = CellState.NULL
    columns += [
        Column(member.name, member.schema, pa.nulls(len(states), arrow_type(member.schema)), states)
        for member in untyped_fields(wanted.changed)
    ]
    by_name = {column.name: column.values for column in columns}
    key = canonical_keys([by_name[name] for name in wanted.key_fields])
    operations = [Operation.UPDATE] * len(source) + [Operation.TOMBSTONE] * len(deleted_keys)
    return Changes(
        table=repair.table,
        key_fields=wanted.key_fields,
        operation=np.array(operations, np.uint8),
        key=key,
        version=_versions(key.to_pylist(), repair),
        transaction=np.full(len(key), -1, np.int64),
        columns=tuple(columns),
    )


def find_overtaken(changes: Changes, ledger: Mapping[str, RowVersion]) -> list[int]:
    """Return the indexes of rows that a delete or a truncate removed after the events of ``changes``.

    Offsets decide, because a repaired row has no position to compare with that of a delete.
    """
    floor = ledger.get(FLOOR_KEY, UNVERSIONED)
    return [
        index
        for index, key in enumerate(changes.key.to_pylist())
        if changes.operation[index] == Operation.UPDATE
        and any(arrived_later(end, changes.version.row(index)) for end in (ledger.get(key, UNVERSIONED), floor))
    ]


def _versions(keys: Sequence[str], repair: Repair) -> Versions:
    floor = repair.versions.get(FLOOR_KEY, UNVERSIONED)
    partitions, offsets = [], []
    for key in keys:
        row = repair.versions.get(key, UNVERSIONED)
        # The partition of the row's events, and the offset of the last record that the source's read includes.
        is_in_topic = row.topic == repair.topic and row.partition in repair.ends
        partition = row.partition if is_in_topic else min(repair.ends)
        last = repair.ends[partition] - 1
        # If the row is already stored with this offset, it gets the next one. The record that will get that offset
        # still applies if it has a position. Without a position it would be lost: so only where necessary.
        is_used = any(
            (used.topic, used.partition, used.offset) == (repair.topic, partition, last) for used in (row, floor)
        )
        partitions.append(partition)
        offsets.append(last + is_used)
    return Versions(
        topic=repair.topic,
        position=np.full(len(keys), NO_POSITION, "S1"),
        partition=np.array(partitions, np.int32),
        offset=np.array(offsets, np.int64),
        source_time=np.full(len(keys), repair.read_at, np.int64),
    )
