"""Combines several runs of changes into one, across schema changes that only add columns or widen types.

A column that a run's schema lacks is ABSENT in its events. Runs with incompatible types are not combined: each becomes
a batch, and the table decides whether the later one fits. The same holds for runs of several topics of one table,
because offsets of different topics have no order (``merge.md`` section 2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace.core.model.events import CellState, Changes, Column, Content, KeyChanges, LogServers, TableId, Versions
from headrace.core.model.versioned_writes import VersionedWrites

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return a type that contains the values of both without loss, or None if neither type contains the other."""
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if left in _INTEGERS and right in _INTEGERS:
        return max(left, right, key=_INTEGERS.index)
    if {left, right} == {pa.float32(), pa.float64()}:
        return pa.float64()
    if pa.types.is_decimal128(left) and pa.types.is_decimal128(right) and left.scale == right.scale:
        return left if left.precision >= right.precision else right
    return None


@dataclass(frozen=True, slots=True)
class Shape:
    """The common properties of runs that become one batch."""

    table: TableId
    topic: str
    key_fields: tuple[str, ...]
    types: Mapping[str, pa.DataType]


def common_shape(shape: Shape | None, run: Changes) -> Shape | None:
    """Return the shape of ``run`` with runs of ``shape`` (None: without others), or None if they are incompatible."""
    types = {column.name: column.values.type for column in run.columns}
    if shape is None:
        return Shape(run.table, run.version.topic, run.key_fields, types)
    table = _common_table(run.version.topic, shape.table, run.table)
    # proven: runs-of-one-key
    if table is None or (run.version.topic, run.key_fields) != (shape.topic, shape.key_fields):
        return None
    merged = dict(shape.types)
    for name, column_type in types.items():
        wider = wider_type(merged.get(name, column_type), column_type)
        if wider is None:
            return None
        merged[name] = wider
    return replace(shape, table=table, types=merged)


def _common_table(topic: str, left: TableId, right: TableId) -> TableId | None:
    """Return the source table of two runs, None if they are of two.

    A delete that begins a topic may not name its table, and then has the name of its topic instead
    (``core/decode/topic_tables.py``). It is of the table of the events after it: it may be the first half of a key
    change, of which they contain the second.
    """
    unnamed = TableId("", "", "", topic)
    if unnamed in (left, right):
        return right if left == unnamed else left
    return left if left == right else None


def combine(runs: Sequence[Changes]) -> Changes:
    """Combine the runs, in order. ``common_shape`` of all of them must not be None."""
    if len(runs) == 1:
        return runs[0]
    # Key changes refer to events by index, which is that in its run plus the events of the runs before it.
    starts = np.cumsum([0, *(len(run) for run in runs)])
    names = list(dict.fromkeys(column.name for run in runs for column in run.columns))
    first = runs[0]
    tables = (run.table for run in runs)
    servers: LogServers | None = None
    if any(run.servers is not None for run in runs):
        parts = [
            run.servers or LogServers(pa.array([""] * len(run), pa.string()), np.full(len(run), b"")) for run in runs
        ]
        names_of_servers = pa.concat_arrays([part.server for part in parts])
        servers = LogServers(names_of_servers, np.concatenate([part.number for part in parts]))
    return Changes(
        table=reduce(lambda one, other: _common_table(first.version.topic, one, other) or one, tables),
        key_fields=first.key_fields,
        operation=np.concatenate([run.operation for run in runs]),
        key=pa.concat_arrays([run.key for run in runs]),
        version=Versions.concatenate([run.version for run in runs]),
        transaction=np.concatenate([run.transaction for run in runs]),
        columns=tuple(_column(name, runs) for name in names),
        key_changes=KeyChanges.concatenate(
            (int(start), run.key_changes) for start, run in zip(starts, runs, strict=False)
        ),
        lost=np.concatenate([run.losses() for run in runs]) if any(run.lost is not None for run in runs) else None,
        omits_generated=any(run.omits_generated for run in runs),
        servers=servers,
    )


class Run:
    """Contents of one table that become one batch, in order of arrival."""

    def __init__(self, first: Content) -> None:
        self._changes = [first] if isinstance(first, Changes) else []
        self._shape = common_shape(None, first) if isinstance(first, Changes) else None
        self._last = first

    def add(self, content: Content) -> bool:
        """Add content, and return whether it goes into the same batch. Nothing follows a barrier in its batch."""
        match self._last, content:
            case Changes(), Changes():
                shape = common_shape(self._shape, content)
                if shape is None:
                    return False
                self._shape = shape
                self._changes.append(content)  # combined at the end, once
            case VersionedWrites() as writes, VersionedWrites():
                together = writes.followed_by(content)
                if together is None:
                    return False
                self._last = together
            case _:
                return False  # proven: barriers-alone
        return True

    def content(self) -> Content:
        return combine(self._changes) if self._changes else self._last


def without_events(changes: Changes, omitted: Collection[int]) -> Changes:
    """Return the events except those at the indexes ``omitted``, which count as lost before the others."""
    # A value that a later event reports as unchanged counts only if no event between them was omitted: the omitted one
    # may have changed it.
    newly = np.zeros(len(changes), np.int64)
    newly[list(omitted)] = 1
    for partition in np.unique(changes.version.partition):
        its = changes.version.partition == partition
        newly[its] = newly[its].cumsum()  # u(a=1) [omitted] u(a unchanged): the last event has one loss, the first none
    kept = np.array([index for index in range(len(changes)) if index not in omitted], np.int64)
    return replace(changes.take(kept), lost=(changes.losses() + newly)[kept])


def _column(name: str, runs: Sequence[Changes]) -> Column:
    columns_of_runs = [next((column for column in run.columns if column.name == name), None) for run in runs]
    present = [column for column in columns_of_runs if column is not None]
    widest_type = present[0].values.type
    for column in present[1:]:
        widest_type = wider_type(widest_type, column.values.type) or widest_type
    widest = next((column for column in reversed(present) if column.values.type == widest_type), present[-1])
    # ADD COLUMN between two runs: the events of the first lack the column (ABSENT, which keeps the stored cell), unlike
    # a NULL. After ALTER TYPE int to bigint both runs get the wider type.
    arrays = []
    for run, run_column in zip(runs, columns_of_runs, strict=True):
        values = pa.nulls(len(run), widest_type) if run_column is None else run_column.values
        arrays.append(values if values.type == widest_type else values.cast(widest_type))
    if not any(column is None or column.states is not None for column in columns_of_runs):
        return Column(name, widest.schema, pa.concat_arrays(arrays))
    states = []
    for run, run_column in zip(runs, columns_of_runs, strict=True):
        if run_column is None:
            states.append(np.full(len(run), CellState.ABSENT, np.uint8))  # proven: column-of-other-run
        elif run_column.states is not None:
            states.append(run_column.states)
        else:
            valid = np.asarray(run_column.values.is_valid())
            states.append(np.where(valid, CellState.VALUE, CellState.NULL).astype(np.uint8))
    return Column(name, widest.schema, pa.concat_arrays(arrays), np.concatenate(states))
