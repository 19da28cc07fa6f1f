"""Lag, freshness and states of the tables of each task, as gauges that are computed at each scrape.

A gauge that a finished batch sets would keep its value while a writer hangs, or after the table or partition has moved
to another task. These gauges are computed from the current partitions and unwritten events of the task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.core.batch.batch import Unwritten
from headrace.core.connect.lifecycle import NOT_READ, TableState
from headrace.core.connect.table_load import LoadProgress
from headrace.core.model.proof import VerificationReport
from headrace.core.model.table_files import TableFiles
from headrace.ports import ReplicationSlot, TopicPartition, UpkeepReport
from headrace.runtime.metrics import declarations as declared
from headrace.runtime.metrics.declaration import Declaration
from headrace.runtime.metrics.exposition import lazy_gauge
from headrace.runtime.metrics.table_series import SHARED, TableSeries

Lag = Callable[[], Mapping[TopicPartition, int]]


def no_lag() -> Mapping[TopicPartition, int]:
    """Return no lag, for a task without a consumer."""
    return {}


def no_loads() -> Mapping[str, LoadProgress]:
    """Return no loads, for a task without tables."""
    return {}


def no_target(table: str) -> float | None:
    """Return no freshness target, for a task without queues."""
    return None


def nothing_verified() -> Mapping[str, VerificationReport]:
    """Return no reports, for a task without verifications."""
    return {}


def nothing_unwritten() -> Mapping[str, Unwritten]:
    """Return no tables, for a task without queues."""
    return {}


@dataclass(slots=True)
class TableProgress:
    """One table: source time and freshness of the newest durable batch in seconds, what waits to be written, files.

    ``target`` is the freshness in seconds that the table should not exceed. ``load`` is None while no load is running.
    """

    source_time: float | None = None
    freshness: float | None = None
    target: float | None = None
    unwritten: Unwritten | None = None
    files: TableFiles | None = None
    load: LoadProgress | None = None

    def behind(self, since: float, now: float) -> float | None:
        """Return by how many seconds the table is behind, or was in a batch since ``since``; None without either."""
        was_written = self.freshness is not None and (self.source_time or 0.0) + self.freshness >= since
        return self.freshness_at(now) if was_written or self.unwritten is not None else None

    def freshness_at(self, now: float) -> float | None:
        """Return by how many seconds the table is behind its source at ``now`` (Unix time in seconds)."""
        if self.unwritten is None or self.unwritten.source_time <= 0:
            return self.freshness
        return max(self.freshness or 0.0, now - self.unwritten.source_time / 1_000_000)


@dataclass(slots=True)
class TaskProgress:
    """The progress of one run of a task. All access is on the worker's event loop.

    ``blocked`` has the states of the tables that do not run. ``inherited``: the tables are those of the run before, so
    that their freshness stays visible until this run has an assignment.
    """

    lag: Lag = no_lag
    unwritten: Callable[[], Mapping[str, Unwritten]] = nothing_unwritten
    loads: Callable[[], Mapping[str, LoadProgress]] = no_loads
    target: Callable[[str], float | None] = no_target
    verified: Callable[[], Mapping[str, VerificationReport]] = nothing_verified
    slots: Sequence[ReplicationSlot] = ()
    tables: dict[str, TableProgress] = field(default_factory=dict)
    blocked: Mapping[str, TableState] = field(default_factory=dict)
    inherited: bool = False

    def begin_assignment(self) -> None:
        """Record a new assignment. The task has no records in memory."""
        if self.inherited:
            self.tables.clear()
        self.inherited = False

    def record_batch(self, table: str, source_time: int, now: float) -> float | None:
        """Return the freshness of a durable batch whose newest event is of ``source_time`` (microseconds), if known."""
        if source_time <= 0:
            return None
        progress = self.tables.setdefault(table, TableProgress())
        progress.source_time = source_time / 1_000_000
        progress.freshness = max(now - progress.source_time, 0.0)
        return progress.freshness

    def record_upkeep(self, table: str, report: UpkeepReport) -> None:
        """Record the files of a table, where they are known."""
        progress = self.tables.setdefault(table, TableProgress())
        if report.files is not None:
            progress.files = report.files

    def refresh(self) -> None:
        """Set the oldest events of each table that are not durable now, its target and its load."""
        if self.inherited:
            return
        oldest, loads = self.unwritten(), self.loads()
        for table in oldest.keys() - self.tables.keys():
            self.tables[table] = TableProgress()
        for table, progress in self.tables.items():
            progress.unwritten, progress.load = oldest.get(table), loads.get(table)
            progress.target = self.target(table)

    def remove_tables(self, tables: Collection[str]) -> None:
        """Remove tables that are now assigned to another task."""
        for table in tables:
            self.tables.pop(table, None)


_Tasks = Sequence[tuple[tuple[str, str], TaskProgress]]
_Samples = Iterator[tuple[Sequence[str], float]]


class ProgressCollector(Collector):
    """Collects the gauges of this worker's tasks. ``clock`` returns monotonic seconds, ``now`` Unix time in seconds.

    A failed table has no freshness and no age of its oldest event: its topics are not read, so both would be those of
    the moment at which it failed. Tables and topics that share series (``table_series.py``) have their worst value in
    them, or their sum, so that an alert applies to all of them. Samples are computed while they are iterated.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        now: Callable[[], float],
        tables: TableSeries | None = None,
        topics: TableSeries | None = None,
    ) -> None:
        self._clock = clock
        self._now = now
        self._tables = tables or TableSeries(None)
        self._topics = topics or TableSeries(None)
        self._tasks: dict[tuple[str, str], TaskProgress] = {}

    def begin(self, connector: str, task: str) -> TaskProgress:
        """Return the progress of a new run of a task. Later reports of an abandoned earlier run are ignored."""
        before = self._tasks.get((connector, task), TaskProgress())
        before.refresh()
        progress = self._tasks[connector, task] = TaskProgress(tables=dict(before.tables), inherited=True)
        return progress

    def current(self) -> Mapping[tuple[str, str], TaskProgress]:
        """Return the progress by connector and task, with the oldest events of now."""
        for progress in self._tasks.values():
            progress.refresh()
        return self._tasks

    def end(self, connector: str, task: str) -> None:
        """Remove the gauges of a task that has failed or moved to another worker."""
        self._tasks.pop((connector, task), None)

    def collect(self) -> Iterator[Metric]:
        """Return one family per gauge."""
        tasks = list(self.current().items())
        clock, now = self._clock(), self._now()
        yield lazy_gauge(declared.LAG, self._lag(tasks))
        yield self._of_tables(tasks, declared.FRESHNESS, lambda table: table.freshness_at(now), of_unread=False)
        yield self._of_tables(tasks, declared.FRESHNESS_TARGET, lambda table: table.target, combine=min)
        yield self._of_tables(tasks, declared.SOURCE_TIME, lambda table: table.source_time, combine=min)
        yield self._of_tables(
            tasks,
            declared.OLDEST_UNWRITTEN,
            lambda table: 0.0 if table.unwritten is None else max(clock - table.unwritten.since, 0.0),
            of_unread=False,
        )
        yield self._of_files(tasks, declared.TABLE_FILES, lambda files: files.count)
        yield self._of_files(tasks, declared.TABLE_BYTES, lambda files: files.size)
        yield self._of_files(tasks, declared.TABLE_DELETED, lambda files: files.deleted_share)
        yield self._of_tables(
            tasks,
            declared.LOAD_ROWS,
            lambda table: None if table.load is None else table.load.rows,
            combine=sum,
        )
        yield self._of_tables(
            tasks,
            declared.LOAD_REMAINING,
            lambda table: None if table.load is None else table.load.remaining,
            combine=sum,
        )
        yield self._of_tables(
            tasks, declared.LOAD_END, lambda table: None if table.load is None else table.load.estimated_end
        )
        yield lazy_gauge(declared.TABLE_STATE, self._states(tasks))
        yield from self._verifications(tasks, now)
        slots = [(connector, slot) for (connector, _), progress in tasks for slot in progress.slots]
        yield lazy_gauge(declared.SLOT_ACTIVE, (((name, slot.where, slot.name), slot.active) for name, slot in slots))
        yield lazy_gauge(declared.SLOT_BYTES, (((name, slot.where, slot.name), slot.retained) for name, slot in slots))
        own, shared = self._tables.counts()
        yield lazy_gauge(declared.METRICS_TABLES, ((("own",), own), (("shared",), shared)))

    def _verifications(self, tasks: _Tasks, now: float) -> Iterator[Metric]:
        """Return the gauges of verifications. Tables that share series have their greatest age, and their sum."""
        intervals: dict[str, float] = {}
        ages: dict[tuple[str, str], float] = {}
        differences: Counter[tuple[str, str]] = Counter()
        for task, progress in tasks:
            for table, report in progress.verified().items():
                series = task[0], self._tables.label(task, table)
                intervals[task[0]] = report.interval
                ages[series] = max(ages.get(series, 0.0), report.unproven(now))
                differences[series] += report.differing
        yield lazy_gauge(declared.VERIFY_AGE, iter(ages.items()))
        yield lazy_gauge(declared.VERIFY_INTERVAL, (((name,), interval) for name, interval in intervals.items()))
        yield lazy_gauge(declared.VERIFY_DIFFERENCES, iter(differences.items()))

    def _states(self, tasks: _Tasks) -> _Samples:
        """Return 1 per table and state, and how many tables of the shared series are in each state.

        Tables that do not run are named beside those with series of their own, as many as ``metrics.tables`` allows.
        """
        names_left = self._tables.limit or 0
        for task, progress in tasks:
            shared: Counter[TableState] = Counter()
            for table in {**progress.tables, **progress.blocked}:
                state = progress.blocked.get(table, TableState.RUNNING)
                label = self._tables.label(task, table)
                if label == SHARED and state is not TableState.RUNNING and names_left:
                    names_left, label = names_left - 1, table
                if label == SHARED:
                    shared[state] += 1
                else:
                    yield (*task, label, state), 1
            for state, number in shared.items():
                yield (*task, SHARED, state), number

    def _lag(self, tasks: _Tasks) -> _Samples:
        for task, progress in tasks:
            shared, is_shared = 0, False
            for partition, records in list(progress.lag().items()):
                topic = self._topics.label(task, partition.topic)
                if topic == SHARED:
                    shared, is_shared = shared + records, True
                else:
                    yield (*task, topic, str(partition.partition)), records
            if is_shared:
                yield (*task, SHARED, SHARED), shared

    def _of_files(self, tasks: _Tasks, gauge: Declaration, value: Callable[[TableFiles], float]) -> Metric:
        """Return a gauge of the tables whose files are known."""
        return self._of_tables(tasks, gauge, lambda table: None if table.files is None else value(table.files))

    def _of_tables(
        self,
        tasks: _Tasks,
        gauge: Declaration,
        value: Callable[[TableProgress], float | None],
        *,
        combine: Callable[[Iterable[float]], float] = max,
        of_unread: bool = True,
    ) -> Metric:
        """Return a gauge per table. Shared series have what ``combine`` makes of the values, by default the largest."""

        def samples() -> _Samples:
            for task, progress in tasks:
                shared: list[float] = []
                for table, table_progress in list(progress.tables.items()):
                    if not of_unread and progress.blocked.get(table) in NOT_READ:
                        continue
                    if (number := value(table_progress)) is None:
                        continue
                    label = self._tables.label(task, table)
                    if label == SHARED:
                        shared.append(number)
                    else:
                        yield (*task, label), number
                if shared:
                    yield (*task, SHARED), combine(shared)

        return lazy_gauge(gauge, samples())
