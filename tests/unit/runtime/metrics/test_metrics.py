"""Tests of the metrics of ``/metrics``."""

from __future__ import annotations

import re

import pytest

from headrace.core.batch.batch import Batch, Trigger
from headrace.core.connect.lifecycle import State
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.core.model.table_files import TableFiles
from headrace.core.reselect.cache.rows import CacheUse
from headrace.ports import Connections, TopicPartition, UpkeepReport
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.pipeline.source_database import Query

ORDERS = TopicPartition("shop.orders", 0)
TABLE = TableId("shop", "shop", "public", "orders")


def _batch(source_time: int) -> Batch:
    content = Truncate(TABLE, RowVersion(b"", "shop.orders", 0, 1, source_time))
    return Batch(1, "orders", content, {ORDERS: 2}, Trigger.AGE, 0.0, ())


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.complete().get_sample_value(name, labels)


def test_freshness_is_the_time_from_the_source_commit_to_the_visible_row() -> None:
    """The freshness of a batch is reported as a histogram and as the last value."""
    metrics = Metrics()
    observer = metrics.task("shop", 0, lambda topic: None)
    observer.on_batch_durable(_batch(1_000_000_000), 0.5, now=1003.0)
    labels = {"connector": "shop", "task": "0", "table": "orders"}
    assert _value(metrics, "headrace_freshness_last_seconds", **labels) == 3.0
    assert _value(metrics, "headrace_freshness_seconds_count", **labels) == 1.0
    assert _value(metrics, "headrace_source_time_seconds", **labels) == 1000.0
    assert _value(metrics, "headrace_batches_total", **labels, trigger="age") == 1.0


def test_a_batch_without_source_time_has_no_freshness() -> None:
    """A batch without a source time, as of a snapshot, reports no freshness."""
    metrics = Metrics()
    metrics.task("shop", 0, lambda topic: None).on_batch_durable(_batch(0), 0.5, now=1003.0)
    labels = {"connector": "shop", "task": "0", "table": "orders"}
    assert _value(metrics, "headrace_freshness_seconds_count", **labels) is None


def test_written_bytes_are_counted_by_what_wrote_them() -> None:
    """The counters go on when a table is opened again, whose reports then begin at 0."""
    metrics = Metrics()
    observer = metrics.task("shop", 0, lambda topic: None)
    files = TableFiles(3, 2, 4096, 100, 10)
    for report in (UpkeepReport(None, 1000, 0), UpkeepReport(files, 1500, 700), UpkeepReport(None, 200, 0)):
        observer.on_upkeep("orders", report)
    labels = {"connector": "shop", "task": "0", "table": "orders"}
    assert _value(metrics, "headrace_table_written_bytes_total", **labels, by="merge") == 1700
    assert _value(metrics, "headrace_table_written_bytes_total", **labels, by="upkeep") == 700
    assert _value(metrics, "headrace_table_files", **labels) == 5
    assert _value(metrics, "headrace_table_bytes", **labels) == 4096
    assert _value(metrics, "headrace_table_deleted_ratio", **labels) == 0.1
    observer.on_tables_left(["orders", "others"])
    assert _value(metrics, "headrace_table_files", **labels) is None


def test_the_topic_of_every_chunk_is_reported() -> None:
    """The observer reports the topic of every chunk that has records, because the list of topics can be reset."""
    seen = list[str]()
    observer = Metrics().task("shop", 0, seen.append)
    for records in (0, 5, 5):
        observer.on_chunk_decoded(ORDERS, records, 0)
    assert seen == ["shop.orders", "shop.orders"]


def test_a_deleted_connector_has_no_metrics() -> None:
    """Counters and histograms go with it; those of a connector whose name only begins alike stay."""
    metrics = Metrics()
    for connector in ("shop", "shop-2"):
        observer = metrics.task(connector, 0, lambda topic: None)
        metrics.on_task_state(connector, 0, State.RUNNING)
        observer.on_errant_records(3, skipped=True, logged=True)
        observer.on_chunk_decoded(ORDERS, 5, 1)
        observer.on_losses("shop.orders", {"varint": 2})
        observer.on_batch_durable(_batch(1_000_000_000), 0.5, now=1003.0)
        metrics.reselects(connector, 0).query(TABLE, Query("ok", 5, 0.1, 0.0))
        with observer.stage("orders", "merge"):
            pass
    metrics.on_task_state("shop", 0, State.DESTROYED)
    assert _value(metrics, "kafka_connect_task_error_total_record_failures", connector="shop", task="0") == 3
    metrics.on_connector_state("shop", State.DESTROYED)
    labels = [sample.labels for family in metrics.complete().collect() for sample in family.samples]
    assert {each["connector"] for each in labels if "connector" in each} == {"shop-2"}


def test_losses_are_counted_and_notes_reported() -> None:
    """The metrics count losses by type. The observer passes notes to the status of the task."""
    metrics, noted = Metrics(), list[tuple[str, str]]()
    observer = metrics.task("shop", 0, lambda topic: None, lambda text, place: noted.append((text, place)))
    observer.on_losses("c.hr.t", {"varint": 2})
    observer.on_losses("c.hr.t", {"varint": 1})
    observer.on_note("why", "c.hr.t column v")
    labels = {"connector": "shop", "task": "0", "topic": "c.hr.t", "kind": "varint"}
    assert _value(metrics, "headrace_source_losses_total", **labels) == 3.0
    assert noted == [("why", "c.hr.t column v")]


def test_lag_is_shown_per_partition_and_at_its_largest() -> None:
    """``headrace_lag_records`` has the lag of each partition, Kafka Connect's metric has the largest one."""
    metrics = Metrics()
    metrics.task("shop", 0, lambda topic: None).watch_lag(lambda: {ORDERS: 4, TopicPartition("shop.orders", 1): 9})
    task = {"connector": "shop", "task": "0"}
    assert _value(metrics, "headrace_lag_records", **task, topic="shop.orders", partition="1") == 9.0
    assert _value(metrics, "kafka_connect_sink_task_sink_record_lag_max", **task) == 9.0


def test_a_destroyed_task_has_no_lag() -> None:
    """A destroyed task has no lag, so that an alert on a deleted connector ends."""
    metrics = Metrics()
    metrics.task("shop", 0, lambda topic: None).watch_lag(lambda: {ORDERS: 4})
    metrics.task("shop", 1, lambda topic: None).watch_lag(lambda: {ORDERS: 5})
    metrics.on_task_state("shop", 0, State.DESTROYED)
    assert _value(metrics, "kafka_connect_sink_task_sink_record_lag_max", connector="shop", task="0") is None
    assert _value(metrics, "kafka_connect_sink_task_sink_record_lag_max", connector="shop", task="1") == 5.0


def test_every_counter_of_reselect_has_a_metric() -> None:
    """Each counter of reselect has a metric, because a counter without one would fail the batch."""
    metrics = Metrics()
    counter = metrics.reselects("shop", 0)
    for kind in ("requests", "drops", "contradictions", "flashback_fallbacks"):
        counter.count(TABLE, kind, ("x",), 2)
    for kind in ("guard", "source_equals_placeholder", "rows_not_found", "bytes_read"):
        counter.count(TABLE, kind, (), 3)
    for kind in ("cells", "resolved", "writes"):
        counter.count(TABLE, kind, ("x", "big"), 4)
    counter.query(TABLE, Query("ok", 20, 0.5, 0.25))
    counter.cache(CacheUse(5, 600, 1, 2500))
    counter.connections(Connections(4, 2, 1))
    assert _value(metrics, "reselect_cache_bytes", connector="shop", task="0") == 600.0
    task = {"connector": "shop", "task": "0"}
    assert _value(metrics, "reselect_cache_oldest_seconds", **task) == 2.5
    states = [_value(metrics, "reselect_connections", **task, state=each) for each in ("idle", "used", "left_alone")]
    assert states == [4, 2, 1]
    counter.cache(CacheUse(0, 0, 0))
    assert _value(metrics, "reselect_cache_oldest_seconds", **task) is None
    labels = {**task, "table": "public.orders"}
    assert _value(metrics, "reselect_cells_total", **labels, state="x", column="big") == 4.0
    assert _value(metrics, "reselect_bytes_read_total", **labels) == 3.0
    assert _value(metrics, "reselect_queries_total", **labels, result="ok") == 1.0
    assert _value(metrics, "reselect_visibility_wait_seconds_sum", **task) == 0.25


def test_stages_are_measured_also_if_they_fail() -> None:
    """The time of a stage is counted also if the stage raises an error."""
    metrics = Metrics()
    observer = metrics.task("shop", 0, lambda topic: None)
    with pytest.raises(ValueError), observer.stage("orders", "fold"):
        raise ValueError
    labels = {"connector": "shop", "task": "0", "table": "orders", "stage": "fold"}
    assert (_value(metrics, "headrace_stage_seconds_total", **labels) or 0) > 0


def test_the_exposition_is_text_with_our_version() -> None:
    """The exposition is Prometheus text with the version of Headrace."""
    body, content_type = Metrics().exposition()
    assert content_type.startswith("text/plain")
    assert re.search(rb'headrace_info\{version="[^"]+"\} 1\.0', body)
