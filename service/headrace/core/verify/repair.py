"""Rows read again from the source as changes, for `headrace verify --repair` (``merge.md`` section 15). Pure.

A repaired row counts as an event without position at the partition's current offset: it replaces what earlier events
left and gives way to every later one, and the stored position stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.model.arrays import arrow_type
from headrace.core.model.events import NO_POSITION, Changes, Column, Operation, RowVersion, TableId, Versions
from headrace.core.model.keys import FLOOR_KEY, canonical_keys
from headrace.core.model.ranking import UNVERSIONED, arrived_later
from headrace.core.verify.verification import Comparison, Rows


@dataclass(frozen=True, slots=True)
class Repair:
    """Where the rows go: ``ends`` are the next offsets of the topic's partitions, taken before the source was read.

    ``read_at`` is when that was, in microseconds. ``known`` are the versions of stored rows and of tombstones by
    canonical key, the floor of a truncate under its own.
    """

    table: TableId
    topic: str
    ends: Mapping[int, int]
    read_at: int
    known: Mapping[str, RowVersion]


def repair_changes(wanted: Comparison, source: Rows, gone: pa.Table, repair: Repair) -> Changes:
    """Updates for the rows of ``source``, deletes for the keys of ``gone`` (key columns in lake types).

    Updates rather than new images: columns that only the lake has are kept.
    """
    columns = tuple(
        Column(member.name, member.schema, _values(member.name, arrow_type(member.schema), source, gone))
        for member in wanted.fields
    )
    by_name = {column.name: column.values for column in columns}
    key = canonical_keys([by_name[name] for name in wanted.key_fields])
    operations = [Operation.UPDATE] * len(source) + [Operation.TOMBSTONE] * len(gone)
    return Changes(
        table=repair.table,
        key_fields=wanted.key_fields,
        operation=np.array(operations, np.uint8),
        key=key,
        version=_versions(key.to_pylist(), repair),
        transaction=np.full(len(key), -1, np.int64),
        columns=columns,
    )


def overtaken(changes: Changes, ledger: Mapping[str, RowVersion]) -> list[int]:
    """The places of rows that were deleted, alone or with all others, by events that came after those of ``changes``.

    Only arrival tells: a repaired row has no position that could be below that of a delete.
    """
    floor = ledger.get(FLOOR_KEY, UNVERSIONED)
    return [
        place
        for place, key in enumerate(changes.key.to_pylist())
        if changes.operation[place] == Operation.UPDATE
        and any(arrived_later(each, changes.version.row(place)) for each in (ledger.get(key, UNVERSIONED), floor))
    ]


def _values(name: str, kind: pa.DataType, source: Rows, gone: pa.Table) -> pa.Array:
    """In the events' own types, from which the writer goes on as always."""
    values = source.columns[name].cast(kind)
    deleted = gone[name].combine_chunks().cast(kind) if name in gone.column_names else pa.nulls(len(gone), kind)
    return pa.concat_arrays([values, deleted])


def _versions(keys: Sequence[str], repair: Repair) -> Versions:
    floor = repair.known.get(FLOOR_KEY, UNVERSIONED)
    places = [_place(repair, (repair.known.get(key, UNVERSIONED), floor)) for key in keys]
    return Versions(
        topic=repair.topic,
        position=np.full(len(keys), NO_POSITION, "S1"),
        partition=np.array([partition for partition, _ in places], np.int32),
        offset=np.array([offset for _, offset in places], np.int64),
        source_time=np.full(len(keys), repair.read_at, np.int64),
    )


def _place(repair: Repair, known: tuple[RowVersion, RowVersion]) -> tuple[int, int]:
    """The partition that the row's events come in, and the offset of the last record that the source's read includes.

    What stands at just that offset already is succeeded by the next one. The record that will have that offset still
    applies, since it has a position; were it to have none, it would be lost, so the step is not taken without need.
    """
    own = known[0]
    partition = own.partition if own.topic == repair.topic and own.partition in repair.ends else min(repair.ends)
    last = repair.ends[partition] - 1
    taken = any((each.topic, each.partition, each.offset) == (repair.topic, partition, last) for each in known)
    return partition, last + taken
