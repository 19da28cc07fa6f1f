"""A table in memory that events are written to: fold -> post-processor -> a dict with the resulting rows.

Events are written as ``u(1, big=P)``: operation, key, cells. ``P`` is the placeholder, ``DOUBT`` a null that may mean a
value, ``GONE`` a column that the event's schema lacks, a real ``None`` a null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from support.clock import Clock

from headrace.core.merge.fold import fold
from headrace.core.model.actions import Actions
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import CellState, Changes, Column, KeyChanges, Operation, TableId, Versions
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.cache.rows import CacheUse
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Connections
from headrace.runtime.pipeline.reselect import MAY_CACHE, Reselect
from headrace.runtime.pipeline.source_database import Query
from headrace_dev.memory import MemoryRowSource

TABLE = TableId("shop", "inventory", "public", "orders")
TEXT_TYPE = SqlType(25, "pg_catalog", "text")
INT_TYPE = SqlType(23, "pg_catalog", "int4")
ID, TEXT = Schema("int32"), Schema("string", optional=True)
COLUMNS = ("big", "doc")
NO_CACHE = ReselectOptions(null_values=False)
CACHE = ReselectOptions(null_values=False, cache_enabled=True, cache_admission="always")
NULLS = replace(CACHE, null_values=True, columns_include_list=".*")
SNAPSHOT = 777
"""The transaction of snapshot reads, which their events contain and which is rolled back."""
P, DOUBT, GONE, HOLLOW = "<placeholder>", "<doubt>", "<no such column>", "<nothing to keep>"


@dataclass(frozen=True, slots=True)
class Event:
    """One change of one row. ``position`` is that of the source, 0 for none."""

    operation: Operation
    key: int
    cells: Mapping[str, Any]
    old_key: int | None = None
    position: int | None = None
    transaction: int = -1


def c(key: int, old: int | None = None, **cells: Any) -> Event:
    """Return an insert, or the create event of a key change from ``old``."""
    return Event(Operation.CREATE, key, cells, old)


def u(key: int, position: int | None = None, **cells: Any) -> Event:
    """Return an update."""
    return Event(Operation.UPDATE, key, cells, None, position)


def r(key: int, **cells: Any) -> Event:
    """Return a snapshot read."""
    return Event(Operation.READ, key, cells, None, 0, SNAPSHOT)


def d(key: int) -> Event:
    """Return a delete."""
    return Event(Operation.DELETE, key, {})


def catalog(**changes: Any) -> CatalogTable:
    """Return the table's PostgreSQL catalog entry. ``changes`` replace attributes of the text columns."""
    plain = [CatalogColumn(name, n, TEXT_TYPE, attstorage="x") for n, name in enumerate(COLUMNS, 2)]
    text = [replace(column, **changes) for column in plain]
    columns = (CatalogColumn("id", 1, INT_TYPE, attlen=4, not_null=True), *text)
    return CatalogTable(TABLE, "r", "d", columns, (KeyColumn("id", INT_TYPE),))


def row(key: int, big: str | None, doc: str | None = None) -> dict[str, Any]:
    """Return a row of the database."""
    return {"id": key, "big": big, "doc": doc}


def database(*rows: Mapping[str, Any], **how: Any) -> MemoryRowSource:
    """Return a source whose table has these rows now."""
    source = MemoryRowSource(**how)
    fields = (Field("id", ID), *(Field(name, TEXT) for name in COLUMNS))
    source.add(catalog(), Schema("struct", fields=fields), [dict(row) for row in rows])
    return source


class Counts:
    """Metrics that add up the reported numbers by counter and labels."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.use = CacheUse(0, 0, 0)
        self.connected = Connections()

    def count(self, table: TableId, kind: str, labels: Sequence[str], number: int) -> None:
        self.seen[(kind, *labels)] += number

    def query(self, table: TableId, query: Query) -> None:
        self.seen["queries", query.result] += 1

    def cache(self, use: CacheUse) -> None:
        self.use = use

    def connections(self, now: Connections) -> None:
        self.connected = now


@dataclass
class Lake:
    """The stored rows by key, and the pipeline that writes events to them. A soft delete keeps the row."""

    source: MemoryRowSource | None = None
    options: ReselectOptions = CACHE
    topic: str = "orders"
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    offset: int = 0
    clock: Clock = field(default_factory=Clock)
    may_cache: Callable[[str], bool] = MAY_CACHE
    soft_delete: bool = False
    table: TableId = TABLE
    metrics: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        self.post = Reselect(
            self.options, self.source, metrics=self.metrics, clock=self.clock, may_cache=self.may_cache
        )
        self.post.cache.assign([(self.topic, 0)])

    def batch(self, *events: Event, partition: int = 0) -> None:
        """Write events as one batch."""
        actions = self.resolve(*events, partition=partition)
        self._apply(actions)
        self.post.cache.commit(self.table)

    def each(self, *events: Event) -> None:
        """Write each event as a separate batch."""
        for event in events:
            self.batch(event)

    def resolve(self, *events: Event, partition: int = 0) -> Actions:
        """Fold and resolve a batch without writing it."""
        changes = self._changes(events, partition)
        actions = fold(changes)
        self.post.count_folded(changes, actions)
        return self.post.resolve(actions).actions

    def big(self, key: int = 1) -> Any:
        """Return the stored value of ``big``."""
        return self.rows[key]["big"]

    @property
    def queries(self) -> int:
        """The number of SELECTs."""
        return len(self.source.requests) if self.source else 0

    def _apply(self, actions: Actions) -> None:
        before = {key: dict(row) for key, row in self.rows.items()}
        keys = next(column for column in actions.columns if column.name == "id").values.to_pylist()
        for number, key in enumerate(keys):
            if actions.delete[number]:
                if not self.soft_delete:
                    self.rows.pop(key, None)
                continue
            old = {} if actions.fresh[number] else before.get(key, {})
            carried = actions.carried if actions.carries()[number] else None
            origin = None if carried is None else keys[carried.origin[number]]
            self.rows[key] = {
                column.name: _cell(column, number, old, before.get(origin, {}))
                for column in actions.columns
                if column.name in COLUMNS
            }

    def _changes(self, events: tuple[Event, ...], partition: int) -> Changes:
        begin, self.offset = self.offset, self.offset + len(events)
        offsets = np.arange(begin, self.offset, dtype=np.int64)
        positions = [event.position if event.position is not None else begin + n + 1 for n, event in enumerate(events)]
        ids = pa.array([event.key for event in events], pa.int32())
        return Changes(
            table=self.table,
            key_fields=("id",),
            operation=np.array([event.operation for event in events], np.uint8),
            key=canonical_keys([ids]),
            version=Versions(
                self.topic,
                np.array([b"%08d" % position if position else b"" for position in positions], "S8"),
                np.full(len(events), partition, np.int32),
                offsets,
                offsets,
            ),
            transaction=np.array([event.transaction for event in events], np.int64),
            columns=(Column("id", ID, ids), *(_column(name, events) for name in COLUMNS)),
            key_changes=KeyChanges(
                {
                    n: canonical_keys([pa.array([event.old_key], pa.int32())])[0].as_py()
                    for n, event in enumerate(events)
                    if event.old_key is not None
                }
            ),
        )


def _column(name: str, events: tuple[Event, ...]) -> Column:
    cells = [event.cells.get(name) for event in events]
    states = [
        {P: CellState.UNCHANGED, DOUBT: CellState.UNKNOWN, GONE: CellState.ABSENT, None: CellState.NULL}.get(
            cell, CellState.VALUE
        )
        for cell in cells
    ]
    values = build_array(
        TEXT, [cell if state is CellState.VALUE else None for cell, state in zip(cells, states, strict=True)]
    )
    plain = all(state in (CellState.VALUE, CellState.NULL) for state in states)
    return Column(name, TEXT, values, None if plain else np.array(states, np.uint8))


def _cell(column: Column, number: int, old: Mapping[str, Any], origin: Mapping[str, Any]) -> Any:
    state = CellState.VALUE if column.states is None else column.states[number]
    if state in (CellState.VALUE, CellState.NULL):
        return column.values[number].as_py()
    kept = origin if state == CellState.CARRIED else old
    return kept.get(column.name, HOLLOW)
