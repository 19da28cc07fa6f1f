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
from prometheus_client.samples import Sample

from headrace.core.batch.batch import Unwritten
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.table_load import LoadProgress
from headrace.ports import TopicPartition, UpkeepReport
from headrace.runtime.metrics.exposition import LazyFamily
from headrace.runtime.metrics.table_series import SHARED, TableSeries

_TASK = ("connector", "task")
_TABLE = (*_TASK, "table")
_STATE = (*_TABLE, "state")
_PARTITION = (*_TASK, "topic", "partition")
Lag = Callable[[], Mapping[TopicPartition, int]]


def no_lag() -> Mapping[TopicPartition, int]:
    """Return no lag, for a task without a consumer."""
    return {}


def no_loads() -> Mapping[str, LoadProgress]:
    """Return no loads, for a task without tables."""
    return {}


def nothing_unwritten() -> Mapping[str, Unwritten]:
    """Return no tables, for a task without queues."""
    return {}


@dataclass(slots=True)
class TableProgress:
    """One table: source time and freshness of the newest durable batch in seconds, what waits to be written, files.

    ``load`` is None while no load is running.
    """

    source_time: float | None = None
    freshness: float | None = None
    unwritten: Unwritten | None = None
    files: int | None = None
    deleted_share: float | None = None
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
        if report.deleted_share is not None:
            progress.deleted_share = report.deleted_share

    def refresh(self) -> None:
        """Set the oldest events of each table that are not durable now, and its load."""
        if self.inherited:
            return
        oldest, loads = self.unwritten(), self.loads()
        for table in oldest.keys() - self.tables.keys():
            self.tables[table] = TableProgress()
        for table, progress in self.tables.items():
            progress.unwritten, progress.load = oldest.get(table), loads.get(table)

    def remove_tables(self, tables: Collection[str]) -> None:
        """Remove tables that are now assigned to another task."""
        for table in tables:
            self.tables.pop(table, None)


_Tasks = Sequence[tuple[tuple[str, str], TaskProgress]]
_Samples = Iterator[tuple[Mapping[str, str], float]]


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
        yield _gauge("headrace_lag_records", "Records that the group has not committed", self._lag(tasks))
        yield self._of_tables(
            tasks,
            "headrace_freshness_last_seconds",
            "Time since the source commit of the oldest unwritten event, or freshness of the last batch",
            lambda table: table.freshness_at(now),
            of_failed=False,
        )
        yield self._of_tables(
            tasks,
            "headrace_source_time_seconds",
            "Source time of the newest visible row, Unix time",
            lambda table: table.source_time,
            combine=min,
        )
        yield self._of_tables(
            tasks,
            "headrace_oldest_unwritten_seconds",
            "Seconds since the oldest event that is not durable was read, 0 without such an event",
            lambda table: 0.0 if table.unwritten is None else max(clock - table.unwritten.since, 0.0),
            of_failed=False,
        )
        yield self._of_tables(
            tasks, "headrace_table_files", "Data files and delete files of a table", lambda table: table.files
        )
        yield self._of_tables(
            tasks,
            "headrace_table_deleted_ratio",
            "Share of the rows in the files that deletes hide from readers",
            lambda table: table.deleted_share,
        )
        yield self._of_tables(
            tasks,
            "headrace_load_rows",
            "Rows of the snapshot that is being loaded that the table contains",
            lambda table: None if table.load is None else table.load.rows,
            combine=sum,
        )
        yield self._of_tables(
            tasks,
            "headrace_load_remaining_records",
            "Records of the topics of a table that is being loaded that are not committed",
            lambda table: None if table.load is None else table.load.remaining,
            combine=sum,
        )
        yield self._of_tables(
            tasks,
            "headrace_load_end_seconds",
            "Estimated end of the load of what Kafka contains, Unix time",
            lambda table: None if table.load is None else table.load.estimated_end,
        )
        yield _gauge("headrace_table_state", "1 for the current state of the table", self._states(tasks))
        own, shared = self._tables.counts()
        yield _gauge(
            "headrace_metrics_tables",
            "Tables with series of their own, and tables that share the series with the label value *",
            (({"series": series}, number) for series, number in (("own", own), ("shared", shared))),
        )

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
                    yield _labels(_STATE, *task, label, state), 1
            for state, number in shared.items():
                yield _labels(_STATE, *task, SHARED, state), number

    def _lag(self, tasks: _Tasks) -> _Samples:
        for task, progress in tasks:
            shared, is_shared = 0, False
            for partition, records in list(progress.lag().items()):
                topic = self._topics.label(task, partition.topic)
                if topic == SHARED:
                    shared, is_shared = shared + records, True
                else:
                    yield _labels(_PARTITION, *task, topic, str(partition.partition)), records
            if is_shared:
                yield _labels(_PARTITION, *task, SHARED, SHARED), shared

    def _of_tables(
        self,
        tasks: _Tasks,
        name: str,
        text: str,
        value: Callable[[TableProgress], float | None],
        *,
        combine: Callable[[Iterable[float]], float] = max,
        of_failed: bool = True,
    ) -> Metric:
        """Return a gauge per table. Shared series have what ``combine`` makes of the values, by default the largest."""

        def samples() -> _Samples:
            for task, progress in tasks:
                shared: list[float] = []
                for table, table_progress in list(progress.tables.items()):
                    if not of_failed and progress.blocked.get(table) is TableState.FAILED:
                        continue
                    if (number := value(table_progress)) is None:
                        continue
                    label = self._tables.label(task, table)
                    if label == SHARED:
                        shared.append(number)
                    else:
                        yield _labels(_TABLE, *task, label), number
                if shared:
                    yield _labels(_TABLE, *task, SHARED), combine(shared)

        return _gauge(name, text, samples())


def _labels(names: Sequence[str], *values: str) -> Mapping[str, str]:
    return dict(zip(names, values, strict=True))


def _gauge(name: str, text: str, samples: _Samples) -> Metric:
    return LazyFamily(name, text, "gauge", (Sample(name, dict(labels), value) for labels, value in samples))
