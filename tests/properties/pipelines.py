"""A table pipeline over a memory table, fed with the model's events; it can be killed and started again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from properties.histories import COLUMNS, Unit
from properties.reference_model import Event, Model

from headrace.core.events import Actions, CellState, Changes, Column, Operation, RowVersion, TableId, Truncate, Versions
from headrace.core.keys import canonical_keys
from headrace.core.reselect import ReselectOptions
from headrace.core.schema import Schema
from headrace.ports import Commit, MergeCounts, TableOptions
from headrace.runtime.post_processor import ReselectColumnsPostProcessor
from headrace.runtime.table_pipeline import PipelineOptions, TablePipeline
from headrace_connectors.memory import MemoryLakehouse
from headrace_connectors.memory.lakehouse import MemoryTable

TABLE = TableId("s", "db", "public", "t")
INT = Schema("int64", optional=True)

Rows = dict[int, dict[str, int | None]]


class Killed(Exception):
    """The worker died here."""


@dataclass(frozen=True)
class Death:
    """A kill at a table commit: just ``before`` it (after the ledger), or after it (before the offset commit).

    The next worker reads again from the group's offset, ``back`` units before the batch.
    """

    commit: int
    before: bool
    back: int


class Table:
    """A pipeline over a memory table that can be restarted between batches."""

    def __init__(self, deaths: Sequence[Death] = (), options: TableOptions | None = None) -> None:
        self._lakehouse = MemoryLakehouse()
        self._options = options or TableOptions()
        self._deaths = {death.commit: death for death in deaths}
        self._commits = 0
        self.died: Death | None = None
        self.restart()

    def restart(self) -> None:
        """A new worker, which knows what table and ledger say."""
        self.died = None
        table = self._lakehouse.table("n", "t", self._options)
        self.memory = table
        self._pipeline = TablePipeline(
            "n.t",
            Mortal(table, self),
            ReselectColumnsPostProcessor(ReselectOptions()),
            PipelineOptions(unresolved_insert_mode="null"),
            now=lambda: 0,
            stages=lambda stage: nullcontext(),
        )

    def create(self) -> None:
        """Let there be a table, without rows: what comes before its first row would not outlive a worker."""
        schema = pa.schema([(name, pa.int64()) for name in ("id", *COLUMNS)])
        self.memory.evolve(schema, ("id",))

    def write(self, events: Sequence[Event]) -> None:
        """Write the events as one batch. Raises Killed."""
        for piece in pieces_of(events):
            self._pipeline.write(piece, Commit(0, "c", "g", {}))

    def rows(self) -> Rows:
        """The data by key."""
        return {row["id"]: {name: row.get(name) for name in COLUMNS} for row in self.memory.rows().values()}

    def begin_commit(self) -> None:
        """A table commit is about to begin."""
        self._commits += 1
        self._die(before=True)

    def end_commit(self) -> None:
        """A table commit is durable."""
        self._die(before=False)

    def _die(self, *, before: bool) -> None:
        death = self._deaths.get(self._commits)
        if death is not None and death.before == before:
            self.died = death
            raise Killed


class Mortal:
    """A ``ports.LakeTable`` whose commits can be the last thing that a worker does."""

    def __init__(self, table: MemoryTable, owner: Table) -> None:
        self._table = table
        self._owner = owner
        self.schema = table.schema
        self.evolve = table.evolve
        self.ledger = table.ledger
        self.record_tombstones = table.record_tombstones
        self.stored = table.stored
        self.maintain = table.maintain

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions, unless death comes first."""
        self._owner.begin_commit()
        counts = self._table.merge(actions, commit)
        self._owner.end_commit()
        return counts

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove rows, unless death comes first."""
        self._owner.begin_commit()
        self._table.truncate(floor, commit)
        self._owner.end_commit()


def expected(units: Sequence[Unit]) -> Rows:
    """The table of the reference model."""
    model = Model(COLUMNS)
    for unit in units:
        for event in unit:
            model.apply(event)
    return model.table()


def pieces_of(events: Sequence[Event]) -> list[Changes | Truncate]:
    """A batch's events, cut at truncates as the batch manager does."""
    pieces: list[Changes | Truncate] = []
    run: list[Event] = []
    for event in events:
        if event.operation is Operation.TRUNCATE:
            pieces += [changes_of(run)] if run else []
            pieces.append(Truncate(TABLE, event.version))
            run = []
        else:
            run.append(event)
    return pieces + ([changes_of(run)] if run else [])


def changes_of(events: Sequence[Event]) -> Changes:
    """Events in columns."""
    columns = [Column("id", Schema("int64"), pa.array([event.key for event in events], pa.int64()))]
    columns += [_column(name, events) for name in COLUMNS]
    return Changes(
        table=TABLE,
        key_fields=("id",),
        operation=np.array([event.operation for event in events], np.uint8),
        key=canonical_keys([columns[0].values]),
        version=Versions(
            "t",
            np.array([event.version.position for event in events], "S26"),
            np.array([event.version.partition for event in events], np.int32),
            np.array([event.version.offset for event in events], np.int64),
            np.array([event.version.source_time for event in events], np.int64),
        ),
        transaction=np.full(len(events), -1, np.int64),
        columns=tuple(columns),
        old_key={i: f"={event.old_key}" for i, event in enumerate(events) if event.old_key is not None},
        moved=frozenset(i for i, event in enumerate(events) if event.moved),
    )


def _column(name: str, events: Sequence[Event]) -> Column:
    cells = [event.cells.get(name, (CellState.NULL, None)) for event in events]
    states = np.array([state for state, _ in cells], np.uint8)
    values = pa.array([value for _, value in cells], pa.int64())
    return Column(name, INT, values, states if (states > CellState.NULL).any() else None)
