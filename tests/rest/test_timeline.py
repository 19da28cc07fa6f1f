"""The timeline over REST and in the console: what has happened, when, and by which request."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.rest.asgi import request
from support.rest.secured import ANN, BOB, EVE, users
from support.rest.worker_api import SHOP, Api, failed_table, leader_and_follower, table_report

from headrace import __version__
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.timeline import Kind, TimelineEvent, Trigger, TriggerType
from headrace.core.model.errors import Fatal, Retriable
from headrace.runtime.worker.timeline import append_events
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>'\"&"


async def timeline(api: Api, path: str = "/connectors/shop/timeline") -> list[dict[str, Any]]:
    answer = await api.call("GET", path)
    assert answer.status == 200
    events: list[dict[str, Any]] = answer.json()
    return events


async def kinds(api: Api, path: str = "/connectors/shop/timeline") -> list[str]:
    return [event["kind"] for event in await timeline(api, path)]


async def test_each_request_that_changes_a_connector_is_an_event(api: Api) -> None:
    """Newest first. One that changes nothing, or is refused, is none."""
    api.tasks.tasks["shop-0"].tables = [table_report("orders")]
    for method, path, body in (
        ("PUT", "/config", {**SHOP, "batch.linger.ms": "17"}),
        ("PUT", "/config", {**SHOP, "batch.linger.ms": "17"}),
        ("PATCH", "/config", {"batch.linger.ms": None, "errors.tolerance": "all"}),
        ("PATCH", "/config", {"errors.tolerance": "perhaps"}),
        ("PUT", "/pause", None),
        ("PUT", "/pause", None),
        ("PUT", "/resume", None),
        ("PUT", "/tables/orders/pause", None),
        ("PUT", "/tables/orders/resume", None),
        ("POST", "/tables/orders/restart?missing=recreate", None),
        ("POST", "/restart", None),
        ("POST", "/restart?includeTasks=true", None),
        ("POST", "/tasks/0/restart", None),
        ("PUT", "/stop", None),
    ):
        if method == "POST" or path == "/stop":
            await api.until("RUNNING", "RUNNING")
            api.tasks.tasks["shop-0"].tables = [table_report("orders")]
        await api.call(method, f"/connectors/shop{path}", body)
    await eventually(lambda: not api.worker.configs.state.task_configs("shop"))
    assert (await api.call("DELETE", "/connectors/shop/offsets")).status == 200
    assert (await api.call("DELETE", "/connectors/shop")).status == 204
    requested = [event for event in await timeline(api) if event["by"]["type"] == "request"]
    shown = [(event["kind"], event["by"]["method"], event["by"]["path"], event["text"]) for event in requested]
    shop = "/connectors/shop"
    assert shown[::-1] == [
        ("CONNECTOR_CREATED", "POST", "/connectors", ""),
        ("CONFIG_CHANGED", "PUT", f"{shop}/config", "batch.linger.ms"),
        ("CONFIG_CHANGED", "PATCH", f"{shop}/config", "batch.linger.ms, errors.tolerance"),
        ("CONNECTOR_PAUSED", "PUT", f"{shop}/pause", ""),
        ("CONNECTOR_RESUMED", "PUT", f"{shop}/resume", ""),
        ("TABLE_PAUSED", "PUT", f"{shop}/tables/orders/pause", ""),
        ("TABLE_RESUMED", "PUT", f"{shop}/tables/orders/resume", ""),
        (
            *("TABLE_RESTARTED", "POST", f"{shop}/tables/orders/restart"),
            "continues at the offsets of the group if it is missing or behind",
        ),
        ("CONNECTOR_RESTARTED", "POST", f"{shop}/restart", ""),
        ("CONNECTOR_RESTARTED", "POST", f"{shop}/restart", "with its tasks"),
        ("TASK_RESTARTED", "POST", f"{shop}/tasks/0/restart", ""),
        ("CONNECTOR_STOPPED", "PUT", f"{shop}/stop", ""),
        ("OFFSETS_RESET", "DELETE", f"{shop}/offsets", ""),
        ("CONNECTOR_DELETED", "DELETE", shop, ""),
    ]
    assert {event["table"] for event in requested if event["kind"].startswith("TABLE")} == {"orders"}
    assert {event.get("task") for event in requested if event["kind"] == "TASK_RESTARTED"} == {0}
    assert {event["worker_id"] for event in requested} == {"worker:8083"}
    assert await kinds(api, "/timeline?kind=worker_started") == ["WORKER_STARTED"]


async def test_no_value_of_an_option_is_in_an_event(api: Api) -> None:
    """It may be a secret."""
    secret = {"consumer.override.sasl.jaas.config": "s3cret", "batch.linger.ms": "17"}
    await api.call("PUT", "/connectors/shop/config", {**SHOP, **secret})
    [changed] = await timeline(api, "/connectors/shop/timeline?kind=CONFIG_CHANGED")
    assert changed["text"] == "batch.linger.ms, consumer.override.sasl.jaas.config"
    assert "s3cret" not in json.dumps(await timeline(api, "/timeline"))


async def test_a_user_is_named_and_a_query_is_not(tmp_path: Path) -> None:
    api = Api(**users(tmp_path))
    await api.worker.start()
    given = json.dumps({"name": "shop", "config": SHOP}).encode()
    headers = {"Content-Type": "application/json"}
    created = await request(api.app, "POST", "/connectors?token=s3cret", {**ANN, **headers}, given)
    assert created.status == 201
    refused = await request(api.app, "PUT", "/connectors/shop/pause", EVE)
    assert refused.status == 403
    assert (await request(api.app, "PUT", "/connectors/shop/pause", BOB)).status == 202
    events = (await request(api.app, "GET", "/connectors/shop/timeline?limit=2", EVE)).json()
    assert [event["by"] for event in events] == [
        {"type": "request", "method": "PUT", "path": "/connectors/shop/pause", "user": "bob"},
        {"type": "request", "method": "POST", "path": "/connectors", "user": "ann"},
    ]
    await api.worker.stop()


async def test_failures_and_the_starts_after_them_are_events(api: Api) -> None:
    """A retried failure has its reason as well; the first start of a task follows from the creation."""
    assert await kinds(api) == ["CONNECTOR_CREATED"]
    api.tasks.tasks["shop-0"].fail(Retriable("the broker is away\nsecond line"))
    await eventually(lambda: api.worker.timeline.state.events("shop")[0].kind is Kind.TASK_STARTED)
    api.tasks.tasks["shop-0"].fail(Fatal("the table has vanished"))
    await api.until("RUNNING", "FAILED")
    failed, started, restarted, _ = await timeline(api)
    assert (failed["kind"], failed["task"], failed["by"]) == ("TASK_FAILED", 0, {"type": "worker"})
    assert failed["text"].endswith("Fatal: the table has vanished")
    assert (started["kind"], restarted["kind"]) == ("TASK_STARTED", "TASK_RESTARTED")
    assert restarted["text"].endswith("Retriable: the broker is away")
    await api.call("POST", "/connectors/shop/restart?includeTasks=true&onlyFailed=true")
    await api.until("RUNNING", "RUNNING")
    assert (await kinds(api))[:3] == ["TASK_STARTED", "CONNECTOR_RESTARTED", "TASK_FAILED"]


async def test_a_connector_that_fails_is_an_event_for_each_reason(api: Api) -> None:
    """A stored configuration that is not usable fails its connector; the next round with the same reason adds none."""
    log = api.stores.configs
    for properties in ({"topics": "a"}, {"topics": "b"}, {}):
        document = {"properties": {**SHOP, "batch.linger.ms": "soon", **properties}}
        await log.append([("connector-bad", json.dumps(document).encode())])
        await api.until("FAILED", name="bad")
    await api.create("other")
    await api.until("RUNNING", "RUNNING", name="other")  # the rounds of the first one have ended before
    [failed] = await timeline(api, "/connectors/bad/timeline")
    assert (failed["kind"], failed.get("count")) == ("CONNECTOR_FAILED", None)
    assert "batch.linger.ms" in failed["text"]


async def test_any_worker_answers_for_all_and_remembers_a_restarted_one() -> None:
    """A request that another worker forwards is that of the client; the events outlive the workers."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        assert (await follower.create()).status == 201
        await leader.until("RUNNING", "RUNNING")
        await eventually(lambda: len(follower.worker.timeline.state.events()) == 3)
        assert await timeline(leader, "/timeline") == await timeline(follower, "/timeline")
        started = await timeline(follower, "/timeline?kind=WORKER_STARTED")
        assert [event["worker_id"] for event in started] == [follower.worker.worker_id, leader.worker.worker_id]
        assert {event["text"] for event in started} == {f"Headrace {__version__}"}
        [created] = await timeline(follower)
        assert (created["worker_id"], created["by"]["path"]) == (leader.worker.worker_id, "/connectors")
        before = await timeline(leader, "/timeline")
    again = Api(leader.stores)
    await again.worker.start()
    events = await timeline(again, "/timeline")
    assert events[3:] == before
    stopped = ["WORKER_STARTED", "WORKER_STOPPED", "WORKER_STOPPED"]
    assert [event["kind"] for event in events[:3]] == stopped
    await again.worker.stop()


async def test_tasks_that_move_are_an_event() -> None:
    """Those of new connectors do not move. A leader that has died is followed by one that knows its tasks."""
    first = Api(host="one")
    second = Api(MemoryStores(shared=first.stores), host="two")
    await first.worker.start()
    await first.create(**{"tasks.max": "4"})
    await first.until(*("RUNNING",) * 5)
    assert await timeline(first, "/timeline?kind=TASKS_MOVED") == []
    await second.worker.start()
    await eventually(lambda: len(second.tasks.tasks) == 2)
    [moved] = await timeline(second, "/timeline?kind=TASKS_MOVED")
    assert (moved["worker_id"], moved["text"].count(" from one:8083 to two:8083")) == ("one:8083", 2)
    first.stores.group.leave("member-1")
    await eventually(lambda: len(second.worker.timeline.state.events(kinds=[Kind.TASKS_MOVED])) == 2)
    moved = (await timeline(second, "/timeline?kind=TASKS_MOVED"))[0]
    assert (moved["worker_id"], moved["text"].count(" from one:8083 to two:8083")) == ("two:8083", 2)
    await second.worker.stop()
    await first.worker.stop()


async def test_only_the_leader_records_a_move() -> None:
    """Every worker knows the owners of all tasks before and after it."""
    first = Api(host="one")
    await first.worker.start()
    await first.create(**{"tasks.max": "4"})
    await first.until(*("RUNNING",) * 5)
    others = [Api(MemoryStores(shared=first.stores), host=host) for host in ("two", "three")]
    for other in others:
        await other.worker.start()
        await eventually(lambda tasks=other.tasks: tasks.tasks)
    for other in reversed(others):  # a worker writes its last events when it stops
        await other.worker.stop()
    moves = await timeline(first, "/timeline?kind=TASKS_MOVED")
    assert [event["worker_id"] for event in moves] == ["one:8083"] * 4
    await first.worker.stop()


async def test_a_table_that_fails_is_one_event_until_it_runs_again(api: Api) -> None:
    """The task writes the complete list of its tables that do not run with each change."""
    retried = replace(failed_table("places"), state=TableState.RETRYING)
    put = partial(api.worker.put_blocked_tables, "shop", 0)
    for blocked in ([retried], [failed_table("items")], [failed_table("items"), retried], [], [failed_table("items")]):
        put(blocked)
    events = await timeline(api, "/connectors/shop/timeline?table=items")
    assert [(event["kind"], event["text"], event.get("count")) for event in events] == [
        ("TABLE_FAILED", "the cause", 2)
    ]
    assert await timeline(api, "/timeline?table=places") == []


async def test_a_thread_that_alters_or_repairs_a_table_adds_an_event(api: Api) -> None:
    record = partial(api.worker.timeline.record_soon, "shop", 0)
    observer = api.metrics.task("shop", 0, lambda topic: None, record=record)
    await asyncio.to_thread(observer.on_schema_change, "orders", "added price double")
    await asyncio.to_thread(observer.on_repair, "orders", 1200)
    await eventually(lambda: len(api.worker.timeline.state.events("shop")) == 3)
    repaired, changed, _ = await timeline(api)
    assert (repaired["kind"], repaired["table"], repaired["text"]) == ("ROWS_REPAIRED", "orders", "1,200 row(s)")
    assert (changed["kind"], changed["task"], changed["text"]) == ("SCHEMA_CHANGED", 0, "added price double")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit: must be a number between 1 and 10000"),
        ("limit=²", "limit: must be"),
        ("limit=x", "limit: must be"),
        ("kind=LATER", "kind: 'LATER' is no kind of event; the kinds are CONNECTOR_CREATED, "),
    ],
)
async def test_a_parameter_that_is_not_usable_is_refused(api: Api, query: str, message: str) -> None:
    for path in ("/timeline", "/connectors/shop/timeline"):
        answer = await api.call("GET", f"{path}?{query}")
        assert answer.status == 400
        assert answer.json()["message"].startswith(message)


async def test_an_unknown_connector_has_no_timeline(api: Api) -> None:
    assert (await api.call("GET", "/connectors/none/timeline")).status == 404
    assert (await api.call("GET", "/ui/connectors/none/timeline")).status == 404


async def test_connectors_as_code_name_their_file(tmp_path: Path) -> None:
    (tmp_path / "shop.json").write_text(json.dumps({"name": "shop", "config": SHOP}))
    api = Api(**{"connectors.directory": str(tmp_path)})
    await api.worker.start()
    await api.directory.reconcile()
    [created] = await timeline(api)
    assert (created["kind"], created["by"]) == ("CONNECTOR_CREATED", {"type": "file", "path": "shop.json"})
    await api.worker.stop()


async def test_a_repair_by_a_command(api: Api) -> None:
    """A command writes to the status topic of the worker that runs, which shows the event at once."""
    command = Trigger(TriggerType.COMMAND, path="headrace verify --repair")
    repaired = TimelineEvent(
        Kind.ROWS_REPAIRED, 1_700_000_000_000, "db, process 7", "shop", None, "orders", "3 row(s)", command
    )
    await append_events(MemoryStores(shared=api.stores).statuses, [repaired])
    [event] = await timeline(api, "/connectors/shop/timeline?kind=ROWS_REPAIRED")
    assert (event["table"], event["text"], event["worker_id"]) == ("orders", "3 row(s)", "db, process 7")
    assert event["by"] == {"type": "command", "path": "headrace verify --repair"}
    page = (await api.call("GET", "/ui/timeline?kind=ROWS_REPAIRED")).body.decode()
    assert "command <code>headrace verify --repair</code>" in page


async def test_the_pages_show_events_as_text(api: Api) -> None:
    """Names and errors that contain HTML stay texts. The page of a table has the events of the table."""
    record = api.worker.timeline.record
    record(Kind.TABLE_FAILED, "shop", HOSTILE, table=HOSTILE)
    record(Kind.TASK_FAILED, "shop", "why", task=0)
    record(Kind.TASK_FAILED, "shop", "why", task=0)
    for path in ("/ui/timeline", "/ui/connectors/shop/timeline"):
        html = (await api.call("GET", path)).body.decode()
        assert "<script>alert" not in html
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
        assert '<span class="state failed">Task failed</span>' in html
        assert "<code>POST /connectors</code>" in html
        assert "(2 times since" in html
    assert "Worker started" in (await api.call("GET", "/ui/timeline?kind=WORKER_STARTED")).body.decode()
    chosen = (await api.call("GET", "/ui/connectors/shop/timeline?table=orders")).body.decode()
    assert "No such event is stored." in chosen
    assert 'value="orders"' in chosen


async def test_the_page_names_the_request_of_older_events(api: Api) -> None:
    for number in range(60):
        api.worker.timeline.record(Kind.ROWS_REPAIRED, "shop", f"{number} rows", table="orders")
    html = (await api.call("GET", "/ui/connectors/shop/timeline")).body.decode()
    assert html.count("rows</td>") == 50
    assert "<code>GET /connectors/shop/timeline?limit=1000</code>" in html


async def test_the_number_of_dropped_events_is_a_metric(api: Api) -> None:
    api.worker.timeline.dropped = 3
    body = (await api.call("GET", "/metrics")).body.decode()
    assert "headrace_timeline_events_dropped_total 3" in body
