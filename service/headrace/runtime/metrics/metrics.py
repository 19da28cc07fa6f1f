"""Every metric of a worker, for ``/metrics``.

``declarations.py`` and ``connect_declarations.py`` have their names, labels and meanings. ``connect_metrics.py`` and
``state_metrics.py`` measure those of Kafka Connect, ``task_progress.py`` measures freshness and lag. ``reselect_*`` are
those of ``reselect.md`` section 9. Labels contain names of connectors, tasks, topics and tables, never keys or values.
``table_series.py`` decides which tables share series, and ``exposition.py`` makes the text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace import __version__
from headrace.core.batch.batch import Batch, Unwritten
from headrace.core.connect.lifecycle import State
from headrace.core.connect.status import TableStatus
from headrace.core.connect.table_load import LoadProgress
from headrace.core.connect.timeline import Kind
from headrace.core.model.events import TableId
from headrace.core.model.proof import VerificationReport
from headrace.core.reselect.cache.rows import CacheUse
from headrace.ports import Connections, EngineState, EngineStatus, ReplicationSlot, TopicPartition, UpkeepReport
from headrace.runtime.metrics import connect_declarations as of_connect
from headrace.runtime.metrics import declarations as declared
from headrace.runtime.metrics.connect_metrics import StartupCounts, TaskCollector, TaskSensors
from headrace.runtime.metrics.declaration import Declaration
from headrace.runtime.metrics.exposition import CONTENT_TYPE, text_in_turns, text_parts
from headrace.runtime.metrics.state_metrics import (
    CertificateCollector,
    DirectoryCollector,
    StateCollector,
    TimelineCollector,
)
from headrace.runtime.metrics.summaries import ConnectorSummary, Summaries
from headrace.runtime.metrics.table_series import TableSeries
from headrace.runtime.metrics.task_progress import ProgressCollector, TaskProgress
from headrace.runtime.observation import Observer, StateObserver
from headrace.runtime.pipeline.source_database import Query
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.stores import ConfigStore, StatusStore
from headrace.runtime.worker.timeline import Timeline

_RESELECT_COUNTERS: Mapping[str, Declaration] = {
    "cells": declared.RESELECT_CELLS,
    "resolved": declared.RESELECT_RESOLVED,
    "requests": declared.CACHE_REQUESTS,
    "writes": declared.CACHE_WRITES,
    "drops": declared.CACHE_DROPS,
    "contradictions": declared.RESELECT_CONTRADICTIONS,
    "flashback_fallbacks": declared.RESELECT_FLASHBACK,
    "guard": declared.RESELECT_GUARD,
    "source_equals_placeholder": declared.RESELECT_EQUALS_PLACEHOLDER,
    "rows_not_found": declared.RESELECT_NOT_FOUND,
    "bytes_read": declared.RESELECT_BYTES,
}
"""The counters of reselect, by the names that the core gives them."""


class Metrics(StateObserver):
    """The metrics of one worker. Each worker has its own registries, so one process can run several workers.

    ``tables`` is the number of tables that have series of their own, None is all of them.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        tables: int | None = None,
    ) -> None:
        # They are a fourth of the page, and Prometheus does not use them in this format.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        """Counters, histograms and other metrics that any thread may read."""
        self._loop_registry = CollectorRegistry()
        """Metrics that are computed from what only the event loop may read."""
        self.tables = TableSeries(tables, partial(self._remove, "table"))
        self.topics = TableSeries(tables, partial(self._remove, "topic"))
        self.source_tables = TableSeries(tables)
        self._tasks = TaskCollector(clock)
        self._progress = ProgressCollector(clock, now, self.tables, self.topics)
        self._summaries = Summaries(self._tasks, self._progress, now)
        self._startups = StartupCounts()
        self._connector_states: dict[str, State] = {}
        self._task_states: dict[tuple[str, int], State] = {}
        self._of_connectors: dict[Counter | Gauge | Histogram, tuple[str, ...]] = {}
        """The metrics whose series belong to connectors, with their labels."""
        self._states: StateCollector | None = None
        self._loop_registry.register(self._tasks)
        self._loop_registry.register(self._progress)
        self._loop_registry.register(CertificateCollector())
        self._table_metrics()
        self._reselect_metrics()
        self._info = Gauge(declared.INFO.name, declared.INFO.help, declared.INFO.labels, registry=self.registry)
        self._info.labels(__version__).set(1)

    def exposition(self) -> tuple[bytes, str]:
        """Return all metrics as text, and the content type."""
        return b"".join(text_parts(self._families())), CONTENT_TYPE

    async def scrape(self) -> tuple[Sequence[bytes], str]:
        """Return the same in parts, without keeping the event loop from other work.

        What only the event loop may read is read in turns with its other tasks, the rest in a thread.
        """
        of_loop = await text_in_turns(self._loop_registry.collect())
        return of_loop + await asyncio.to_thread(lambda: list(text_parts(self._of_threads()))), CONTENT_TYPE

    def complete(self) -> CollectorRegistry:
        """Return a registry with all metrics of now."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Families(list(self._families())))
        return registry

    def _families(self) -> Iterator[Metric]:
        yield from self._loop_registry.collect()
        yield from self._of_threads()

    def _of_threads(self) -> Iterator[Metric]:
        yield from self.registry.collect()
        yield from self._tasks.counts()
        if self._states is not None:
            yield from self._states.collect()

    def summaries(self) -> Sequence[ConnectorSummary]:
        """Return what the tasks of each connector have done on this worker since the last call, by name."""
        return self._summaries.since_last_call(self._task_states)

    def flows(self, connector: str) -> Sequence[tuple[int, Mapping[str, object]]]:
        """Return what the tasks of a connector that run on this worker did in the last minute, by their numbers."""
        return sorted(
            (int(number), sensors.flow())
            for (name, number), sensors in self._tasks.tasks().items()
            if name == connector and sensors.present
        )

    def task(
        self,
        connector: str,
        task_number: int,
        topic_seen: Callable[[str], None],
        noted: Callable[[str, str], None] = lambda text, location: None,
        set_note: Callable[[str, Sequence[str]], None] = lambda text, locations: None,
        tables: Callable[[Sequence[TableStatus]], None] = lambda blocked: None,
        record: Callable[[Kind, str, str], None] = lambda kind, table, text: None,
    ) -> TaskMetrics:
        """Return the observer of one run of a task.

        ``topic_seen`` receives the topic of each chunk, ``noted`` and ``set_note`` the notes, ``tables`` the tables
        that do not run, ``record`` events for the timeline, in any thread.
        """
        sensors, progress = self._tasks.task(connector, task_number), self._progress.begin(connector, str(task_number))
        labels, passed_on = (connector, str(task_number)), (topic_seen, noted, set_note, tables, record)
        return TaskMetrics(self, labels, sensors, progress, *passed_on)

    def reselects(self, connector: str, task_number: int) -> ReselectTaskMetrics:
        """Return the reselect metrics of a task."""
        sensors = self._tasks.task(connector, task_number)
        return ReselectTaskMetrics(self, (connector, str(task_number)), sensors)

    def on_connector_state(self, connector: str, state: State) -> None:
        """Record the state, and count a start that ends in RUNNING or FAILED. A deleted connector has no metrics."""
        before = self._connector_states.get(connector)
        if state is State.DESTROYED:
            self._connector_states.pop(connector, None)
            self._tasks.remove(connector)
            for series in (self.tables, self.topics, self.source_tables):
                series.remove(connector)
            for metric in self._of_connectors:
                metric.remove_by_labels({"connector": connector})
            return
        self._connector_states[connector] = state
        if state is State.FAILED or (state is State.RUNNING and before not in (State.RUNNING, State.PAUSED)):
            self._startups.add("connector", succeeded=state is State.RUNNING)

    def on_task_state(self, connector: str, task_number: int, state: State) -> None:
        """Record the state, and count a start that ends in RUNNING, or in FAILED without having run."""
        before = self._task_states.get((connector, task_number), State.UNASSIGNED)
        self._task_states[connector, task_number] = state
        self._tasks.task(connector, task_number).on_state(state)
        if state is State.DESTROYED:
            self._task_states.pop((connector, task_number), None)
            self._tasks.task(connector, task_number).on_end()
            self._stop_measuring(connector, task_number)
        elif state is State.RUNNING and before is not State.PAUSED:
            self._startups.add("task", succeeded=True)
        elif state is State.FAILED:
            self._stop_measuring(connector, task_number)
            if before is not State.RUNNING:
                self._startups.add("task", succeeded=False)

    def _stop_measuring(self, connector: str, task_number: int) -> None:
        """Remove the gauges of a task that has failed or ended. Its counters stay until the connector is deleted."""
        self._progress.end(connector, str(task_number))
        reselect = (self.cache_rows, self.cache_bytes, self.cache_poisoned, self.cache_oldest, self.source_connections)
        for gauge in reselect:
            gauge.remove_by_labels({"connector": connector, "task": str(task_number)})

    def watch(
        self, configs: ConfigStore, statuses: StatusStore, worker_id: str, connector_class: LakehouseSinkConnector
    ) -> None:
        """Add the metrics of the states of the worker's connectors and tasks."""
        self._states = StateCollector(configs, statuses, worker_id, connector_class, self._startups)

    def watch_engine(self, engine: Callable[[], EngineStatus]) -> None:
        """Add the metrics of the engine that writes tables."""
        up = Gauge(declared.SPARK_UP.name, declared.SPARK_UP.help, registry=self._loop_registry)
        up.set_function(lambda: engine().state is EngineState.RUNNING)
        restarts = Gauge(declared.SPARK_RESTARTS.name, declared.SPARK_RESTARTS.help, registry=self._loop_registry)
        restarts.set_function(lambda: engine().restarts)

    def watch_memory(self, changes: Callable[[], int], limit: float) -> None:
        """Add the memory of the changes of all tables, and its limit, in bytes."""
        for declaration, value in ((declared.CHANGES_BYTES, changes), (declared.CHANGES_LIMIT, lambda: limit)):
            gauge = Gauge(declaration.name, declaration.help, registry=self._loop_registry)
            gauge.set_function(value)

    def watch_directory(self, directory: ConnectorDirectory) -> None:
        """Add the metrics of ``connectors.directory``."""
        self._loop_registry.register(DirectoryCollector(directory))

    def watch_timeline(self, timeline: Timeline) -> None:
        """Add the metrics of the timeline."""
        self._loop_registry.register(TimelineCollector(timeline))

    def _remove(self, label: str, task: tuple[str, str], name: str) -> None:
        """Remove the series of a table or topic of a task."""
        for metric, labels in self._of_connectors.items():
            if label in labels:
                metric.remove_by_labels({"connector": task[0], "task": task[1], label: name})

    def _counter(self, declaration: Declaration) -> Counter:
        metric = Counter(declaration.name, declaration.help, declaration.labels, registry=self.registry)
        self._of_connectors[metric] = declaration.labels
        return metric

    def _gauge(self, declaration: Declaration) -> Gauge:
        metric = Gauge(declaration.name, declaration.help, declaration.labels, registry=self.registry)
        self._of_connectors[metric] = declaration.labels
        return metric

    def _histogram(self, declaration: Declaration) -> Histogram:
        metric = Histogram(
            declaration.name,
            declaration.help,
            declaration.labels,
            registry=self.registry,
            buckets=declaration.buckets,
        )
        self._of_connectors[metric] = declaration.labels
        return metric

    def _table_metrics(self) -> None:
        self.events = self._counter(declared.EVENTS)
        self.skipped = self._counter(declared.SKIPPED)
        self.losses = self._counter(declared.LOSSES)
        self.batches = self._counter(declared.BATCHES)
        self.batch_rows = self._histogram(declared.BATCH_EVENTS)
        self.write = self._histogram(declared.WRITE_SECONDS)
        self.stage = self._counter(declared.STAGE_SECONDS)
        self.stage_cpu = self._counter(declared.STAGE_CPU_SECONDS)
        self.written_bytes = self._counter(declared.WRITTEN_BYTES)
        self.freshness = self._histogram(declared.FRESHNESS_SECONDS)
        self.late = self._counter(declared.LATE_EVENTS)

    def _reselect_metrics(self) -> None:
        self.reselect = {name: self._counter(declaration) for name, declaration in _RESELECT_COUNTERS.items()}
        self.queries = self._counter(declared.RESELECT_QUERIES)
        self.query_seconds = self._histogram(declared.RESELECT_QUERY_SECONDS)
        self.cache_rows = self._gauge(declared.CACHE_ROWS)
        self.cache_bytes = self._gauge(declared.CACHE_BYTES)
        self.cache_poisoned = self._gauge(declared.CACHE_POISONED)
        self.cache_oldest = self._gauge(declared.CACHE_OLDEST)
        self.source_connections = self._gauge(declared.RESELECT_CONNECTIONS)
        self.visibility_wait = self._histogram(declared.RESELECT_WAIT)
        self.query_keys = self._histogram(declared.RESELECT_QUERY_KEYS)


class TaskMetrics(Observer):
    """``runtime/observation.py: Observer`` of one task. Called from its loop and from writer threads."""

    def __init__(
        self,
        metrics: Metrics,
        labels: tuple[str, str],
        sensors: TaskSensors,
        progress: TaskProgress,
        topic_seen: Callable[[str], None],
        noted: Callable[[str, str], None],
        set_note: Callable[[str, Sequence[str]], None],
        tables: Callable[[Sequence[TableStatus]], None],
        record: Callable[[Kind, str, str], None],
    ) -> None:
        self._metrics = metrics
        self._labels = labels
        self._sensors = sensors
        self._progress = progress
        self._topic_seen = topic_seen
        self._noted = noted
        self._set_note = set_note
        self._tables = tables
        self._record = record
        self._upkeep: dict[str, UpkeepReport] = {}
        self._assigned_topics: set[str] = set()

    @contextmanager
    def stage(self, table: str, stage: str) -> Iterator[None]:
        series = self._metrics.topics if stage == "decode" else self._metrics.tables
        labels = (*self._labels, series.label(self._labels, table), stage)
        begin, cpu = time.perf_counter(), time.thread_time()
        try:
            with self._sensors.stages.measure(stage):
                yield
        finally:
            self._metrics.stage_cpu.labels(*labels).inc(time.thread_time() - cpu)
            self._metrics.stage.labels(*labels).inc(time.perf_counter() - begin)

    def on_assignment(self, partitions: Collection[TopicPartition]) -> None:
        self._sensors.on_assignment(partitions)
        self._progress.begin_assignment()
        topics = {partition.topic for partition in partitions}
        self._metrics.topics.leave(self._labels, self._assigned_topics - topics)
        self._assigned_topics = topics

    def on_chunk_decoded(self, partition: TopicPartition, records: int, skipped: int) -> None:
        self._sensors.count(of_connect.RECORDS_READ, records)
        self._metrics.skipped.labels(*self._labels, self._topic(partition.topic)).inc(skipped)
        if records:
            self._topic_seen(partition.topic)

    def on_chunk_taken(self, partition: TopicPartition, end: int, records: int) -> None:
        self._sensors.on_chunk_taken(partition, end, records)

    def on_errant_records(self, records: int, *, skipped: bool, logged: bool) -> None:
        self._sensors.count(of_connect.RECORD_FAILURES, records)
        self._sensors.count(of_connect.RECORD_ERRORS, records)
        self._sensors.count(of_connect.RECORDS_SKIPPED, records if skipped else 0)
        self._sensors.count(of_connect.ERRORS_LOGGED, records if logged else 0)
        self._sensors.last_error = int(time.time() * 1000)

    def on_dead_letters(self, records: int, *, failed: bool) -> None:
        self._sensors.count(of_connect.DEAD_LETTERS, records)
        self._sensors.count(of_connect.DEAD_LETTER_FAILURES, records if failed else 0)

    def on_retry(self) -> None:
        self._sensors.count(of_connect.RETRIES)

    def on_note(self, text: str, location: str) -> None:
        self._noted(text, location)

    def set_note(self, text: str, locations: Sequence[str]) -> None:
        self._set_note(text, locations)

    def on_losses(self, topic: str, losses: Mapping[str, int]) -> None:
        for loss, values in losses.items():
            self._metrics.losses.labels(*self._labels, self._topic(topic), loss).inc(values)

    def on_batch_durable(self, batch: Batch, seconds: float, now: float) -> None:
        metrics, labels = self._metrics, (*self._labels, self._table(batch.table))
        events = len(batch.content)
        self._sensors.count(of_connect.RECORDS_SENT, events)
        metrics.events.labels(*labels).inc(events)
        metrics.batches.labels(*labels, batch.trigger).inc()
        metrics.batch_rows.labels(*labels).observe(events)
        metrics.write.labels(*labels).observe(seconds)
        self._sensors.on_batch_durable(events, seconds)
        freshness = self._progress.record_batch(batch.table, batch.content.newest_source_time, now)
        if freshness is not None:
            metrics.freshness.labels(*labels).observe(freshness)

    def on_late_events(self, table: str, events: int) -> None:
        self._metrics.late.labels(*self._labels, self._table(table)).inc(events)

    def on_commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        self._sensors.offsets_committed(offsets)
        self._sensors.on_commit(seconds)

    def on_failed_commit(self, *, refused: bool) -> None:
        self._sensors.on_failed_commit(refused=refused)

    def watch_lag(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        self._sensors.watch_lag(lag)
        self._progress.lag = lag

    def watch_unwritten(self, oldest: Callable[[], Mapping[str, Unwritten]]) -> None:
        self._progress.unwritten = oldest

    def watch_targets(self, target: Callable[[str], float]) -> None:
        self._progress.target = target

    def watch_loads(self, loads: Callable[[], Mapping[str, LoadProgress]]) -> None:
        self._progress.loads = loads

    def watch_verifications(self, reports: Callable[[], Mapping[str, VerificationReport]]) -> None:
        self._progress.verified = reports

    def on_blocked_tables(self, blocked: Sequence[TableStatus]) -> None:
        self._progress.blocked = {status.table: status.state for status in blocked}
        self._tables(blocked)

    def on_slots(self, slots: Sequence[ReplicationSlot]) -> None:
        self._progress.slots = slots

    def on_upkeep(self, table: str, report: UpkeepReport) -> None:
        metrics, labels = self._metrics, (*self._labels, self._table(table))
        before, self._upkeep[table] = self._upkeep.get(table, UpkeepReport()), report
        if report.merged_bytes < before.merged_bytes:  # the table was opened again
            before = UpkeepReport()
        metrics.written_bytes.labels(*labels, "merge").inc(report.merged_bytes - before.merged_bytes)
        metrics.written_bytes.labels(*labels, "upkeep").inc(max(0, report.upkeep_bytes - before.upkeep_bytes))
        self._progress.record_upkeep(table, report)

    def on_schema_change(self, table: str, columns: str) -> None:
        self._record(Kind.SCHEMA_CHANGED, table, columns)

    def on_repair(self, table: str, rows: int) -> None:
        self._record(Kind.ROWS_REPAIRED, table, f"{rows:,} row(s)")

    def on_tables_left(self, tables: Collection[str]) -> None:
        self._progress.remove_tables(tables)
        self._metrics.tables.leave(self._labels, tables)

    def _table(self, table: str) -> str:
        return self._metrics.tables.label(self._labels, table)

    def _topic(self, topic: str) -> str:
        return self._metrics.topics.label(self._labels, topic)


class ReselectTaskMetrics:
    """``runtime/pipeline/source_database.py: ReselectMetrics`` of one task. Called from several threads."""

    def __init__(self, metrics: Metrics, labels: tuple[str, str], sensors: TaskSensors) -> None:
        self._metrics = metrics
        self._labels = labels
        self._sensors = sensors

    def count(self, table: TableId, counter: str, labels: Sequence[str], amount: int) -> None:
        """Add to one of the counters in ``_RESELECT_COUNTERS``."""
        self._metrics.reselect[counter].labels(*self._labels, self._table(table), *labels).inc(amount)

    def query(self, table: TableId, query: Query) -> None:
        self._metrics.queries.labels(*self._labels, self._table(table), query.result).inc()
        self._metrics.query_seconds.labels(*self._labels).observe(query.seconds)
        self._metrics.query_keys.labels(*self._labels).observe(query.keys)
        self._sensors.reselected.add(query.keys, self._sensors.clock())
        if query.waited:
            self._metrics.visibility_wait.labels(*self._labels).observe(query.waited)

    def cache(self, use: CacheUse) -> None:
        self._metrics.cache_rows.labels(*self._labels).set(use.rows)
        self._metrics.cache_bytes.labels(*self._labels).set(use.bytes)
        self._metrics.cache_poisoned.labels(*self._labels).set(use.poisoned)
        if use.oldest is None:
            self._metrics.cache_oldest.remove_by_labels({"connector": self._labels[0], "task": self._labels[1]})
        else:
            self._metrics.cache_oldest.labels(*self._labels).set(use.oldest / 1000)

    def connections(self, now: Connections) -> None:
        for state, count in (("idle", now.idle), ("used", now.used), ("left_alone", now.left_alone)):
            self._metrics.source_connections.labels(*self._labels, state).set(count)

    def _table(self, table: TableId) -> str:
        name = f"{table.schema or table.database}.{table.table}"
        return self._metrics.source_tables.label(self._labels, name)


class _Families(Collector):
    """Metrics that have been collected."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families
