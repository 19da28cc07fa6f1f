"""``GET /connectors/{name}/stages`` and its part of the connector's page."""

from __future__ import annotations

import time

import pytest
from support.rest.worker_api import Api, leader_and_follower

from headrace.core.model.events import TableId
from headrace.ports import TopicPartition
from headrace.rest.console import views
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.pipeline.source_database import Query

pytestmark = pytest.mark.anyio
PARTITION = TopicPartition("shop.public.orders", 0)


def work(metrics: Metrics, task: int = 0) -> None:
    """Let a task do something, as its observer sees it."""
    observer = metrics.task("shop", task, lambda topic: None)
    observer.watch_lag(lambda: {PARTITION: 7})
    observer.on_chunk_decoded(PARTITION, 120, 0)
    table = TableId("shop", "shop", "public", "orders")
    metrics.reselects("shop", task).query(table, Query("ok", 6, 0.01))
    for stage in ("decode", "merge"):
        with observer.stage("orders", stage):
            until = time.monotonic() + 0.03
            while time.monotonic() < until:
                pass


async def test_rates_and_busy_threads_of_the_last_minute(api: Api) -> None:
    work(api.metrics)
    [task] = (await api.call("GET", "/connectors/shop/stages")).json()
    busy = task.pop("busy_threads")
    assert task == {
        "task": 0,
        "worker_id": api.worker.worker_id,
        "lag_records": 7,
        "records_read_per_second": 2.0,
        "rows_reselected_per_second": 0.1,
        "changes_written_per_second": 0.0,
    }
    assert busy.keys() == {"decode", "merge"}
    assert all(0 < threads < 0.1 for threads in busy.values())


async def test_tasks_of_other_workers_are_in_the_answer() -> None:
    """Any worker answers for the cluster."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        await leader.create(**{"tasks.max": "2"})
        await leader.until("RUNNING", "RUNNING", "RUNNING")
        tasks = (await follower.call("GET", "/connectors/shop/stages")).json()
        assert [task["task"] for task in tasks] == [0, 1]
        assert {task["worker_id"] for task in tasks} == {leader.worker.worker_id, follower.worker.worker_id}


async def test_an_unknown_connector(api: Api) -> None:
    assert (await api.call("GET", "/connectors/no/stages")).status == 404


async def test_a_task_that_has_ended_is_not_in_the_answer(api: Api) -> None:
    await api.call("PUT", "/connectors/shop/stop")
    await api.until("STOPPED")
    assert (await api.call("GET", "/connectors/shop/stages")).json() == []
    assert "No task of the connector runs" in (await api.call("GET", "/ui/connectors/shop")).body.decode()


def test_the_bottleneck_is_the_step_with_the_most_busy_threads() -> None:
    """Stages of a step add up, and those of all tasks; an idle connector has none."""
    task = {
        "lag_records": 1,
        "records_read_per_second": 1.0,
        "rows_reselected_per_second": 0.0,
        "changes_written_per_second": 1.0,
    }
    busy = {"decode": 0.3, "fold": 0.1, "merge": 0.15, "ledger": 0.1, "maintain": 2.0}
    shown = views.flow([{**task, "busy_threads": busy}, {**task, "busy_threads": {"merge": 0.05}}])
    assert shown["bottleneck"] == "Merge"
    assert {step["name"]: round(step["busy"], 3) for step in shown["steps"]} == {
        "Decode": 0.3,
        "Reselect": 0,
        "Merge": 0.4,
    }
    assert (shown["lag"], shown["upkeep"]) == (2, 2.0)
    assert views.flow([{**task, "busy_threads": {"merge": 0.01}}])["bottleneck"] is None
    assert views.flow([])["bottleneck"] is None


async def test_the_page_shows_the_flow(api: Api) -> None:
    work(api.metrics)
    html = (await api.call("GET", "/ui/connectors/shop")).body.decode()
    assert "<b>2.0</b> records/s read" in html
    assert "<b>0.1</b> rows/s from the database" in html
    assert html.count("busy threads</p>") == 3
