"""Kafka Connect's metrics of tasks, under the names that Strimzi's rules give them (``connect.md`` section 15).

``kafka_connect_<group>_<attribute>{connector, task}``. Totals count from the start of the worker. Averages, maxima,
rates and percentages cover the last minute and are NaN if nothing happened in it. docs/operations.md lists Kafka
Connect's other metrics, with the reason why Headrace does not have them.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from headrace.core.connect.lifecycle import State
from headrace.ports import TopicPartition
from headrace.runtime.metrics.exposition import LazyFamily
from headrace.runtime.metrics.task_progress import Lag, no_lag

SECONDS = 60


@dataclass(slots=True)
class _Second:
    at: int = -1
    count: int = 0
    total: float = 0.0
    largest: float = 0.0


class Recent:
    """The values that were added within the last minute, in buckets of a second. Time is an argument, in seconds."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = [_Second() for _ in range(SECONDS)]

    def add(self, value: float, now: float) -> None:
        """Add a value."""
        second = self._seconds[int(now) % SECONDS]
        if second.at != int(now):
            second.at, second.count, second.total, second.largest = int(now), 0, 0.0, value
        second.count += 1
        second.total += value
        second.largest = max(second.largest, value)

    def average(self, now: float) -> float:
        """Return the average, NaN without values, as Kafka's metrics do."""
        lately = self._lately(now)
        count = sum(second.count for second in lately)
        return sum(second.total for second in lately) / count if count else float("nan")

    def largest(self, now: float) -> float:
        """Return the largest value, NaN without values."""
        return max((second.largest for second in self._lately(now)), default=float("nan"))

    def rate(self, now: float) -> float:
        """Return the sum per second."""
        return sum(second.total for second in self._lately(now)) / SECONDS

    def _lately(self, now: float) -> list[_Second]:
        return [second for second in self._seconds if int(now) - SECONDS < second.at <= int(now)]


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
"""The counts, by name. A name that ends in ``_total`` is a counter in Prometheus; the others are gauges, as in JMX."""
_RATES: Mapping[str, str] = {
    "sink_record_read": "Records read from Kafka per second",
    "sink_record_send": "Records written to tables per second",
    "offset_commit_completion": "Successful offset commits per second",
    "offset_commit_skip": "Rejected offset commits per second",
}


@dataclass(slots=True)
class TaskSensors:
    """The sensors of one task. All methods are called on the worker's event loop. ``clock`` returns seconds."""

    clock: Callable[[], float]
    counts: Counter[str] = field(default_factory=Counter)
    batches: int = 0
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

    def on_chunk_taken(self, partition: TopicPartition, end: int, records: int) -> None:
        """Record that the task has accepted records below offset ``end`` and has to write them."""
        self._open[partition].append((end, records))

    def offsets_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Discard the records below the committed offsets."""
        for partition, offset in offsets.items():
            waiting = self._open[partition]
            while waiting and waiting[0][0] <= offset:
                waiting.popleft()

    def on_batch_durable(self, events: int, seconds: float) -> None:
        """Record a batch that is durable."""
        self.batches += 1
        self.batch.add(events, self.clock())
        self.put_ms.add(seconds * 1000, self.clock())

    def on_commit(self, seconds: float) -> None:
        """Record a successful offset commit."""
        self.count("sink_task_offset_commit_seq_no")
        self.count("sink_task_offset_commit_completion_total")
        self.commit_ms.add(seconds * 1000, self.clock())
        self.commit_done.add(1, self.clock())

    def on_failed_commit(self, *, refused: bool) -> None:
        """Record a failed offset commit. ``refused``: the group rejected it because it came too late."""
        self.count("sink_task_offset_commit_seq_no")
        self.count("sink_task_offset_commit_skip_total", int(refused))
        self.commit_done.add(0, self.clock())

    def watch_lag(self, lag: Lag) -> None:
        """Set the function that returns the lag."""
        self.lag, self.present = lag, True

    def on_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Record a new assignment. The task has no records in memory."""
        self._open.clear()
        self.present, self.partitions = True, len(partitions)

    def on_state(self, state: State) -> None:
        """Record the new state of the task."""
        now = self.clock()
        if self._state is not None:
            self._in_states[self._state] += now - self._since  # type: ignore[assignment]  # seconds
        self._state, self._since, self.present = state, now, True

    def on_end(self) -> None:
        """Record that the task does not run here any more. Its counts stay: it may come back to this worker."""
        self.present, self.lag, self._state = False, no_lag, None
        self._open.clear()
        self._in_states.clear()

    @property
    def active(self) -> int:
        """The records whose offsets are not committed yet."""
        return sum(records for waiting in self._open.values() for _, records in waiting)

    def rate(self, name: str, now: float) -> float:
        """Return the rate of a name in ``_RATES``."""
        return self._rates[name].rate(now)

    def ratio(self, state: State, now: float) -> float:
        """Return the share of time in a state since the task came to this worker, NaN at its beginning."""
        current = {} if self._state is None else {self._state: now - self._since}
        lived = sum(self._in_states.values()) + sum(current.values())
        return (self._in_states[state] + current.get(state, 0.0)) / lived if lived else float("nan")


_GAUGES: Mapping[str, tuple[str, Callable[[TaskSensors, float], float | None]]] = {
    "sink_task_sink_record_active_count": (
        "Records read whose offsets are not committed yet",
        lambda task, now: task.active,
    ),
    "sink_task_partition_count": ("Partitions assigned to the task", lambda task, now: task.partitions),
    "sink_task_sink_record_lag_max": (
        "Largest lag of the task's partitions",
        lambda task, now: max(task.lag().values(), default=None),
    ),
    "sink_task_put_batch_avg_time_ms": ("Average time to write a batch", lambda task, now: task.put_ms.average(now)),
    "sink_task_put_batch_max_time_ms": ("Longest time to write a batch", lambda task, now: task.put_ms.largest(now)),
    **{
        f"sink_task_{name}_rate": (text, lambda task, now, name=name: task.rate(name, now))  # type: ignore[misc]
        for name, text in _RATES.items()
    },
    "task_error_last_error_timestamp": (
        "Time of the last error, Unix time in ms",
        lambda task, now: task.last_error or None,
    ),
    "connector_task_batch_size_avg": ("Average records in a batch", lambda task, now: task.batch.average(now)),
    "connector_task_batch_size_max": ("Most records in a batch", lambda task, now: task.batch.largest(now)),
    "connector_task_offset_commit_avg_time_ms": (
        "Average time of an offset commit",
        lambda task, now: task.commit_ms.average(now),
    ),
    "connector_task_offset_commit_max_time_ms": (
        "Longest time of an offset commit",
        lambda task, now: task.commit_ms.largest(now),
    ),
    "connector_task_offset_commit_success_percentage": (
        "Share of successful offset commits, 0 to 1",
        lambda task, now: task.commit_done.average(now),
    ),
    "connector_task_offset_commit_failure_percentage": (
        "Share of failed offset commits, 0 to 1",
        lambda task, now: 1 - task.commit_done.average(now),
    ),
    "connector_task_running_ratio": (
        "Share of time in which the task was running",
        lambda task, now: task.ratio(State.RUNNING, now),
    ),
    "connector_task_pause_ratio": (
        "Share of time in which the task was paused",
        lambda task, now: task.ratio(State.PAUSED, now),
    ),
}
"""The gauges that a task has while it exists: help text, and the value at a time; None is no sample."""


class TaskCollector(Collector):
    """Collects the metrics of all tasks at each scrape."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tasks: dict[tuple[str, str], TaskSensors] = {}

    def task(self, connector: str, task_number: int) -> TaskSensors:
        """Return the sensors of a task. They are the same object until the connector is deleted."""
        labels = connector, str(task_number)
        if labels not in self._tasks:
            self._tasks[labels] = TaskSensors(self._clock)
        return self._tasks[labels]

    def tasks(self) -> Mapping[tuple[str, str], TaskSensors]:
        """Return the sensors by connector and task."""
        return self._tasks

    def remove(self, connector: str) -> None:
        """Remove the metrics of a deleted connector, counts as well."""
        self._tasks = {labels: sensors for labels, sensors in self._tasks.items() if labels[0] != connector}

    def collect(self) -> Iterator[Metric]:
        """Return one family per name, without the counts. Values are read while the samples are iterated."""
        tasks = list(self._tasks.items())
        now = self._clock()

        def samples(name: str, value: Callable[[TaskSensors, float], float | None]) -> Iterator[Sample]:
            for labels, task in tasks:
                if task.present and (number := value(task, now)) is not None:
                    yield Sample(name, dict(zip(_LABELS, labels, strict=True)), number)

        for stem, (text, value) in _GAUGES.items():
            name = PREFIX + stem
            yield LazyFamily(name, text, "gauge", samples(name, value))

    def counts(self) -> Iterator[Metric]:
        """Return one family per count, also of tasks that do not run. May be called in any thread."""
        tasks = list(self._tasks.items())
        for name, text in _COUNTS.items():
            family_class = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family: CounterMetricFamily | GaugeMetricFamily = family_class(PREFIX + name, text, labels=_LABELS)
            for labels, sensors in tasks:
                family.add_metric(labels, sensors.counts[name])
            yield family


class StartupCounts:
    """Counts starts of connectors and tasks, for ``kafka_connect_worker_*_startup_*_total``."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, bool]] = Counter()

    def add(self, started: str, *, succeeded: bool) -> None:
        """Count one start of a ``connector`` or ``task``."""
        self._counts[started, succeeded] += 1

    def collect(self) -> Iterator[Metric]:
        """Return attempts, successes and failures of connectors and tasks."""
        for started in ("connector", "task"):
            good, bad = self._counts[started, True], self._counts[started, False]
            for outcome, value in (("attempts", good + bad), ("success", good), ("failure", bad)):
                name = f"{PREFIX}worker_{started}_startup_{outcome}"
                yield CounterMetricFamily(name, f"Starts of {started}s: {outcome}", value=value)
