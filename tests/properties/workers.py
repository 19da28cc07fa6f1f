"""Workers that write deliveries into a lakehouse, are killed at commits, and lose their partitions to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import count
from typing import Any

import pyarrow as pa
from properties.columns import BEGIN, NEW, pieces_of
from properties.deliveries import Arrival, Cut, Death, Delivery, Place
from properties.reference_model import Model, Rows
from support.task.task_queues import TaskQueues

from headrace.core.batch.batch import BatchPolicy
from headrace.core.model.actions import Actions
from headrace.core.model.events import RowVersion
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, Lakehouse, LakeTable, MergeCounts, TableOptions, TopicPartition
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline

COLUMNS = tuple(dict(BEGIN[1:] + NEW))


class Killed(Exception):
    """The worker is killed here."""


class Fate:
    """Counts durable steps, and kills the worker at the scheduled ones."""

    def __init__(self, deaths: Sequence[Death]) -> None:
        self._due = {(death.point, death.count, death.before) for death in deaths}
        self._counts: dict[str, int] = {}

    def before(self, point: str) -> None:
        """Call this before a step becomes durable."""
        self._counts[point] = self._counts.get(point, 0) + 1
        self._perhaps(point, before=True)

    def after(self, point: str) -> None:
        """Call this after a step has become durable."""
        self._perhaps(point, before=False)

    def _perhaps(self, point: str, *, before: bool) -> None:
        if (point, self._counts[point], before) in self._due:
            raise Killed


class Mortal:
    """A ``ports.LakeTable`` whose commits may kill the worker."""

    def __init__(self, table: LakeTable, fate: Fate) -> None:
        self._table = table
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        """Methods without a durable effect are those of the table."""
        return getattr(self._table, name)

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create or change the table, unless the worker is killed before."""
        self._durably("schema", self._table.evolve, schema, key_fields)

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger, unless the worker is killed before."""
        self._durably("ledger", self._table.record_tombstones, tombstones, now)

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions, unless the worker is killed before."""
        counts: MergeCounts = self._durably("table", self._table.merge, actions, commit)
        return counts

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove rows, unless the worker is killed before."""
        self._durably("table", self._table.truncate, floor, commit)

    def _durably(self, point: str, do: Any, *arguments: Any) -> Any:
        self._fate.before(point)
        result = do(*arguments)
        self._fate.after(point)
        return result


class Worker:
    """A sink task without concurrency: fetches become batches per table, batches become offsets."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._reselect = Reselect(ReselectOptions())
        self._batches = TaskQueues(BatchPolicy())
        self._pipelines: dict[str, TablePipeline] = {}
        self._clock = 0.0
        self._unit = -1

    def assigned(self) -> None:
        """Begin at the group's offsets, without any state from before the assignment."""
        self._batches.reset()
        for pipeline in self._pipelines.values():
            pipeline.begin_assignment()

    def read(self, fetch: Sequence[Arrival], behind: int, closed: int) -> None:
        """Handle a fetch, then write the batches of the tables whose bits are set in ``closed``. Raises Killed.

        ``behind`` records of its partition are still to be fetched.
        """
        if fetch[0].unit != self._unit:
            self._clock += 10  # more than a first half that waits for its second half, if that is not fetched next
        self._unit = fetch[-1].unit
        pieces = [(str(table), piece) for table, piece in pieces_of([arrival.event for arrival in fetch])]
        self._batches.add(fetch[0].place, fetch[-1].offset + 1, pieces, self._clock, behind)
        self._write([name for name in sorted(self._batches.tables()) if closed >> int(name) & 1])

    def finish(self) -> None:
        """Write all queued changes."""
        self._clock += 10
        self._write(sorted(self._batches.tables()))

    def _write(self, tables: Sequence[str]) -> None:
        for table in tables:
            while (batch := self._batches.next(table, self._clock, flush=True)) is not None:
                offsets = {TopicPartition(*place): offset for place, offset in batch.offsets.items()}
                if self._pipeline(table).prepare():
                    self._warehouse.confirm()
                omitted = self._pipeline(table).write(batch.content, Commit(batch.id, "c", "g", offsets))
                self._warehouse.omitted |= {
                    (each.version.topic, each.version.partition, each.version.offset) for each in omitted
                }
                self._warehouse.commit(self._batches.complete(batch))

    def _pipeline(self, name: str) -> TablePipeline:
        if name not in self._pipelines:
            self._pipelines[name] = TablePipeline(
                f"n.{name}",
                self._warehouse.open(int(name)),
                self._reselect,
                PipelineOptions(unresolved_insert_mode=self._warehouse.insert_mode),
                now=lambda: 0,
                stages=lambda stage: nullcontext(),
            )
        return self._pipelines[name]


class Warehouse:
    """The storage of the workers: tables of a lakehouse by index, and the group's offsets."""

    def __init__(self, lakehouse: Lakehouse, name: str, delivery: Delivery, options: TableOptions) -> None:
        self._lakehouse = lakehouse
        self._name = name
        self._options = options
        self._fate = Fate(delivery.deaths)
        self._lost = delivery.lost
        self._commits = 0
        self._pending: dict[Place, int] = {}
        self.offsets: dict[Place, int] = {}
        self.insert_mode = "null"
        self.omitted: set[tuple[str, int, int]] = set()

    def open(self, table: int) -> Mortal:
        """A new handle for every worker."""
        return Mortal(self.table(table), self._fate)

    def table(self, table: int) -> LakeTable:
        """A table whose calls kill no worker."""
        return self._lakehouse.table("laws", f"{self._name}_{table}", self._options)

    def commit(self, offsets: Any) -> None:
        """Commit the group's offsets, unless the worker is killed before.

        The next commit contains lost offsets as well.
        """
        self._pending |= offsets
        self._commits += 1
        if self._pending and self._commits not in self._lost:
            self._fate.before("offsets")
            self.offsets |= self._pending
            self._pending = {}
            self._fate.after("offsets")

    def confirm(self) -> None:
        """The group confirms the assignment of any worker."""

    def forget_pending(self) -> None:
        """Discard uncommitted offsets, because their worker was killed."""
        self._pending = {}


NO_OPTIONS = TableOptions()


def written(
    delivery: Delivery,
    lakehouse: Lakehouse,
    name: str = "law",
    options: TableOptions = NO_OPTIONS,
    insert_mode: str = "null",
) -> dict[int, Rows]:
    """The tables by index after all records of a delivery were written, with any faults.

    The tables are called ``name`` and an index; ``insert_mode`` is ``reselect.unresolved.insert.mode``.
    """
    warehouse = Warehouse(lakehouse, name, delivery, options)
    warehouse.insert_mode = insert_mode
    _write(delivery, warehouse)
    return tables_of(delivery, warehouse)


def tables_of(delivery: Delivery, warehouse: Warehouse) -> dict[int, Rows]:
    """The current tables of a delivery by index."""
    return {number: _rows(warehouse.table(number)) for number in _tables(delivery)}


def written_or_left_out(delivery: Delivery, lakehouse: Lakehouse) -> tuple[dict[int, Rows], list[Arrival]]:
    """The same with omitted changes of incomplete rows, and the other arrivals."""
    warehouse = Warehouse(lakehouse, "law", delivery, NO_OPTIONS)
    warehouse.insert_mode = "dlq"
    _write(delivery, warehouse)
    rest = [each for each in delivery.arrivals if (*each.place, each.offset) not in warehouse.omitted]
    return {number: _rows(warehouse.table(number)) for number in _tables(delivery)}, rest


def expected(delivery: Delivery) -> dict[int, Rows]:
    """The tables of the reference model, by index."""
    models = {number: Model() for number in _tables(delivery)}
    for arrival in delivery.arrivals:
        models[arrival.event.table].apply(arrival.event)
    return {number: model.table(COLUMNS) for number, model in models.items()}


def _tables(delivery: Delivery) -> list[int]:
    return sorted({arrival.event.table for arrival in delivery.arrivals})


def _write(delivery: Delivery, warehouse: Warehouse) -> None:
    workers = [Worker(warehouse), Worker(warehouse)]
    moves = set(delivery.moves)
    for life in count():
        try:
            if came_to_the_end(workers[0], delivery, life, moves, warehouse.offsets):
                return
        except Killed:
            workers[0] = Worker(warehouse)
        warehouse.forget_pending()
        workers.reverse()
        workers[0].assigned()


def came_to_the_end(
    worker: Worker, delivery: Delivery, life: int, moves: set[int], offsets: Mapping[Place, int]
) -> bool:
    """Whether the worker came to the end of the delivery. Raises Killed."""
    cuts = delivery.cuts[min(life, len(delivery.cuts) - 1)]
    ends = {arrival.place: arrival.offset + 1 for arrival in delivery.arrivals}
    for last, fetch in _fetches(delivery.arrivals, cuts, dict(offsets)):
        behind = ends[fetch[-1].place] - fetch[-1].offset - 1
        worker.read(fetch, behind, cuts[last].closed)
        if last in moves:
            moves.discard(last)
            return False
    worker.finish()
    return True


def _fetches(
    arrivals: Sequence[Arrival], cuts: Sequence[Cut], offsets: Mapping[Place, int]
) -> Iterator[tuple[int, list[Arrival]]]:
    """The fetches from the group's offsets on, with the index of each fetch's last arrival."""
    fetch: list[Arrival] = []
    last = 0
    for index, arrival in enumerate(arrivals):
        if arrival.offset < offsets.get(arrival.place, 0):
            continue
        if fetch and (cuts[last].fetch or fetch[-1].place != arrival.place):
            yield last, fetch
            fetch = []
        fetch.append(arrival)
        last = index
    if fetch:
        yield last, fetch


def _rows(table: LakeTable) -> Rows:
    """The rows of a lake table by key."""
    stored = table.schema()
    if stored is None:
        return {}
    names = [name for name in COLUMNS if name in stored.names]
    found = [row for piece in table.scan(["id", *names]) for row in piece.to_pylist()]
    assert len({row["id"] for row in found}) == len(found), "several rows of one key"
    return {row["id"]: {name: row.get(name) for name in COLUMNS} for row in found}
