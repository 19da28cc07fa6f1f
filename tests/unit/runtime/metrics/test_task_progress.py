"""Tests of the gauges of a task's progress, which change during a batch and are removed with the task or table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event

import pytest
from prometheus_client.samples import Sample
from support.clock import Clocks
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import TOPIC, Harness, running

from headrace.core.batch.batch import Batch, Trigger, Unwritten
from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.status import TableStatus
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.metrics.metrics import Metrics, TaskMetrics

TASK = {"connector": "shop", "task": "0"}
ORDERS, ITEMS = TopicPartition("shop.orders", 0), TopicPartition("shop.items", 0)
LAG, FRESHNESS = "headrace_lag_records", "headrace_freshness_last_seconds"
SOURCE_TIME, OLDEST = "headrace_source_time_seconds", "headrace_oldest_unwritten_seconds"


class Scene:
    """The metrics of a worker, and its clocks."""

    def __init__(self) -> None:
        self.time = Clocks()
        self.metrics = Metrics(self.time.monotonic, self.time.wall)

    def run(self) -> TaskMetrics:
        return self.metrics.task("shop", 0, lambda topic: None)

    def written(self, task: TaskMetrics, source_time: float, table: str = "orders") -> None:
        """Report a written batch whose event was committed at the source at that wall time."""
        table_id = TableId("shop", "shop", "public", table)
        content = Truncate(table_id, RowVersion(b"", f"shop.{table}", 0, 1, int(source_time * 1_000_000)))
        batch = Batch(1, table, content, {}, Trigger.AGE, 0.0, ())
        task.on_batch_durable(batch, 0.5, self.time.wall())

    def value(self, name: str, table: str = "orders") -> float | None:
        return self.metrics.complete().get_sample_value(name, TASK | {"table": table})

    def lag(self, partition: TopicPartition) -> float | None:
        place = {"topic": partition.topic, "partition": str(partition.partition)}
        return self.metrics.complete().get_sample_value(LAG, TASK | place)


@pytest.fixture
def scene() -> Scene:
    """Return the metrics of a worker without tasks."""
    return Scene()


def test_freshness_grows_while_an_event_waits(scene: Scene) -> None:
    """The freshness of a table is that of its last batch, or the age of the oldest waiting event if there is one."""
    task = scene.run()
    task.on_assignment([ORDERS, ITEMS])
    scene.written(task, scene.time.wall() - 2)
    assert scene.value(FRESHNESS) == 2
    scene.time.seconds += 60
    assert scene.value(FRESHNESS) == 2, "nothing waits: the source may be idle"
    oldest = {"orders": Unwritten(scene.time.seconds, int((scene.time.wall() - 1) * 1_000_000))}
    task.watch_unwritten(lambda: oldest)
    scene.time.seconds += 300
    assert scene.value(FRESHNESS) == 301
    oldest = {}
    scene.written(task, scene.time.wall() - 3)
    assert scene.value(FRESHNESS) == 3


def test_age_of_the_oldest_event_that_is_not_durable(scene: Scene) -> None:
    """The gauge has the seconds since the oldest event was read, and 0 if all events are durable."""
    task = scene.run()
    task.on_assignment([ORDERS, ITEMS])
    oldest = {"orders": Unwritten(scene.time.seconds, 0), "items": Unwritten(scene.time.seconds, 5)}
    task.watch_unwritten(lambda: oldest)
    scene.time.seconds += 30
    assert (scene.value(OLDEST), scene.value(OLDEST, "items")) == (30, 30)
    assert scene.value(FRESHNESS) is None, "its source time is unknown"
    oldest = {"items": Unwritten(scene.time.seconds - 10, 5)}
    assert (scene.value(OLDEST), scene.value(OLDEST, "items")) == (0, 10)


def test_a_failed_table_has_no_freshness(scene: Scene) -> None:
    """A failed table is not read: the freshness of its last batch and an age of 0 would show that it is up to date."""
    task = scene.run()
    task.on_assignment([ORDERS, ITEMS])
    for table in ("orders", "items"):
        scene.written(task, scene.time.wall() - 2, table)
    task.on_blocked_tables([TableStatus("orders", TableState.FAILED, "the cause", scene.time.wall())])
    assert [scene.value(name) for name in (FRESHNESS, OLDEST, SOURCE_TIME)] == [None, None, scene.time.wall() - 2]
    assert [scene.value(name, "items") for name in (FRESHNESS, OLDEST)] == [2, 0]
    task.on_blocked_tables([])
    assert scene.value(FRESHNESS) == 2


def test_series_of_a_table_that_has_moved_are_removed(scene: Scene) -> None:
    """A task removes the series of a table when the table moves to another task, which then reports them."""
    task = scene.run()
    task.on_assignment([ORDERS, ITEMS])
    for table in ("orders", "items"):
        scene.written(task, 1_000, table)
    task.on_assignment([ITEMS])
    task.on_tables_left(["orders"])
    for name in (FRESHNESS, SOURCE_TIME, OLDEST):
        assert (scene.value(name) is None, scene.value(name, "items") is None) == (True, False)


def test_series_of_a_partition_that_has_moved_are_removed(scene: Scene) -> None:
    """The lag is read on each scrape, so that a revoked partition has no series."""
    lag: dict[TopicPartition, int] = {ORDERS: 5, ITEMS: 7}
    scene.run().watch_lag(lambda: lag)
    assert (scene.lag(ORDERS), scene.lag(ITEMS)) == (5, 7)
    del lag[ORDERS]
    assert (scene.lag(ORDERS), scene.lag(ITEMS)) == (None, 7)


@pytest.mark.parametrize("state", [State.DESTROYED, State.FAILED])
def test_series_of_a_destroyed_or_failed_task_are_removed(scene: Scene, state: State) -> None:
    """A destroyed or failed task has no series, also if its abandoned run still reports values."""
    task = scene.run()
    scene.metrics.on_task_state("shop", 0, State.RUNNING)
    task.watch_lag(lambda: {ORDERS: 5})
    scene.written(task, 1_000)
    scene.metrics.on_task_state("shop", 0, state)
    scene.written(task, 1_050)
    task.watch_lag(lambda: {ORDERS: 6})
    assert [scene.value(name) for name in (FRESHNESS, SOURCE_TIME, OLDEST)] == [None] * 3
    assert scene.lag(ORDERS) is None
    again = scene.run()
    again.on_assignment([ORDERS])
    scene.written(task, 1_060)
    assert scene.value(SOURCE_TIME) is None, "of the abandoned run"
    scene.written(again, 1_070)
    assert scene.value(SOURCE_TIME) == 1_070


def test_the_age_increases_over_restarts(scene: Scene) -> None:
    """The gauges keep the oldest unwritten event of the last run until the next run has an assignment."""
    task = scene.run()
    task.on_assignment([ORDERS, ITEMS])
    oldest = {"orders": Unwritten(scene.time.seconds, int((scene.time.wall() - 5) * 1_000_000))}
    task.watch_unwritten(lambda: oldest)
    scene.metrics.on_task_state("shop", 0, State.RESTARTING)
    scene.time.seconds += 50
    again = scene.run()
    assert (scene.value(OLDEST), scene.value(FRESHNESS)) == (50, 55)
    again.on_assignment([ORDERS])
    assert scene.value(OLDEST) is None


@contextmanager
def hung(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Make merges of the lakehouse wait for the returned event."""
    began, go = Event(), Event()
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    merge = table.merge

    def waiting(*args: object) -> object:
        began.set()
        go.wait(10)
        return merge(*args)  # type: ignore[arg-type]  # the arguments of the call

    monkeypatch.setattr(table, "merge", waiting)
    yield go
    go.set()


@pytest.mark.anyio
async def test_a_writer_that_hangs_is_visible(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lag, freshness and age of the oldest event increase while a writer hangs, and recover when it continues."""
    metrics = Metrics()
    place = {"connector": "items", "task": "0"}

    def value(name: str, **labels: str) -> float:
        return metrics.complete().get_sample_value(name, place | labels) or 0.0

    def lag() -> float:
        return value(LAG, topic=TOPIC, partition="0")

    table = {"table": "shop_public_items"}
    with hung(harness, monkeypatch) as go:
        async with running(harness.task(observer=metrics.task("items", 0, lambda topic: None))):
            for number in range(5):
                harness.insert(number, number + 1)
            await eventually(lambda: value(OLDEST, **table) > 0.05)
            assert lag() == 5
            assert value("kafka_connect_sink_task_sink_record_lag_max") == 5
            assert value(FRESHNESS, **table) > 1_000, "the events' source time is that of 2023"
            go.set()
            # The offset is stored a moment before the lane has nothing left.
            await eventually(lambda: harness.offset() == 5 and value(OLDEST, **table) == 0)
            assert lag() == 0
            assert metrics.complete().get_sample_value(SOURCE_TIME, place | table) == 1_700_000_000


@pytest.mark.anyio
async def test_age_of_an_event_that_a_stopped_task_has_not_written(harness: Harness) -> None:
    """The age of an unwritten event is reported until the next run of the task has an assignment."""
    metrics = Metrics()

    def ages() -> list[float]:
        return [sample.value for sample in samples(metrics, OLDEST)]

    async with running(harness.task(linger=60, observer=metrics.task("items", 0, lambda topic: None))):
        harness.insert(1, 1)
        await eventually(lambda: ages() and ages()[0] > 0)
    assert ages()[0] > 0
    again = metrics.task("items", 0, lambda topic: None)
    assert ages()[0] > 0
    again.on_assignment([])
    assert ages() == []


@pytest.mark.anyio
async def test_tables_of_a_task_that_loses_a_topic(harness: Harness) -> None:
    """A task that loses one of two topics reports the series of its remaining table only."""
    await harness.broker.create_topic("shop.public.notes")
    metrics = Metrics()
    tasks = [harness.task(n, observer=metrics.task("items", n, lambda topic: None)) for n in range(2)]
    async with running(tasks[0]):
        harness.insert(1, 10)
        note = change("c", {"id": 1}, 20, table="notes")
        harness.broker.append("shop.public.notes", note, key({"id": 1}))
        await eventually(lambda: len(series(metrics, SOURCE_TIME)) == 2)
        async with running(tasks[1]):
            await eventually(lambda: len(harness.broker.committed("connect-items")) == 2)
            assert len(series(metrics, SOURCE_TIME)) == 1
            assert len(series(metrics, LAG)) == 2


def series(metrics: Metrics, name: str) -> list[Mapping[str, str]]:
    """The labels of the samples of a metric."""
    return [sample.labels for sample in samples(metrics, name)]


def samples(metrics: Metrics, name: str) -> list[Sample]:
    return [sample for family in metrics.complete().collect() for sample in family.samples if sample.name == name]
