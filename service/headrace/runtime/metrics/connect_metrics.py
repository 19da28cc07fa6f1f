"""Measures Kafka Connect's metrics of tasks (``connect_declarations.py``).

Totals count from the start of the worker. Averages, maxima, rates and percentages cover the last minute and are NaN if
nothing happened in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.core.connect.lifecycle import State
from headrace.ports import TopicPartition
from headrace.runtime.metrics import connect_declarations as declared
from headrace.runtime.metrics.declaration import Declaration
from headrace.runtime.metrics.exposition import family, lazy_gauge
from headrace.runtime.metrics.stage_times import StageTimes
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


_COUNTS = (
    declared.RECORDS_READ,
    declared.RECORDS_SENT,
    declared.COMMITS_ATTEMPTED,
    declared.COMMITS,
    declared.COMMITS_SKIPPED,
    declared.RECORD_FAILURES,
    declared.RECORD_ERRORS,
    declared.RECORDS_SKIPPED,
    declared.RETRIES,
    declared.ERRORS_LOGGED,
    declared.DEAD_LETTERS,
    declared.DEAD_LETTER_FAILURES,
)
_RATES: Mapping[Declaration, Declaration] = {
    declared.RECORDS_READ: declared.RECORDS_READ_RATE,
    declared.RECORDS_SENT: declared.RECORDS_SENT_RATE,
    declared.COMMITS: declared.COMMITS_RATE,
    declared.COMMITS_SKIPPED: declared.COMMITS_SKIPPED_RATE,
}
"""The counts that have a rate."""


@dataclass(slots=True)
class TaskSensors:
    """The sensors of one task. ``clock`` returns seconds.

    All methods are called on the worker's event loop. ``stages`` and ``reselected`` are used by other threads as well.
    """

    clock: Callable[[], float]
    counts: Counter[Declaration] = field(default_factory=Counter)
    batches: int = 0
    present: bool = False
    last_error: float = 0.0
    lag: Lag = no_lag
    partitions: int = 0
    put_ms: Recent = field(default_factory=Recent)
    batch: Recent = field(default_factory=Recent)
    commit_ms: Recent = field(default_factory=Recent)
    commit_done: Recent = field(default_factory=Recent)
    reselected: Recent = field(default_factory=Recent)
    stages: StageTimes = field(init=False)
    _rates: dict[Declaration, Recent] = field(default_factory=lambda: {count: Recent() for count in _RATES})
    _open: defaultdict[TopicPartition, deque[tuple[int, int]]] = field(default_factory=lambda: defaultdict(deque))
    _state: State | None = None
    _since: float = 0.0
    _in_states: Counter[State] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.stages = StageTimes(self.clock)

    def count(self, count: Declaration, amount: int = 1) -> None:
        """Add to a count."""
        self.counts[count] += amount
        if count in self._rates:
            self._rates[count].add(amount, self.clock())

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
        self.count(declared.COMMITS_ATTEMPTED)
        self.count(declared.COMMITS)
        self.commit_ms.add(seconds * 1000, self.clock())
        self.commit_done.add(1, self.clock())

    def on_failed_commit(self, *, refused: bool) -> None:
        """Record a failed offset commit. ``refused``: the group rejected it because it came too late."""
        self.count(declared.COMMITS_ATTEMPTED)
        self.count(declared.COMMITS_SKIPPED, int(refused))
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

    def flow(self) -> Mapping[str, object]:
        """Return as JSON what the task did in the last minute, and how many records it has not committed."""
        now = self.clock()
        return {
            "lag_records": sum(self.lag().values()),
            "records_read_per_second": round(self.rate(declared.RECORDS_READ, now), 3),
            "rows_reselected_per_second": round(self.reselected.rate(now), 3),
            "changes_written_per_second": round(self.rate(declared.RECORDS_SENT, now), 3),
            "busy_threads": {stage: round(threads, 4) for stage, threads in sorted(self.stages.busy().items())},
        }

    @property
    def active(self) -> int:
        """The records whose offsets are not committed yet."""
        return sum(records for waiting in self._open.values() for _, records in waiting)

    def rate(self, count: Declaration, now: float) -> float:
        """Return the rate of a count in ``_RATES``."""
        return self._rates[count].rate(now)

    def ratio(self, state: State, now: float) -> float:
        """Return the share of time in a state since the task came to this worker, NaN at its beginning."""
        current = {} if self._state is None else {self._state: now - self._since}
        lived = sum(self._in_states.values()) + sum(current.values())
        return (self._in_states[state] + current.get(state, 0.0)) / lived if lived else float("nan")


def _rate_of(count: Declaration) -> Callable[[TaskSensors, float], float]:
    return lambda task, now: task.rate(count, now)


_GAUGES: Mapping[Declaration, Callable[[TaskSensors, float], float | None]] = {
    declared.ACTIVE_RECORDS: lambda task, now: task.active,
    declared.PARTITIONS: lambda task, now: task.partitions,
    declared.LAG_MAX: lambda task, now: max(task.lag().values(), default=None),
    declared.PUT_AVERAGE: lambda task, now: task.put_ms.average(now),
    declared.PUT_LONGEST: lambda task, now: task.put_ms.largest(now),
    **{rate: _rate_of(count) for count, rate in _RATES.items()},
    declared.LAST_ERROR: lambda task, now: task.last_error or None,
    declared.BATCH_AVERAGE: lambda task, now: task.batch.average(now),
    declared.BATCH_LARGEST: lambda task, now: task.batch.largest(now),
    declared.COMMIT_AVERAGE: lambda task, now: task.commit_ms.average(now),
    declared.COMMIT_LONGEST: lambda task, now: task.commit_ms.largest(now),
    declared.COMMIT_SUCCESS: lambda task, now: task.commit_done.average(now),
    declared.COMMIT_FAILURE: lambda task, now: 1 - task.commit_done.average(now),
    declared.RUNNING_RATIO: lambda task, now: task.ratio(State.RUNNING, now),
    declared.PAUSE_RATIO: lambda task, now: task.ratio(State.PAUSED, now),
}
"""The gauges that a task has while it exists: the value at a time; None is no sample."""


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

        def samples(
            gauge: Declaration, value: Callable[[TaskSensors, float], float | None]
        ) -> Iterator[tuple[Sequence[str], float]]:
            for labels, task in tasks:
                if task.present and (number := value(task, now)) is not None:
                    yield labels, number

        for gauge, value in _GAUGES.items():
            yield lazy_gauge(gauge, samples(gauge, value))

    def counts(self) -> Iterator[Metric]:
        """Return one family per count, also of tasks that do not run. May be called in any thread."""
        tasks = list(self._tasks.items())
        for count in _COUNTS:
            yield family(count, [(labels, sensors.counts[count]) for labels, sensors in tasks])


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
                yield family(declared.STARTUPS[started, outcome], [((), value)])
