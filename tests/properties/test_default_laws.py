"""Property of columns that are added with a default: for any order of arrival the table equals the database."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from properties.columns import changes_of, table_id
from properties.reference_model import Event
from properties.searching import examples

from headrace.core.model.absent_columns import ColumnDefault, ColumnDefaults
from headrace.core.model.events import CellState, Operation, RowVersion
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, LakeTable, TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse

BEFORE = (("id", "int32"), ("a", "int32"))
AFTER = (*BEFORE, ("c", "string"))
DEFAULT = ColumnDefault("c", "text", "none")
KEYS = 3


@dataclass
class Database:
    """A table to which a column is added, the events of its rows, and the position of the ALTER TABLE."""

    choose: Random
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    added: RowVersion | None = None

    def change(self) -> None:
        """Change a row, or read it as a snapshot does."""
        key, what = self.choose.randrange(KEYS), self.choose.choice(("upsert", "upsert", "read", "delete"))
        row = self.rows.get(key)
        if what == "upsert":
            operation = Operation.CREATE if row is None else Operation.UPDATE
            self.rows[key] = {"id": key, "a": self.choose.randrange(9)}
            if self.added is not None:
                self.rows[key]["c"] = self.choose.choice((None, "told", "none"))
            self._emit(operation, key, self.rows[key])
        elif row is not None and what == "read":
            self._emit(Operation.READ, key, row)
        elif row is not None:
            del self.rows[key]
            self._emit(Operation.DELETE, key, {})

    def add_column(self) -> None:
        """Add the column: every row has the default now, without an event."""
        self.added = RowVersion(b"00000.%020d" % self._now(), "schema", 0, 0, self._now())
        for row in self.rows.values():
            row["c"] = "none"

    def _emit(self, operation: Operation, key: int, row: dict[str, Any]) -> None:
        position = b"" if operation is Operation.READ else b"00000.%020d" % self._now()
        version = RowVersion(position, "t", key % 2, len(self.events), self._now())
        cells = {name: (CellState.NULL if row[name] is None else CellState.VALUE, row[name]) for name in row}
        cells.pop("id", None)
        self.events.append(Event(operation, key, version, cells, columns=BEFORE if self.added is None else AFTER))

    def _now(self) -> int:
        return 2 * len(self.events) + (self.added is not None)


def history(choose: Random) -> Database:
    """Changes before and after the column is added; the last one contains it."""
    database = Database(choose)
    for _ in range(choose.randint(1, 8)):
        database.change()
    database.add_column()
    for _ in range(choose.randint(0, 8)):
        database.change()
    database.rows[KEYS] = {"id": KEYS, "a": 0, "c": "last"}
    database._emit(Operation.CREATE, KEYS, database.rows[KEYS])
    return database


def pipeline(table: LakeTable) -> TablePipeline:
    """A worker that has just started."""
    reselect = Reselect(ReselectOptions())
    return TablePipeline("n.t", table, reselect, PipelineOptions(), lambda: 0, lambda stage: nullcontext())


@examples(80)
@given(st.randoms(use_true_random=False))
def test_the_table_ends_as_the_database(choose: Random) -> None:
    """The table equals the database if the ALTER TABLE arrives before, between or after the rows, or twice.

    Workers restart in between.
    """
    database = history(choose)
    assert database.added is not None
    added = ColumnDefaults(table_id(0), database.added, (DEFAULT,))
    table = MemoryLakehouse().table("n", "t", TableOptions())
    partitions = [[event for event in database.events if event.version.partition == number] for number in (0, 1)]
    worker, read, restarts = pipeline(table), [0, 0], choose.randint(0, 2)
    due = {choose.randint(0, len(database.events)) for _ in range(choose.randint(1, 2))}
    while sum(read) < len(database.events):
        if restarts and table.schema() is not None and choose.randint(0, 1):
            worker, read, restarts = pipeline(table), [choose.randint(0, end) for end in read], restarts - 1
        if any(sum(read) >= place for place in due):
            due = {place for place in due if place > sum(read)}
            worker.write(added, Commit(0, "c", "g", {}))
        number = choose.choice([number for number in (0, 1) if read[number] < len(partitions[number])])
        end = choose.randint(read[number] + 1, len(partitions[number]))
        for columns in (BEFORE, AFTER):
            batch = [event for event in partitions[number][read[number] : end] if event.columns == columns]
            if batch:
                worker.write(changes_of(batch), Commit(0, "c", "g", {}))
        read[number] = end
    if due:
        worker.write(added, Commit(0, "c", "g", {}))
    rows = table.to_arrow().select(["id", "a", "c"]).to_pylist()
    assert {row["id"]: row for row in rows} == database.rows


def test_a_worker_that_waited_hears_of_a_default() -> None:
    """A worker that waited applies a default that another worker recorded to a row older than the column."""
    lakehouse = MemoryLakehouse()
    slow, other = (pipeline(lakehouse.table("n", "t", TableOptions())) for _ in range(2))
    database = Database(Random(0))
    for key in (0, 1):
        database.rows[key] = {"id": key, "a": key}
        database._emit(Operation.CREATE, key, database.rows[key])
    database.add_column()
    database._emit(Operation.CREATE, 2, {"id": 2, "a": 2, "c": "told"})
    first, late, new = database.events
    slow.write(changes_of([first]), Commit(0, "c", "g", {}))
    assert database.added is not None
    other.write(ColumnDefaults(table_id(0), database.added, (DEFAULT,)), Commit(0, "c", "g", {}))
    other.write(changes_of([new]), Commit(1, "c", "g", {}))
    slow.write(changes_of([late]), Commit(1, "c", "g", {}))
    rows = lakehouse.table("n", "t", TableOptions()).rows()
    assert [row["c"] for row in rows.values()] == ["none", "told", "none"]
