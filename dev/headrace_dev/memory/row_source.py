"""A source database in memory: rows of Connect values that a test can change, hide and make fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.findings import Finding, Severity
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Fatal, HeadraceError
from headrace.core.model.events import TableId
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import UNREADABLE, RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition, ReplicationSlot, TablePart
from headrace_dev.memory.signals import MemorySignals

Row = Mapping[str, Any]

_SCANNED_AT_ONCE = 7


class MemoryRowSource:
    """Tables by id. ``requests`` contains all requests; each fetch raises the next of ``failures``, if any.

    ``proven`` and ``flashback_fallbacks`` are those of answers, ``position`` is the reported position of the log,
    ``replication_slots`` are those of the database.
    """

    def __init__(self, *, proven: bool = True) -> None:
        self.requests: list[RowRequest] = []
        self.failures: list[HeadraceError] = []
        self.proven = proven
        self.position = LogPosition("postgresql", (0,), (0,))
        self.flashback_fallbacks: dict[str, int] = {}
        self.connected = Connections()
        self.signal_tables: dict[str, MemorySignals] = {}
        self.replication_slots: list[ReplicationSlot] = []
        self.clock_ahead = 0.0
        self.closed = False
        self._catalogs: dict[TableId, CatalogTable] = {}
        self._schemas: dict[TableId, Schema] = {}
        self._rows: dict[TableId, list[Row]] = {}

    def add(self, catalog: CatalogTable, schema: Schema, rows: Sequence[Row] = ()) -> None:
        """Create a table, or replace its catalog entry, ``after`` schema and rows."""
        self._catalogs[catalog.table] = catalog
        self._schemas[catalog.table] = schema
        self._rows[catalog.table] = list(rows)

    def set_rows(self, table: TableId, *rows: Row) -> None:
        """Replace the rows of a table."""
        self._rows[table] = list(rows)

    def check(self) -> None:
        """Raise the next failure, if any."""
        self._fail()

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's entry."""
        return self._catalogs.get(table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the ``after`` schema that the table was added with."""
        return self._schemas[catalog.table]

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Return the current rows. Raises Fatal if a key has several rows."""
        self._fail()
        self.requests.append(request)
        rows = self._by_key(catalog.table, request)
        keys = canonical_keys([column.values for column in request.key]).to_pylist()
        found = np.array([key in rows for key in keys], np.bool_)
        values = tuple([self._value(catalog, rows.get(key), column.name) for key in keys] for column in request.columns)
        return RowAnswer(found, values, self.proven, self.flashback_fallbacks)

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield the current rows, a few at a time."""
        self._fail()
        rows = list(self._rows[catalog.table])
        for begin in range(0, len(rows), _SCANNED_AT_ONCE):
            piece = rows[begin : begin + _SCANNED_AT_ONCE]
            yield [[self._value(catalog, row, column.name) for row in piece] for column in columns]

    def scan_in_parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        """Yield the rows whose keys the table had at the begin, each as it is when its piece is read."""
        self._fail()

        def key(row: Row) -> tuple[Any, ...]:
            return tuple(row[part.name] for part in catalog.key)

        keys = list(map(key, self._rows[catalog.table]))
        for begin in range(0, len(keys), _SCANNED_AT_ONCE):
            wanted = keys[begin : begin + _SCANNED_AT_ONCE]
            piece = [row for row in self._rows[catalog.table] if key(row) in wanted]
            values = [[self._value(catalog, row, column.name) for row in piece] for column in columns]
            yield TablePart(len(piece), partial(list, values))

    def log_position(self) -> LogPosition:
        """Return ``position``."""
        self._fail()
        return self.position

    def findings(self, tables: Sequence[TableId]) -> Sequence[Finding]:
        """Return a finding for each table that does not exist."""
        missing = [f"{table.schema}.{table.table}" for table in tables if table not in self._catalogs]
        return [
            Finding("missing", Severity.WARNING, name, "it fails", "there is no table", "add it") for name in missing
        ]

    def clock(self, now: Callable[[], float]) -> ClockReading:
        """Return a clock that is ``clock_ahead`` seconds ahead."""
        before = now()
        return ClockReading("memory", before, before + self.clock_ahead, now())

    def signal_table(self, name: str) -> MemorySignals:
        """Return a channel of its own for each name."""
        return self.signal_tables.setdefault(name, MemorySignals())

    def slots(self) -> Sequence[ReplicationSlot]:
        """Return ``replication_slots``."""
        return self.replication_slots

    def connections(self) -> Connections:
        """Return ``connected``."""
        return self.connected

    def close(self) -> None:
        """Do nothing."""
        self.closed = True

    def _by_key(self, table: TableId, request: RowRequest) -> dict[str, Row]:
        rows = self._rows[table]
        columns = [build_array(column.schema, [row[column.name] for row in rows]) for column in request.key]
        by_key: dict[str, Row] = {}
        for key, row in zip(canonical_keys(columns).to_pylist(), rows, strict=True):
            if key in by_key:
                raise Fatal(f"several rows of {table.schema}.{table.table} have the same key")
            by_key[key] = row
        return by_key

    @staticmethod
    def _value(catalog: CatalogTable, row: Row | None, name: str) -> Any:
        if catalog.column(name) is None:
            return UNREADABLE
        return None if row is None else row.get(name)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
