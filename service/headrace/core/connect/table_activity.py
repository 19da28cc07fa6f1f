"""What a run of a task has written to one table: its last batches, their operations, the columns and their changes.

All of it is in memory and begins with the run. Time is an argument, in seconds since the epoch.

Tests: ``tests/unit/core/connect/test_table_activity.py``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.core.model.events import Operation, TopicPartition
from headrace.core.model.instants import iso_text
from headrace.core.model.lake_types import type_name
from headrace.core.model.table_files import TableFiles

MOST_BATCHES = 10
MOST_SCHEMA_CHANGES = 20

OPERATIONS: Mapping[Operation, str] = {
    Operation.CREATE: "creates",
    Operation.UPDATE: "updates",
    Operation.DELETE: "deletes",
    Operation.TOMBSTONE: "deletes",  # one without its delete
    Operation.TRUNCATE: "truncates",
    Operation.READ: "snapshot_reads",
}
"""The operations in a document, by Debezium's."""


@dataclass(frozen=True, slots=True)
class LastBatch:
    """A batch of a table that became durable. ``seconds`` is what its write took.

    ``committed`` is the time of its commit, ``source_time`` that of its newest change at the source, None if unknown;
    both in seconds since the epoch. ``closed_by`` is the value of the label ``trigger`` of ``headrace_batches_total``.
    ``offsets`` are the next offsets by partition, ``operations`` the events by operation.
    """

    events: int
    bytes: int
    seconds: float
    committed: float
    source_time: float | None
    closed_by: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    operations: Mapping[Operation, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the batch without its offsets and operations, as every report on a table has it."""
        return {
            "events": self.events,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "committed": iso_text(self.committed),
            **({} if self.source_time is None else {"source_time": iso_text(self.source_time)}),
        }

    def details(self) -> dict[str, Any]:
        """Return the batch with all that is known of it."""
        return {
            **self.document(),
            "closed_by": self.closed_by,
            "operations": operations_document(self.operations),
            "offsets": [
                {"topic": topic, "partition": partition, "next_offset": offset}
                for (topic, partition), offset in sorted(self.offsets.items())
            ],
        }


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of a table's columns: created (the table), added, removed or retyped. Types are those of the lake.

    ``at`` is when the first batch was committed that found the table so.
    """

    at: float
    change: str
    column: str = ""
    type: str = ""
    earlier_type: str = ""

    def document(self) -> dict[str, Any]:
        """Return the change as JSON, without what it does not have."""
        names = {"column": self.column, "type": self.type, "earlier_type": self.earlier_type}
        given = {name: text for name, text in names.items() if text}
        return {"at": iso_text(self.at), "change": self.change, **given}

    def __str__(self) -> str:
        types = " to ".join(filter(None, (self.earlier_type, self.type)))
        return f"{self.change} {self.column} {types}".strip()


@dataclass(frozen=True, slots=True)
class ReselectUse:
    """What reselect has done for a table in this run, by the labels of its metrics.

    ``cells`` are cells without a value by the step that resolved them, ``cache`` lookups in the column cache by result,
    ``queries`` SELECTs by result. ``rows`` were requested by SELECTs, and ``missing`` of them no longer existed.
    """

    cells: Mapping[str, int] = field(default_factory=dict)
    cache: Mapping[str, int] = field(default_factory=dict)
    queries: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    missing: int = 0

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "cells": dict(sorted(self.cells.items())),
            "cache_requests": dict(sorted(self.cache.items())),
            "queries": dict(sorted(self.queries.items())),
            "rows_requested": self.rows,
            "rows_not_found": self.missing,
        }


@dataclass(frozen=True, slots=True)
class TableDetails:
    """What the report on a single table has beyond those in lists. ``batches`` and ``schema_changes``: newest first.

    ``watermark`` and ``compacted`` are in seconds since the epoch. What is not known is None.
    """

    batches: Sequence[LastBatch] = ()
    operations: Mapping[Operation, int] = field(default_factory=dict)
    watermark: float | None = None
    columns: pa.Schema | None = None
    schema_changes: Sequence[SchemaChange] = ()
    files: TableFiles | None = None
    compacted: float | None = None
    reselect: ReselectUse | None = None

    def document(self) -> dict[str, Any]:
        """Return the details as JSON."""
        answer: dict[str, Any] = {
            "batches": [batch.details() for batch in self.batches],
            "operations": operations_document(self.operations),
            "schema_changes": [change.document() for change in self.schema_changes],
        }
        if self.watermark is not None:
            answer["watermark"] = iso_text(self.watermark)
        if self.columns is not None:
            answer["columns"] = [{"name": column.name, "type": _type_of(column)} for column in self.columns]
        if (files := self.files) is not None:
            answer["files"] = {
                "data_files": files.data,
                "delete_files": files.deletes,
                "bytes": files.size,
                "rows": files.rows,
                "deleted_rows": files.deleted_rows,
            }
        if self.compacted is not None:
            answer["last_compaction"] = iso_text(self.compacted)
        if self.reselect is not None:
            answer["reselect"] = self.reselect.document()
        return answer


class TableActivity:
    """The activity of one table in this run of its task."""

    __slots__ = ("_batches", "_changes", "_columns", "_is_absent", "_operations", "_watermark")

    def __init__(self) -> None:
        self._batches: deque[LastBatch] = deque(maxlen=MOST_BATCHES)
        self._operations: Counter[Operation] = Counter()
        self._watermark: float | None = None
        self._columns: pa.Schema | None = None
        self._is_absent = False
        self._changes: deque[SchemaChange] = deque(maxlen=MOST_SCHEMA_CHANGES)

    @property
    def last_batch(self) -> LastBatch | None:
        return self._batches[-1] if self._batches else None

    def on_batch(self, batch: LastBatch, watermark: int) -> None:
        """Register a durable batch, and the watermark of its commit in microseconds, negative if it is unknown."""
        self._batches.append(batch)
        self._operations.update(batch.operations)
        if watermark >= 0:
            self._watermark = watermark / 1_000_000

    def on_columns(self, columns: pa.Schema | None, now: float) -> Sequence[SchemaChange]:
        """Register the data columns of the table as a batch found or left them, None if there is no table.

        Returns what has changed since the last call.
        """
        before, self._columns = self._columns, columns
        was_absent, self._is_absent = self._is_absent, columns is None
        if columns is None or columns is before:
            return ()
        if was_absent:
            changes = [SchemaChange(now, "created")]
        else:
            changes = [] if before is None else _changes(before, columns, now)
        self._changes.extend(changes)
        return changes

    def details(self, files: TableFiles | None, compacted: float | None, reselect: ReselectUse | None) -> TableDetails:
        """Return what is known, with what others know."""
        return TableDetails(
            tuple(reversed(self._batches)),
            dict(self._operations),
            self._watermark,
            self._columns,
            tuple(reversed(self._changes)),
            files,
            compacted,
            reselect,
        )


def operations_document(operations: Mapping[Operation, int]) -> dict[str, int]:
    """Return the numbers of events by operation, zeros included."""
    counts = dict.fromkeys(OPERATIONS.values(), 0)
    for operation, events in operations.items():
        counts[OPERATIONS[operation]] += events
    return counts


def _changes(before: pa.Schema, after: pa.Schema, now: float) -> list[SchemaChange]:
    changes = [
        SchemaChange(now, "removed", name, earlier_type=_type_of(before.field(name)))
        for name in before.names
        if name not in after.names
    ]
    for column in after:
        new, earlier = _type_of(column), before.field(column.name) if column.name in before.names else None
        if earlier is None:
            changes.append(SchemaChange(now, "added", column.name, new))
        elif earlier.type != column.type:
            changes.append(SchemaChange(now, "retyped", column.name, new, _type_of(earlier)))
    return changes


def _type_of(column: pa.Field) -> str:
    try:
        return type_name(column.type)
    except KeyError:  # of a table that another writer has made
        return str(column.type)
