"""Lag, freshness and states of the tables of each task, as gauges that are computed at each scrape.

A gauge that a finished batch sets would keep its value while a writer hangs, or after the table or partition has moved
to another task. These gauges are computed from the current partitions and unwritten events of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.core.batch.batch import Unwritten
from headrace.core.connect.lifecycle import TableState
from headrace.ports import TopicPartition

_TASK = ("connector", "task")
_TABLE = (*_TASK, "table")
Lag = Callable[[], Mapping[TopicPartition, int]]


def no_lag() -> Mapping[TopicPartition, int]:
    """Return no lag, for a task without a consumer."""
    return {}


def nothing_unwritten() -> Mapping[str, Unwritten]:
    """Return no tables, for a task without queues."""
    return {}


@dataclass(slots=True)
class TableProgress:
    """One table: source time and freshness of the newest durable batch in seconds, and what waits to be written."""

    source_time: float | None = None
    freshness: float | None = None
    unwritten: Unwritten | None = None

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

    def refresh(self) -> None:
        """Set the oldest events of each table that are not durable now."""
        if self.inherited:
            return
        oldest = self.unwritten()
        for table in oldest.keys() - self.tables.keys():
            self.tables[table] = TableProgress()
        for table, progress in self.tables.items():
            progress.unwritten = oldest.get(table)

    def remove_tables(self, tables: Collection[str]) -> None:
        """Remove tables that are now assigned to another task."""
        for table in tables:
            self.tables.pop(table, None)


class ProgressCollector(Collector):
    """Collects the gauges of this worker's tasks. ``clock`` returns monotonic seconds, ``now`` Unix time in seconds.

    A failed table has no freshness and no age of its oldest event: its topics are not read, so both would be those of
    the moment at which it failed.
    """

    def __init__(self, clock: Callable[[], float], now: Callable[[], float]) -> None:
        self._clock = clock
        self._now = now
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
        self.current()
        yield self._lag()
        clock, now = self._clock(), self._now()
        yield self._of_tables(
            "headrace_freshness_last_seconds",
            "Time since the source commit of the oldest unwritten event, or freshness of the last batch",
            lambda table: table.freshness_at(now),
            of_failed=False,
        )
        yield self._of_tables(
            "headrace_source_time_seconds",
            "Source time of the newest visible row, Unix time",
            lambda table: table.source_time,
        )
        yield self._of_tables(
            "headrace_oldest_unwritten_seconds",
            "Seconds since the oldest event that is not durable was read, 0 without such an event",
            lambda table: 0.0 if table.unwritten is None else max(clock - table.unwritten.since, 0.0),
            of_failed=False,
        )
        yield self._states()

    def _states(self) -> Metric:
        family = GaugeMetricFamily(
            "headrace_table_state", "1 for the current state of the table", labels=(*_TABLE, "state")
        )
        for task, progress in self._tasks.items():
            for table in {**progress.tables, **progress.blocked}:
                family.add_metric((*task, table, progress.blocked.get(table, TableState.RUNNING)), 1)
        return family

    def _lag(self) -> Metric:
        labels = (*_TASK, "topic", "partition")
        family = GaugeMetricFamily("headrace_lag_records", "Records that the group has not committed", labels=labels)
        for task, progress in self._tasks.items():
            for partition, records in progress.lag().items():
                family.add_metric((*task, partition.topic, str(partition.partition)), records)
        return family

    def _of_tables(
        self, name: str, text: str, value: Callable[[TableProgress], float | None], *, of_failed: bool = True
    ) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_TABLE)
        for task, progress in self._tasks.items():
            for table, table_progress in progress.tables.items():
                if not of_failed and progress.blocked.get(table) is TableState.FAILED:
                    continue
                if (number := value(table_progress)) is not None:
                    family.add_metric((*task, table), number)
        return family
