"""Tests of the tables that have series of their own, and of the size of ``/metrics`` with hundreds of tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable

import pytest
from support.clock import Clocks

from headrace.core.batch.batch import Batch, Trigger, Unwritten
from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.status import TableStatus
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.core.model.table_files import TableFiles
from headrace.ports import TopicPartition, UpkeepReport
from headrace.runtime.metrics.metrics import Metrics, TaskMetrics
from headrace.runtime.metrics.table_series import SHARED, TableSeries
from headrace.runtime.pipeline.source_database import Query

TASK, OTHER_TASK = ("shop", "0"), ("shop", "1")
LABELS = {"connector": "shop", "task": "0"}
MAX_BYTES, MAX_SECONDS = 200_000, 0.1
STAGES = ("fold", "reselect", "ledger", "merge", "reconcile")


def _source(table: str) -> TableId:
    return TableId("shop", "shop", "public", table)


class Scene:
    """The metrics of a worker that gives ``tables`` tables series of their own, and a task of it."""

    def __init__(self, tables: int | None) -> None:
        self.time = Clocks()
        self.metrics = Metrics(self.time.monotonic, self.time.wall, tables)
        self.task: TaskMetrics = self.metrics.task("shop", 0, lambda topic: None)
        self.task.on_assignment([])

    def write(self, table: str, behind: float = 2.0, task: TaskMetrics | None = None) -> None:
        """Report a batch whose event was committed at the source ``behind`` seconds ago."""
        position = RowVersion(b"", f"shop.{table}", 0, 1, int((self.time.wall() - behind) * 1_000_000))
        batch = Batch(1, table, Truncate(_source(table), position), {}, Trigger.AGE, 0.0, ())
        (task or self.task).on_batch_durable(batch, 0.5, self.time.wall())

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.complete().get_sample_value(name, LABELS | labels)

    def labels_of(self, name: str, label: str = "table") -> set[str]:
        return {
            sample.labels[label]
            for family in self.metrics.complete().collect()
            for sample in family.samples
            if sample.name == name
        }

    def everything(self, tables: Iterable[str]) -> None:
        """Report whatever a table can have in the metrics."""
        reselects = self.metrics.reselects("shop", 0)
        names = list(tables)
        for table in names:
            self.task.on_chunk_decoded(TopicPartition(f"shop.public.{table}", 0), 5, 1)
            self.write(table)
            for stage in STAGES:
                with self.task.stage(table, stage):
                    pass
            with self.task.stage(f"shop.public.{table}", "decode"):
                pass
            self.task.on_upkeep(table, UpkeepReport(TableFiles(3, 0, 1000, 10, 1), 1000, 10))
            self.task.on_late_events(table, 1)
            reselects.query(_source(table), Query("ok", 5, 0.1, 0.0))
            for result in ("hit", "miss"):
                reselects.count(_source(table), "requests", (result,), 1)
            for step in ("fold", "cache", "source", "carry", "target"):
                reselects.count(_source(table), "resolved", (step, "document"), 1)
        self.task.watch_lag(lambda: {TopicPartition(f"shop.public.{table}", 0): 4 for table in names})
        waiting = Unwritten(self.time.monotonic(), 5)
        self.task.watch_unwritten(lambda: dict.fromkeys(names, waiting))


def _many(count: int) -> list[str]:
    return [f"shop_public_customer_table_{number:04}" for number in range(count)]


def test_the_page_of_five_hundred_tables_is_small_and_fast() -> None:
    """By default: below 200 kB, and below 100 ms of CPU. ``metrics.tables=all`` has all series."""
    scene = Scene(20)
    scene.everything(_many(500))
    began = time.thread_time()
    body, _ = scene.metrics.exposition()
    assert time.thread_time() - began < MAX_SECONDS
    assert len(body) < MAX_BYTES
    complete = Scene(None)
    complete.everything(_many(500))
    assert complete.labels_of("headrace_events_total") == set(_many(500))


def test_sums_over_tables_stay_right() -> None:
    """The events of the tables that share series are in one sample."""
    scene = Scene(2)
    for table in ("a", "b", "c", "d", "c"):
        scene.write(table)
    assert [scene.value("headrace_events_total", table=table) for table in ("a", "b", SHARED)] == [1, 1, 3]
    assert scene.labels_of("headrace_events_total") == {"a", "b", SHARED}
    assert scene.value("headrace_freshness_seconds_count", table=SHARED) == 3


def test_alerts_apply_to_tables_that_share_series() -> None:
    """The shared gauges have the worst value of their tables, and the number of tables in each state."""
    scene = Scene(1)
    for table, behind in (("a", 1.0), ("b", 5.0), ("c", 900.0)):
        scene.write(table, behind)
        scene.task.on_upkeep(table, UpkeepReport(TableFiles(int(behind), 0, 0, 1000, int(behind))))
    scene.task.watch_unwritten(lambda: {"b": Unwritten(scene.time.seconds - 40, 0)})
    assert scene.value("headrace_freshness_last_seconds", table=SHARED) == 900
    assert scene.value("headrace_oldest_unwritten_seconds", table=SHARED) == 40
    assert scene.value("headrace_source_time_seconds", table=SHARED) == scene.time.wall() - 900
    assert scene.value("headrace_table_files", table=SHARED) == 900
    assert scene.value("headrace_table_deleted_ratio", table=SHARED) == 0.9
    assert scene.value("headrace_table_state", table=SHARED, state="RUNNING") == 2
    assert scene.metrics.complete().get_sample_value("headrace_metrics_tables", {"series": "own"}) == 1
    assert scene.metrics.complete().get_sample_value("headrace_metrics_tables", {"series": "shared"}) == 2


def test_tables_that_do_not_run_are_named() -> None:
    """As many failed or retried tables as have series of their own are named; the others are counted."""
    scene = Scene(2)
    for table in ("a", "b", "c", "d", "e"):
        scene.write(table)
    blocked = [TableStatus(table, TableState.FAILED, "the cause", 0.0) for table in ("a", "c", "d", "e")]
    scene.task.on_blocked_tables(blocked)
    failed = [scene.value("headrace_table_state", table=table, state="FAILED") for table in ("a", "c", "d", SHARED)]
    assert failed == [1, 1, 1, 1]
    assert scene.value("headrace_freshness_last_seconds", table=SHARED) is None, "all of them have failed"


def test_without_tables_nothing_is_named() -> None:
    """``metrics.tables=none``: neither tables nor topics are named, not even those that have failed."""
    scene = Scene(0)
    scene.everything(["a", "b"])
    scene.task.on_blocked_tables([TableStatus("a", TableState.FAILED, "the cause", 0.0)])
    for family in scene.metrics.complete().collect():
        for sample in family.samples:
            assert {sample.labels.get(label, SHARED) for label in ("table", "topic")} == {SHARED}, sample
    assert scene.value("headrace_table_state", table=SHARED, state="FAILED") == 1


def test_the_lag_of_further_topics_is_a_sum() -> None:
    """Each partition of the first topics has its lag; those of the other topics have one sample."""
    scene = Scene(1)
    lag = {TopicPartition("a", 0): 4, TopicPartition("a", 1): 5, TopicPartition("b", 0): 6, TopicPartition("c", 0): 7}
    scene.task.watch_lag(lambda: lag)
    assert scene.value("headrace_lag_records", topic="a", partition="1") == 5
    assert scene.value("headrace_lag_records", topic=SHARED, partition=SHARED) == 13
    assert scene.value("kafka_connect_sink_task_sink_record_lag_max") == 7


def test_every_task_has_a_table_of_its_own() -> None:
    """The shared series of a task with one table would take as much space as that of the table."""
    scene = Scene(1)
    other = scene.metrics.task("shop", 1, lambda topic: None)
    scene.write("a")
    for table in ("b", "c"):
        scene.write(table, task=other)
    assert scene.value("headrace_events_total", task="1", table="b") == 1
    assert scene.value("headrace_events_total", task="1", table=SHARED) == 1


def test_a_new_table_gets_the_series_of_one_that_has_left() -> None:
    """Tables that move between workers do not use up the series; the series of the table that left are removed."""
    scene = Scene(1)
    scene.write("a")
    scene.write("b")
    scene.task.on_tables_left(["a"])
    assert scene.value("headrace_events_total", table="a") == 1, "a counter stays until its place is needed"
    scene.write("b")
    scene.write("c")
    assert scene.labels_of("headrace_events_total") == {SHARED, "c"}
    assert scene.value("headrace_events_total", table=SHARED) == 2, "a table keeps its series"


def test_topics_that_are_not_assigned_any_more_give_up_their_series() -> None:
    """A task whose topics have moved has places for its new ones."""
    scene = Scene(1)
    old, new = TopicPartition("old", 0), TopicPartition("new", 0)
    for partition in (old, new):
        scene.task.on_assignment([partition])
        scene.task.on_chunk_decoded(partition, 5, 1)
    assert scene.labels_of("headrace_records_skipped_total", "topic") == {"new"}


def test_a_deleted_connector_gives_up_its_series() -> None:
    """The tables of other connectors have its places."""
    scene = Scene(1)
    scene.write("a")
    scene.metrics.on_connector_state("shop", State.DESTROYED)
    assert scene.metrics.tables.counts() == (0, 0)
    assert scene.metrics.tables.label(("next", "0"), "b") == "b"


def test_a_table_that_comes_back_keeps_its_series() -> None:
    """Nothing is removed for a table that left and came back before its place was needed."""
    discarded = list[str]()
    series = TableSeries(1, lambda task, table: discarded.append(table))
    assert series.label(TASK, "a") == "a"
    series.leave(TASK, ["a", "never seen"])
    assert series.label(TASK, "a") == "a"
    assert series.label(TASK, "b") == SHARED
    assert series.label(OTHER_TASK, "a") == "a", "of another task"
    assert (discarded, series.counts()) == ([], (2, 1))


def test_the_limit_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why tables are missing, and how to see them."""
    series = TableSeries(1)
    with caplog.at_level(logging.INFO):
        for table in ("a", "b", "c"):
            series.label(TASK, table)
    (message,) = caplog.messages
    assert "metrics.tables" in message
