"""Tests of Kafka Connect's metrics: every name of ``connect.md`` section 15 has a measured value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.clock import Clock
from support.repository.connect_names import TASK_METRICS

from headrace.core.batch.batch import Batch, Trigger
from headrace.core.connect.lifecycle import State
from headrace.core.decode.records import Errant
from headrace.core.model.errors import BadRecord, Fatal, Retriable, Stage
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.ports import ErrantRecord, TopicPartition
from headrace.runtime.metrics.connect_metrics import Recent
from headrace.runtime.metrics.metrics import Metrics, TaskMetrics
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace_dev.memory.feed import MemoryRecord

ORDERS = TopicPartition("shop.orders", 0)
TASK = {"connector": "shop", "task": "0"}
TABLE = TableId("shop", "shop", "public", "orders")


class Scene:
    """The metrics of one task, and the clock."""

    def __init__(self) -> None:
        self.clock = Clock(1000.0)
        self.metrics = Metrics(self.clock)
        self.task: TaskMetrics = self.metrics.task("shop", 0, lambda topic: None)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.complete().get_sample_value(f"kafka_connect_{name}", {**TASK, **labels})

    def write(self, seconds: float) -> None:
        content = Truncate(TABLE, RowVersion(b"", "shop.orders", 0, 1, 0))
        self.task.on_batch_durable(Batch(1, "orders", content, {ORDERS: 2}, Trigger.AGE, 0.0, ()), seconds, 0.0)


@pytest.fixture
def scene() -> Scene:
    """Return the metrics of a new task."""
    return Scene()


def test_records_are_active_until_their_offsets_are_committed(scene: Scene) -> None:
    """Records are active until their offsets are committed. A new assignment begins with no active records."""
    scene.task.on_assignment([ORDERS])
    for end, records in ((5, 5), (8, 3)):
        scene.task.on_chunk_decoded(ORDERS, records, 0)
        scene.task.on_chunk_taken(ORDERS, end, records)
    assert scene.value("sink_task_sink_record_active_count") == 8
    scene.task.on_commit({ORDERS: 5}, 0.02)
    assert scene.value("sink_task_sink_record_active_count") == 3
    scene.task.on_assignment([ORDERS, TopicPartition("shop.orders", 1)])
    assert scene.value("sink_task_sink_record_active_count") == 0
    assert scene.value("sink_task_partition_count") == 2
    assert scene.value("sink_task_sink_record_read_total") == 8


def test_rates_and_averages_are_those_of_the_last_minute(scene: Scene) -> None:
    """Rates and averages cover the last minute, while totals keep their values."""
    scene.task.on_assignment([ORDERS])
    scene.task.on_chunk_decoded(ORDERS, 120, 0)
    scene.write(0.25)
    scene.write(0.75)
    assert scene.value("sink_task_sink_record_read_rate") == 2
    assert scene.value("sink_task_put_batch_avg_time_ms") == 500
    assert scene.value("sink_task_put_batch_max_time_ms") == 750
    assert scene.value("connector_task_batch_size_avg") == 1
    scene.clock.now += 61
    assert scene.value("sink_task_sink_record_read_rate") == 0
    assert scene.value("sink_task_sink_record_read_total") == 120
    assert math.isnan(scene.value("sink_task_put_batch_max_time_ms") or 0)


def test_commits_are_counted_by_result(scene: Scene) -> None:
    """The metrics count completed, refused and failed offset commits, and their percentages and times."""
    scene.task.on_assignment([ORDERS])
    scene.task.on_commit({ORDERS: 1}, 0.02)
    scene.task.on_commit({ORDERS: 2}, 0.04)
    scene.task.on_failed_commit(refused=False)
    scene.task.on_failed_commit(refused=True)
    assert scene.value("sink_task_offset_commit_seq_no") == 4
    assert scene.value("sink_task_offset_commit_completion_total") == 2
    assert scene.value("sink_task_offset_commit_skip_total") == 1
    assert scene.value("connector_task_offset_commit_success_percentage") == 0.5
    assert scene.value("connector_task_offset_commit_failure_percentage") == 0.5
    assert scene.value("connector_task_offset_commit_avg_time_ms") == pytest.approx(30)
    assert scene.value("connector_task_offset_commit_max_time_ms") == pytest.approx(40)


def test_the_time_in_a_state_is_a_ratio(scene: Scene) -> None:
    """The ratio of a state is its share of the time since the task was assigned to the worker."""
    for state, seconds in ((State.UNASSIGNED, 10), (State.RUNNING, 60), (State.PAUSED, 30)):
        scene.metrics.on_task_state("shop", 0, state)
        scene.clock.now += seconds
    assert scene.value("connector_task_running_ratio") == 0.6
    assert scene.value("connector_task_pause_ratio") == 0.3


def test_a_destroyed_task_keeps_only_its_counters(scene: Scene) -> None:
    """A destroyed task keeps its counters, but no gauges, so that alerts on them end."""
    scene.metrics.on_task_state("shop", 0, State.RUNNING)
    scene.task.on_chunk_decoded(ORDERS, 5, 0)
    scene.task.watch_lag(lambda: {ORDERS: 7})
    scene.metrics.on_task_state("shop", 0, State.DESTROYED)
    assert scene.value("sink_task_sink_record_lag_max") is None
    assert scene.value("connector_task_running_ratio") is None
    assert scene.value("sink_task_sink_record_read_total") == 5


def test_starts_are_counted_by_result(scene: Scene) -> None:
    """A task that fails after it was RUNNING counts as a successful start. A resume is not counted."""
    for state in (State.UNASSIGNED, State.FAILED, State.RESTARTING, State.RUNNING, State.PAUSED, State.RUNNING):
        scene.metrics.on_task_state("shop", 0, state)
    scene.metrics.on_task_state("shop", 0, State.FAILED)
    for state in (State.FAILED, State.RUNNING, State.RUNNING):
        scene.metrics.on_connector_state("shop", state)

    def started(kind: str, what: str) -> float | None:
        families = scene.metrics._startups.collect()
        [sample] = [s for f in families for s in f.samples if s.name.endswith(f"{kind}_startup_{what}_total")]
        return sample.value

    for kind in ("task", "connector"):
        assert [started(kind, what) for what in ("attempts", "success", "failure")] == [2, 1, 1]


class UnreliableQueue:
    """A dead letter queue that can be unavailable."""

    down = False

    async def start(self) -> None:
        pass

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        if self.down:
            raise Retriable("down")

    async def close(self) -> None:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("tolerant", [True, False])
async def test_errors_are_counted_by_their_handling(scene: Scene, tolerant: bool) -> None:
    """The metrics count failed records by their handling: skipped, logged, sent to the queue, or not sent."""
    letters = UnreliableQueue()
    reporter = ErrantReporter(
        "shop", letters, tolerate_errors=tolerant, log_errors=True, log_messages=False, observer=scene.task
    )
    records = [MemoryRecord("shop.orders", 0, offset, 0, b"k", b"{", ()) for offset in range(3)]
    errants = [Errant(index, Stage.VALUE_CONVERTER, BadRecord("broken")) for index in (0, 2)]
    if tolerant:
        await reporter.report(records, errants)
        letters.down = True
        with pytest.raises(Retriable):
            await reporter.report(records, errants[:1])
    else:
        with pytest.raises(Fatal):
            await reporter.report(records, errants)
    scene.task.on_retry()
    scene.metrics.on_task_state("shop", 0, State.RUNNING)
    seen = 3 if tolerant else 1
    for name in ("total_record_failures", "total_record_errors", "total_errors_logged"):
        assert scene.value(f"task_error_{name}") == seen
    assert scene.value("task_error_total_records_skipped") == (seen if tolerant else 0)
    assert scene.value("task_error_deadletterqueue_produce_requests") == seen
    assert scene.value("task_error_deadletterqueue_produce_failures") == (1 if tolerant else 0)
    assert scene.value("task_error_total_retries") == 1
    assert (scene.value("task_error_last_error_timestamp") or 0) > 1.6e12


def test_recent_values_expire_after_a_minute() -> None:
    """A reused bucket does not contain the values of the same second a minute before."""
    recent = Recent()
    recent.add(5, 10.5)
    recent.add(7, 10.9)
    assert (recent.average(10.9), recent.largest(69.9), recent.rate(10.9)) == (6, 7, 0.2)
    recent.add(1, 70.1)
    assert (recent.average(70.1), recent.largest(70.1)) == (1, 1)


def test_every_metric_of_a_task_exists(scene: Scene) -> None:
    """A scrape contains every metric name of a task."""
    scene.metrics.on_task_state("shop", 0, State.RUNNING)
    scene.task.watch_lag(lambda: {ORDERS: 7})
    scene.task.on_errant_records(1, skipped=True, logged=False)
    families = text_string_to_metric_families(scene.metrics.exposition()[0].decode())
    shown = {sample.name for family in families for sample in family.samples if sample.labels == TASK}
    assert shown == TASK_METRICS
