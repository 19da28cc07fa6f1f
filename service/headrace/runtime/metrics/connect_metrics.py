"""Kafka Connect's metrics of tasks, under the names that Strimzi's rules give them (``connect.md`` section 15).

``kafka_connect_<group>_<attribute>{connector, task}``. Totals count for as long as the worker runs; averages, maxima,
rates and percentages are those of the last minute, and NaN where nothing happened in it. What Connect has beside these
and why it is left out stands in docs/operations.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.core.connect.lifecycle import State
from headrace.ports import TopicPartition
from headrace.runtime.metrics.recent import Recent
from headrace.runtime.metrics.task_progress import Lag, no_lag

PREFIX = "kafka_connect_"
_LABELS = ("connector", "task")
_COUNTS: Mapping[str, str] = {
    "sink_task_sink_record_read_total": "Records read from Kafka",
    "sink_task_sink_record_send_total": "Records written to a table",
    "sink_task_offset_commit_seq_no": "Attempted offset commits",
    "sink_task_offset_commit_completion_total": "Successful offset commits",
    "sink_task_offset_commit_skip_total": "Offset commits that the group refused because they came too late",
    "task_error_total_record_failures": "Records that could not be used",
    "task_error_total_record_errors": "Errors in processing records",
    "task_error_total_records_skipped": "Records skipped because of errors",
    "task_error_total_retries": "Retries after retriable errors",
    "task_error_total_errors_logged": "Logged errors in processing records",
    "task_error_deadletterqueue_produce_requests": "Records sent to the dead letter queue",
    "task_error_deadletterqueue_produce_failures": "Records that could not be written to the dead letter queue",
}
"""What is counted, by name. Only ``_total`` at the end makes a counter for Prometheus, the others are gauges in JMX."""
_RATES = ("sink_record_read", "sink_record_send", "offset_commit_completion", "offset_commit_skip")


@dataclass(slots=True)
class TaskSensors:
    """What is measured of one task. All calls come on the worker's event loop; ``clock`` gives seconds."""

    clock: Callable[[], float]
    counts: Counter[str] = field(default_factory=Counter)
    present: bool = False
    last_error: float = 0.0
    lag: Lag = no_lag
    partitions: int = 0
    put_ms: Recent = field(default_factory=Recent)
    batch: Recent = field(default_factory=Recent)
    commit_ms: Recent = field(default_factory=Recent)
    commit_done: Recent = field(default_factory=Recent)
    _rates: dict[str, Recent] = field(default_factory=lambda: {name: Recent() for name in _RATES})
    _open: defaultdict[TopicPartition, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(deque))
    _state: State | None = None
    _since: float = 0.0
    _in_states: Counter[State] = field(default_factory=Counter)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a count."""
        self.counts[name] += amount
        stem = name.removeprefix("sink_task_").removesuffix("_total")
        if stem in self._rates:
            self._rates[stem].add(amount, self.clock())

    def taken(self, partition: TopicPartition, end: int, records: int) -> None:
        """Records up to before offset ``end`` are the task's to write."""
        self._open[partition].append((end, records))

    def settled(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's offsets stand there now."""
        for partition, offset in offsets.items():
            waiting = self._open[partition]
            while waiting and waiting[0][0] <= offset:
                waiting.popleft()

    def wrote(self, events: int, seconds: float) -> None:
        """A batch is durable."""
        self.batch.add(events, self.clock())
        self.put_ms.add(seconds * 1000, self.clock())

    def committed(self, seconds: float) -> None:
        """A commit of offsets went through."""
        self.count("sink_task_offset_commit_seq_no")
        self.count("sink_task_offset_commit_completion_total")
        self.commit_ms.add(seconds * 1000, self.clock())
        self.commit_done.add(1, self.clock())

    def uncommitted(self, *, refused: bool) -> None:
        """A commit of offsets did not."""
        self.count("sink_task_offset_commit_seq_no")
        self.count("sink_task_offset_commit_skip_total", int(refused))
        self.commit_done.add(0, self.clock())

    def follows(self, lag: Lag) -> None:
        """Where the lag can be read from now on."""
        self.lag, self.present = lag, True

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """A new assignment, with nothing in memory."""
        self._open.clear()
        self.present, self.partitions = True, len(partitions)

    def moved(self, state: State) -> None:
        """The task has come into this state."""
        now = self.clock()
        if self._state is not None:
            self._in_states[self._state] += now - self._since  # type: ignore[assignment]  # seconds
        self._state, self._since, self.present = state, now, True

    def gone(self) -> None:
        """The task does not exist any more; its counts stay, as Prometheus wants them."""
        self.present, self.lag, self._state = False, no_lag, None
        self._open.clear()
        self._in_states.clear()

    def gauges(self) -> Iterator[tuple[str, str, float]]:
        """Name, help and value of what a task shows while it exists."""
        now = self.clock()
        active = sum(records for waiting in self._open.values() for _, records in waiting)
        yield "sink_task_sink_record_active_count", "Records read whose offsets are not committed yet", active
        yield "sink_task_partition_count", "Partitions assigned to the task", self.partitions
        if lag := self.lag():
            yield "sink_task_sink_record_lag_max", "Largest lag of the task's partitions", max(lag.values())
        yield "sink_task_put_batch_avg_time_ms", "Average time to write a batch", self.put_ms.average(now)
        yield "sink_task_put_batch_max_time_ms", "Longest time to write a batch", self.put_ms.largest(now)
        for name, recent in self._rates.items():
            yield f"sink_task_{name}_rate", f"{name} per second", recent.rate(now)
        if self.last_error:
            yield "task_error_last_error_timestamp", "Time of the last error, Unix time in ms", self.last_error
        yield "connector_task_batch_size_avg", "Average records in a batch", self.batch.average(now)
        yield "connector_task_batch_size_max", "Most records in a batch", self.batch.largest(now)
        yield (
            "connector_task_offset_commit_avg_time_ms",
            "Average time of an offset commit",
            self.commit_ms.average(now),
        )
        yield (
            "connector_task_offset_commit_max_time_ms",
            "Longest time of an offset commit",
            self.commit_ms.largest(now),
        )
        done = self.commit_done.average(now)
        yield "connector_task_offset_commit_success_percentage", "Share of successful offset commits, 0 to 1", done
        yield "connector_task_offset_commit_failure_percentage", "Share of failed offset commits, 0 to 1", 1 - done
        yield (
            "connector_task_running_ratio",
            "Share of time in which the task was running",
            self._ratio(State.RUNNING, now),
        )
        yield "connector_task_pause_ratio", "Share of time in which the task was paused", self._ratio(State.PAUSED, now)

    def _ratio(self, state: State, now: float) -> float:
        current = {} if self._state is None else {self._state: now - self._since}
        lived = sum(self._in_states.values()) + sum(current.values())
        return (self._in_states[state] + current.get(state, 0.0)) / lived if lived else float("nan")


class TaskCollector(Collector):
    """Every task's metrics, as they are at each scrape."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[tuple[str, str], TaskSensors] = {}

    def task(self, connector: str, task_number: int) -> TaskSensors:
        """What is measured of a task; the same object for as long as the worker runs."""
        return self._tasks.setdefault((connector, str(task_number)), TaskSensors(self._clock))

    def collect(self) -> Iterator[Metric]:
        """One family per name."""
        for name, text in _COUNTS.items():
            yield self._counted(name, text)
        families: dict[str, GaugeMetricFamily] = {}
        for labels, sensors in self._tasks.items():
            for name, text, value in sensors.gauges() if sensors.present else ():
                family = families.setdefault(name, GaugeMetricFamily(PREFIX + name, text, labels=_LABELS))
                family.add_metric(labels, value)
        yield from families.values()

    def _counted(self, name: str, text: str) -> Metric:
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family: CounterMetricFamily | GaugeMetricFamily = kind(PREFIX + name, text, labels=_LABELS)
        for labels, sensors in self._tasks.items():
            family.add_metric(labels, sensors.counts[name])
        return family


class StartupCounts:
    """How starts of connectors and tasks went, for ``kafka_connect_worker_*_startup_*_total``."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()

    def add(self, kind: str, *, succeeded: bool) -> None:
        """One start of a ``connector`` or ``task``."""
        self._counts[kind, succeeded] += 1

    def collect(self) -> Iterator[Metric]:
        """Attempts, successes and failures of both."""
        for kind in ("connector", "task"):
            good, bad = self._counts[kind, True], self._counts[kind, False]
            for what, value in (("attempts", good + bad), ("success", good), ("failure", bad)):
                name = f"{PREFIX}worker_{kind}_startup_{what}"
                yield CounterMetricFamily(name, f"Starts of {kind}s: {what}", value=value)
