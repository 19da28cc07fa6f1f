"""``/connectors/{name}/tables``: tables of the tasks of one worker, and of several workers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api, failed_table, leader_and_follower, table_report

from headrace.core.connect.config_state import paused_tables_record
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableReport, TableStatus
from headrace.core.connect.table_activity import OPERATIONS, LastBatch, TableDetails
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Operation
from headrace.core.model.table_files import TableFiles
from headrace.ports import EngineState, EngineStatus
from headrace.runtime.worker import worker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A started worker."""
    api = Api()
    await api.worker.start()
    yield api
    await api.worker.stop()


async def test_a_table_with_all_that_is_known(api: Api) -> None:
    """Times are in UTC; the freshness is the age of the oldest change that is not in the table, null if unknown."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    now = time.time()
    batch = LastBatch(10, 2_000, 0.25, 1_700_000_001.0, 1_700_000_000.0)
    api.tasks.tasks["shop-0"].tables = [
        TableReport(
            "items", TableState.RETRYING, ["shop.items"], 3, 400, now - 5, now - 60, batch, failed_table("items"), 30.0
        ),
        table_report("orders"),
    ]
    items, orders = (await api.call("GET", "/connectors/shop/tables")).json()
    assert 60 <= items.pop("freshness_seconds") < 90
    assert items == {
        "table": "items",
        "task": 0,
        "state": "RETRYING",
        "topics": ["shop.items"],
        "freshness_target_seconds": 30.0,
        "waiting": {"events": 3, "bytes": 400},
        "last_batch": {
            "events": 10,
            "bytes": 2000,
            "seconds": 0.25,
            "committed": "2023-11-14T22:13:21Z",
            "source_time": "2023-11-14T22:13:20Z",
        },
        "last_error": {"state": "FAILED", "trace": "the cause", "since": "2023-11-14T22:13:20Z"},
    }
    assert orders == {
        "table": "orders",
        "task": 0,
        "state": "RUNNING",
        "topics": ["shop.orders"],
        "freshness_seconds": 0.0,
        "waiting": {"events": 0, "bytes": 0},
    }
    details = {"batches": [], "operations": dict.fromkeys(OPERATIONS.values(), 0), "schema_changes": []}
    assert (await api.call("GET", "/connectors/shop/tables/orders")).json() == {**orders, **details}


async def test_the_details_of_a_table_are_in_its_own_report(api: Api) -> None:
    """The lists of tables have none of them: a list of 500 tables would be long."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    batch = LastBatch(10, 2_000, 0.25, 1_700_000_001.0, 1_700_000_000.0, "age", {}, {Operation.CREATE: 10})
    details = TableDetails([batch], {Operation.CREATE: 10}, files=TableFiles(2, 1, 400, 12, 2))
    api.tasks.tasks["shop-0"].tables = [replace(table_report("items"), last_batch=batch, details=lambda: details)]
    (listed,) = (await api.call("GET", "/connectors/shop/tables")).json()
    items = (await api.call("GET", "/connectors/shop/tables/items")).json()
    assert items == {**listed, **details.document()}
    assert not listed.keys() & details.document().keys()
    assert items["batches"][0]["closed_by"] == "age"
    assert items["files"]["delete_files"] == 1


@pytest.mark.parametrize("state", [TableState.FAILED, TableState.PAUSED, TableState.RETRYING])
async def test_a_table_that_is_not_read_has_no_freshness(api: Api, state: TableState) -> None:
    """Nobody knows what its topics contain, and 0.0 looks up to date. Here RETRYING has read nothing yet."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.tasks.tasks["shop-0"].tables = [table_report("items", state)]
    (items,) = (await api.call("GET", "/connectors/shop/tables")).json()
    assert items["freshness_seconds"] is None


async def test_a_table_is_restarted(api: Api) -> None:
    """The 404 for an unknown table contains the URL of the list of names."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    task = api.tasks.tasks["shop-0"]
    task.tables = [table_report("items", TableState.FAILED)]
    assert (await api.call("POST", "/connectors/shop/tables/items/restart")).status == 204
    assert task.calls[-1] == "restart items"
    assert (await api.call("POST", "/connectors/shop/tables/items/restart?missing=recreate")).status == 204
    assert task.calls[-1] == "restart items as it is"
    answer = await api.call("POST", "/connectors/shop/tables/items/restart?missing=create")
    assert (answer.status, "missing: must be" in answer.json()["message"]) == (400, True)
    for method, path in (("POST", "/connectors/shop/tables/no/restart"), ("GET", "/connectors/shop/tables/no")):
        answer = await api.call(method, path)
        assert answer.status == 404
        assert "GET /connectors/shop/tables" in answer.json()["message"]
    assert (await api.call("GET", "/connectors/nobody/tables")).status == 404


async def test_a_stopped_connector_has_nothing_to_restart(api: Api) -> None:
    """A restart of a table of a stopped connector returns the same error as a restart of its tasks."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/stop")
    assert (await api.call("POST", "/connectors/shop/tables/items/restart")).status == 409


async def test_a_table_is_paused_and_resumed(api: Api) -> None:
    """Its task learns of it, with the topics; both requests may be repeated, and unknown tables are 404."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    task, path = api.tasks.tasks["shop-0"], "/connectors/shop/tables"
    task.tables = [table_report("items"), table_report("orders")]
    for _ in range(2):
        assert (await api.call("PUT", f"{path}/items/pause")).status == 202
        await eventually(lambda: [each.topics for each in task.paused_tables.values()] == [("shop.items",)])
    assert (await api.call("PUT", f"{path}/orders/pause")).status == 202
    for verb in ("pause", "resume"):
        await api.call("PUT", f"/connectors/shop/{verb}")
    await api.call("PUT", "/connectors/shop/config", {**SHOP, "batch.linger.ms": "5"})
    await eventually(lambda: api.tasks.tasks["shop-0"] is not task)
    task = api.tasks.tasks["shop-0"]
    task.tables = [table_report("items"), table_report("orders")]
    await eventually(lambda: task.paused_tables.keys() == {"items", "orders"})
    await api.call("POST", "/connectors/shop/restart?includeTasks=true")
    await eventually(lambda: api.tasks.tasks["shop-0"] is not task)
    task = api.tasks.tasks["shop-0"]
    await eventually(lambda: task.paused_tables.keys() == {"items", "orders"})
    for _ in range(2):
        task.tables = [table_report("items"), table_report("orders")]
        assert (await api.call("PUT", f"{path}/items/resume")).status == 202
        await eventually(lambda: task.paused_tables.keys() == {"orders"})
    for verb in ("pause", "resume"):
        answer = await api.call("PUT", f"{path}/no/{verb}")
        assert (answer.status, "GET /connectors/shop/tables" in answer.json()["message"]) == (404, True)
        assert (await api.call("PUT", f"/connectors/nobody/tables/items/{verb}")).status == 404


async def test_a_quiet_table_is_paused_by_the_name_of_its_topic(api: Api) -> None:
    """It has had no change since its task started, or its connector is stopped: no task reports it."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    await api.call("PUT", "/connectors/shop/stop")
    assert (await api.call("PUT", "/connectors/shop/tables/shop_public_items/pause")).status == 202
    paused = api.worker.configs.state.paused_tables("shop")
    assert {name: table.topics for name, table in paused.items()} == {"shop_public_items": ("shop.public.items",)}
    await api.call("PUT", "/connectors/shop/resume")
    await eventually(lambda: api.tasks.tasks["shop-0"].paused_tables == paused)
    await api.create("named", **{"collection.name.format": "${source.table}"})
    assert (await api.call("PUT", "/connectors/named/tables/items/pause")).status == 404, "its topic is not known"


async def test_a_table_that_shares_its_topics_with_a_paused_one(api: Api) -> None:
    """The topics of both are not read, so a resume of the other one says which table to resume."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    both = [replace(table_report(name), topics=["shop.all"]) for name in ("items", "orders")]
    api.tasks.tasks["shop-0"].tables = both
    assert (await api.call("PUT", "/connectors/shop/tables/items/pause")).status == 202
    answer = await api.call("PUT", "/connectors/shop/tables/orders/resume")
    assert (answer.status, "items" in answer.json()["message"]) == (409, True)
    assert (await api.call("PUT", "/connectors/shop/tables/items/resume")).status == 202
    assert (await api.call("PUT", "/connectors/shop/tables/orders/resume")).status == 202


async def test_a_pause_outlives_the_worker_and_not_the_connector() -> None:
    """A connector of the same name begins without, also if an earlier release removed the one before."""
    first = Api()
    await first.worker.start()
    await first.create()
    await first.until("RUNNING", "RUNNING")
    first.tasks.tasks["shop-0"].tables = [table_report("items")]
    await first.call("PUT", "/connectors/shop/tables/items/pause")
    await first.worker.stop()
    second = Api(first.stores)
    await second.worker.start()
    await second.until("RUNNING", "RUNNING")
    assert second.tasks.tasks["shop-0"].paused_tables.keys() == {"items"}
    earlier, paused = second.tasks.tasks["shop-0"], second.worker.configs.state.paused_tables("shop")
    await second.call("DELETE", "/connectors/shop")
    assert second.worker.configs.state.paused_tables("shop") == {}
    await second.stores.configs.append([paused_tables_record("shop", paused)])
    await second.create()
    await eventually(lambda: second.tasks.tasks["shop-0"] is not earlier)
    await second.until("RUNNING", "RUNNING")
    assert second.tasks.tasks["shop-0"].paused_tables == {}
    await second.worker.stop()


async def test_a_paused_table_of_a_task_that_does_not_run(api: Api) -> None:
    """The status of the task has it, without an error."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    paused = TableStatus("items", TableState.PAUSED, "paused", 1_700_000_000.0, None, ("shop.items",))
    api.worker.statuses.put_tables("shop", 0, [paused])
    (items,) = (await api.call("GET", "/connectors/shop/tables")).json()
    assert (items["state"], items["topics"], "last_error" in items) == ("PAUSED", ["shop.items"], False)
    (task,) = (await api.status())["tasks"]
    assert (task["state"], [each["state"] for each in task["tables"]]) == ("RUNNING", ["PAUSED"])


@dataclass
class Spark:
    """The engine of a worker."""

    status: EngineStatus

    async def move(self, api: Api, state: EngineState, error: str = "") -> str | None:
        """Set the state, and return what the status of the task shows that it waits for."""
        self.status = EngineStatus(state, 0.0, error)
        expected = api.worker.waits_for
        await eventually(lambda: [seen.waits_for for _, seen in api.worker.statuses.tasks("shop")] == [expected])
        (task,) = (await api.status())["tasks"]
        waits_for: str | None = task.get("waits_for")
        return waits_for


async def test_what_waits_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks and tables with changes are RUNNING while Spark starts; their status shows that nothing is written yet."""
    monkeypatch.setattr(worker, "ENGINE_SECONDS", 0.01)
    spark = Spark(EngineStatus(EngineState.STARTING, 0.0))
    api = Api(engine=lambda: spark.status)
    await api.worker.start()
    await api.create()
    await api.until("RUNNING", "RUNNING")
    waiting = TableReport("items", TableState.RUNNING, ["shop.items"], 3, 400, time.time(), None, None, None)
    api.tasks.tasks["shop-0"].tables = [waiting, table_report("orders")]
    (task,) = (await api.status())["tasks"]
    assert (task["state"], task["waits_for"]) == ("RUNNING", "Spark, which is starting")
    for path in ("/connectors/shop/tables", "/tables"):
        tables = {each["table"]: each for each in (await api.call("GET", path)).json()}
        assert tables["items"]["waits_for"] == "Spark, which is starting"
        assert "waits_for" not in tables["orders"], "it has nothing to write"
    assert await spark.move(api, EngineState.RUNNING) is None
    (items, _) = (await api.call("GET", "/connectors/shop/tables")).json()
    assert "waits_for" not in items
    error = "Spark: its JVM has ended (137)\nits log"
    shown = "Spark, which does not run: Spark: its JVM has ended (137)"
    assert await spark.move(api, EngineState.FAILED, error) == shown
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED")
    assert "waits_for" not in (await api.status())["tasks"][0], "it does not write anyway"
    await api.worker.stop()
    assert api.worker.statuses.tasks("shop")[0][1].waits_for is None


async def test_a_task_that_starts_waits_for_spark() -> None:
    """Its status of an earlier run is replaced at once: the start may take as long as that of Spark."""
    api = Api(engine=lambda: EngineStatus(EngineState.STARTING, 0.0))
    await api.worker.start()
    api.tasks.slow = True
    await api.create()
    await api.until("RUNNING", "UNASSIGNED")
    assert (await api.status())["tasks"][0]["waits_for"] == "Spark, which is starting"
    await api.worker.stop()


async def test_a_task_with_a_failed_table_is_failed_for_consoles(api: Api) -> None:
    """By default; its trace names the tables and their causes, in the status and for alerts on Connect's metric."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    retrying = TableStatus("notes", TableState.RETRYING, "away", 1_700_000_000.0)
    api.worker.statuses.put_tables("shop", 0, [retrying])
    assert [task["state"] for task in (await api.status())["tasks"]] == ["RUNNING"], "a cause that passes"
    api.worker.statuses.put_tables("shop", 0, [failed_table("items"), retrying, failed_table("orders")])
    (task,) = (await api.status())["tasks"]
    assert (task["state"], [each["table"] for each in task["tables"]]) == ("FAILED", ["items", "notes", "orders"])
    assert task["trace"].startswith("Tables that have failed: items, orders.")
    assert task["trace"].splitlines()[1:] == [f"Caused by: table {name}: the cause" for name in ("items", "orders")]
    assert (await api.call("GET", "/connectors/shop/tasks/0/status")).json() == task
    expanded = (await api.call("GET", "/connectors?expand=status")).json()
    assert expanded["shop"]["status"]["tasks"] == [task]
    metrics = (await api.call("GET", "/metrics")).body
    assert b'kafka_connect_connector_task_status{connector="shop",status="failed",task="0"} 1.0' in metrics
    await api.call("PUT", "/connectors/shop/pause")
    await api.until("PAUSED", "PAUSED")
    assert [task["state"] for task in (await api.status())["tasks"]] == ["PAUSED"]
    await api.call("PUT", "/connectors/shop/resume")
    await api.until("RUNNING", "RUNNING")
    assert [task["state"] for task in (await api.status())["tasks"]] == ["FAILED"]
    api.worker.statuses.put_tables("shop", 0, [])
    assert [task["state"] for task in (await api.status())["tasks"]] == ["RUNNING"]


async def test_a_task_with_a_failed_table_may_show_that_it_runs(api: Api) -> None:
    """With ``errors.isolation.status=running``; the failed table is in the status of the task."""
    await api.create(**{"errors.isolation.status": "running"})
    await api.until("RUNNING", "RUNNING")
    api.worker.statuses.put_tables("shop", 0, [failed_table("items")])
    (task,) = (await api.status())["tasks"]
    assert (task["state"], "trace" in task, task["tables"][0]["state"]) == ("RUNNING", False, "FAILED")
    assert b'connector_task_status{connector="shop",status="running"' in (await api.call("GET", "/metrics")).body


async def test_the_table_of_a_failed_task_restarts_the_task(api: Api) -> None:
    """The last table of a task fails the task; a restart of the table restarts it."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.worker.statuses.put_tables("shop", 0, [failed_table("items")])
    first = api.tasks.tasks["shop-0"]
    first.fail(Fatal("the last table"))
    await api.until("RUNNING", "FAILED")
    assert (await api.call("POST", "/connectors/shop/tables/items/restart")).status == 204
    await api.until("RUNNING", "RUNNING")
    assert api.tasks.tasks["shop-0"] is not first
    api.tasks.tasks["shop-0"].fail(Fatal("again"))
    await api.until("RUNNING", "FAILED")
    assert (await api.call("POST", "/connectors/shop/tables/items/restart?missing=recreate")).status == 204
    seen = api.worker.statuses.task("shop", 0)
    assert seen is not None
    assert [status.recreate for status in seen.tables] == [True], "the next run of the task reads it"


async def test_the_tables_of_a_failed_task(api: Api) -> None:
    """A task that does not run has no reports. Its status shows which tables have failed, as the last one does."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    api.tasks.tasks["shop-0"].tables = [table_report("items", TableState.FAILED)]
    api.worker.statuses.put_tables("shop", 0, [failed_table("items"), failed_table("orders")])
    items, orders = (await api.call("GET", "/connectors/shop/tables")).json()
    assert ("last_error" in items, "last_error" in orders) == (False, True), "the report of a running task is newer"
    api.tasks.tasks["shop-0"].fail(Fatal("the last table"))
    await api.until("RUNNING", "FAILED")
    items, orders = (await api.call("GET", "/connectors/shop/tables")).json()
    assert (items["table"], items["state"], items["last_error"]["trace"]) == ("items", "FAILED", "the cause")
    assert (orders["table"], orders["state"], orders["freshness_seconds"]) == ("orders", "FAILED", None)


async def test_the_tables_of_all_connectors_and_workers_come_worst_first() -> None:
    """Failed, retried, then the least fresh; a worker asks the other one for the tables of its tasks."""
    now = time.time()
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        for name in ("shop", "bank"):
            await follower.create(name, **{"tasks.max": "2"})
        for name in ("shop", "bank"):
            await follower.until("RUNNING", "RUNNING", "RUNNING", name=name)
        tasks = {name: task for api in (leader, follower) for name, task in api.tasks.tasks.items()}
        assert len(leader.tasks.tasks) == len(follower.tasks.tasks) == 2
        tasks["bank-0"].tables = [table_report("fresh"), table_report("paused", TableState.PAUSED)]
        tasks["bank-1"].tables = [TableReport("old", TableState.RUNNING, [], 1, 9, now - 90, None, None, None)]
        tasks["shop-0"].tables = [TableReport("older", TableState.RUNNING, [], 1, 9, now - 99, None, None, None)]
        tasks["shop-1"].tables = [table_report("away", TableState.RETRYING), table_report("broken", TableState.FAILED)]
        answer = (await follower.call("GET", "/tables")).json()
        assert [(each["connector"], each["task"], each["table"]) for each in answer] == [
            ("shop", 1, "broken"),
            ("shop", 1, "away"),
            ("shop", 0, "older"),
            ("bank", 1, "old"),
            ("bank", 0, "fresh"),
            ("bank", 0, "paused"),
        ]
        own = (await follower.call("GET", "/tables?forward=false")).json()
        assert {f"{each['connector']}-{each['task']}" for each in own} == follower.tasks.tasks.keys()


async def test_workers_ask_each_other() -> None:
    """The follower reports the tables of its own task, and requests those of the leader's task over a connection."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        await follower.create(**{"tasks.max": "2"})
        await follower.until("RUNNING", "RUNNING", "RUNNING")
        for api in (leader, follower):
            for name, task in api.tasks.tasks.items():
                task.tables = [table_report(f"table_{name}")]
        assert len(leader.tasks.tasks) == len(follower.tasks.tasks) == 1
        answer = (await follower.call("GET", "/connectors/shop/tables")).json()
        assert [each["table"] for each in answer] == ["table_shop-0", "table_shop-1"]
        (theirs,) = leader.tasks.tasks
        path = f"/connectors/shop/tables/table_{theirs}"
        shown = (await follower.call("GET", path)).json()
        assert (shown["table"], shown["batches"]) == (f"table_{theirs}", []), "also the details"
        answer = await follower.call("GET", "/connectors/shop/tables/no")
        assert (answer.status, "has no table no" in answer.json()["message"]) == (404, True)
        assert (await follower.call("POST", f"{path}/restart")).status == 204
        assert leader.tasks.tasks[theirs].calls[-1] == f"restart table_{theirs}"
        assert (await follower.call("POST", "/connectors/shop/tables/no/restart")).status == 404
        assert (await follower.call("PUT", f"{path}/pause")).status == 202
        for api in (leader, follower):  # the task may move
            (task,) = api.tasks.tasks.values()
            await eventually(lambda task=task: task.paused_tables.keys() == {f"table_{theirs}"})
        assert (await follower.call("PUT", "/connectors/shop/tables/no/pause")).status == 404
