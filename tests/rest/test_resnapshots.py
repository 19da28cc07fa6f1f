"""Resnapshots over REST: requested, followed, cancelled, refused, and continued by the next worker.

The source database, the lake and the signals are in memory, and a server answers as the source connector's worker.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.lake.lake_actions import SOURCE, TOPIC
from support.rest.asgi import request as send
from support.rest.secured import ANN, BOB, EVE, users
from support.rest.stand_in import resnapshots_of
from support.rest.worker_api import SHOP, Api, leader_and_follower
from support.servers.http_registry import Server
from support.sources.verify_world import CATALOG, SCHEMA

from headrace.config.rest_options import BASIC_AUTH_EXTENSION
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.resnapshots import ResnapshotProgress, ResnapshotState
from headrace.core.connect.status import TableReport, TableStatus
from headrace.core.model.errors import TableMissing
from headrace.ports import Signal, TopicPartition
from headrace.runtime.resnapshot import resnapshot_run, table_snapshot, worker_resnapshots
from headrace.runtime.verify import table_verifier
from headrace_dev.memory.row_source import MemoryRowSource
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
PATH = "/connectors/shop/tables/shop_public_item/resnapshot"
TABLE = "shop_public_item"
DEBEZIUM = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "database.dbname": "shop",
    "signal.data.collection": "public.signals",
    "incremental.snapshot.chunk.size": "10",
}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_resnapshots, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(table_snapshot, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(table_verifier, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(resnapshot_run, "_STORE_SECONDS", 0.0)
    monkeypatch.setattr(resnapshot_run, "_RETRY_SECONDS", 0.01)


class Debezium(Server):
    """The REST API of the source connector's worker."""

    def __init__(self) -> None:
        super().__init__()
        self.answers["/connectors/shop-source/config"] = 200, dict(DEBEZIUM)
        running = {"connector": {"state": "RUNNING"}, "tasks": [{"state": "RUNNING"}]}
        self.answers["/connectors/shop-source/status"] = 200, running
        self.reads()

    def reads(self, *tables: str, position: int = 100) -> None:
        """Let the committed offsets contain these tables."""
        collections = [{"incremental_snapshot_collections_id": name} for name in tables]
        offset = {"lsn": position, "incremental_snapshot_collections": json.dumps(collections)}
        offset["incremental_snapshot_total_rows"] = "40"
        partition = {"server": "shop"}
        document = {"offsets": [{"partition": partition, "offset": offset}]}
        self.answers["/connectors/shop-source/offsets"] = 200, document


@pytest.fixture
def debezium() -> Iterator[Debezium]:
    server = Debezium()
    yield server
    server.close()


@pytest.fixture
def source() -> MemoryRowSource:
    """A database with three rows, none of which is in the lake."""
    source = MemoryRowSource()
    source.add(CATALOG, SCHEMA, [{"id": key, "name": f"name {key}"} for key in range(3)])
    return source


def sink(debezium: Debezium) -> dict[str, str]:
    database = {"hostname": "127.0.0.1", "user": "headrace", "dbname": "shop"}
    return {
        "topics": f"{TOPIC},shop.public.orders",
        "source.connector.url": f"{debezium.url}/connectors/shop-source",
        **{f"reselect.database.{name}": value for name, value in database.items()},
    }


def report(state: TableState = TableState.RUNNING, error: TableStatus | None = None) -> TableReport:
    return TableReport(TABLE, state, [TOPIC], 0, 0, None, None, None, error)


@asynccontextmanager
async def running(source: MemoryRowSource, stores: MemoryStores | None = None) -> AsyncIterator[Api]:
    """A worker that runs resnapshots."""
    api = Api(stores, open_source=lambda database, options: source)
    api.stores.topics.offsets = {TopicPartition(TOPIC, 0): 5}
    api.stores.groups.offsets = {"connect-shop": {TopicPartition(TOPIC, 0): 5}}
    await api.worker.start()
    api.resnapshots.start()
    yield api
    await api.resnapshots.stop()
    await api.worker.stop()


@pytest.fixture
async def api(debezium: Debezium, source: MemoryRowSource) -> AsyncIterator[Api]:
    """A worker with a connector that names its source connector, and a task with the table."""
    async with running(source) as api:
        await api.create(**sink(debezium))
        await with_table(api)
        yield api


async def with_table(api: Api, *tables: TableReport) -> None:
    await api.until("RUNNING", "RUNNING")
    api.tasks.tasks["shop-0"].tables = list(tables) or [report()]


async def state(api: Api) -> dict[str, Any]:
    document: dict[str, Any] = (await api.call("GET", PATH)).json()
    return document


async def until(api: Api, wanted: ResnapshotState) -> dict[str, Any]:
    """Wait for a state, and return the document."""
    progress: list[ResnapshotProgress | None] = [None]

    def is_reached() -> bool:
        progress[0] = api.worker.statuses.resnapshot("shop", TABLE)
        return progress[0] is not None and progress[0].state is wanted

    try:
        await eventually(is_reached)
    except TimeoutError:
        pytest.fail(f"{progress[0]} is not {wanted}")
    return await state(api)


def sent(source: MemoryRowSource, type: str) -> Sequence[Signal]:
    return [signal for signal in source.signal_table("public.signals").sent if signal.type == type]


async def test_a_table_is_filled_again_and_compared(api: Api, source: MemoryRowSource) -> None:
    """The answer to the request is its document. What the snapshot does not bring, the comparison does."""
    answer = await api.call("POST", PATH)
    assert answer.status == 202
    expected = {"table": TABLE, "source_table": "public.item", "topic": TOPIC, "state": "WAITING"}
    assert expected.items() <= answer.json().items()
    document = await until(api, ResnapshotState.EQUAL)
    assert [document[f"{name}_rows"] for name in ("compared", "differing", "repaired")] == [3, 0, 3]
    [request] = sent(source, "execute-snapshot")
    assert request.data["data-collections"] == ["public.item"]
    assert [signal.request for signal in sent(source, "log")][-1] == request.id, "the request has ended"
    assert source.closed
    [event] = (await api.call("GET", "/connectors/shop/timeline?kind=RESNAPSHOT_ENDED")).json()
    assert (event["table"], event["text"]) == (TABLE, "EQUAL: 3 rows compared, 3 repaired, 0 differ")
    assert (await api.call("DELETE", PATH)).status == 404, "it has ended"
    assert (await api.call("POST", PATH)).status == 202, "another one may begin"
    await eventually(lambda: len(sent(source, "execute-snapshot")) == 2)
    await until(api, ResnapshotState.EQUAL)


async def test_the_progress_of_the_reads(api: Api, debezium: Debezium) -> None:
    """Rows and chunks of what Debezium expects; a second request is a conflict."""
    debezium.reads("public.item")
    await api.call("POST", PATH)
    await until(api, ResnapshotState.READING)
    await eventually(lambda: _total(api) == 40)
    document = await state(api)
    assert (document["step"], document["rows"], document["total_rows"]) == ("source reads", 0, 40)
    assert (document["chunks"], document["total_chunks"]) == (0, 4)
    answer = await api.call("POST", PATH)
    assert (answer.status, "DELETE cancels it" in answer.json()["message"]) == (409, True)
    debezium.reads()
    await until(api, ResnapshotState.EQUAL)


async def test_two_requests_at_the_same_time(api: Api) -> None:
    """One is accepted, and the other one is a conflict."""
    answers = await asyncio.gather(*(api.call("POST", PATH) for _ in range(2)))
    assert sorted(answer.status for answer in answers) == [202, 409]


def _total(api: Api) -> int:
    progress = api.worker.statuses.resnapshot("shop", TABLE)
    return 0 if progress is None else progress.total


async def test_a_resnapshot_is_cancelled(api: Api, source: MemoryRowSource, debezium: Debezium) -> None:
    """Debezium gets the signal that ends its reads, and the request is not continued."""
    debezium.reads(position=-1)
    await api.call("POST", PATH)
    await eventually(lambda: bool(sent(source, "execute-snapshot")))
    debezium.reads("public.item", position=-1)
    await until(api, ResnapshotState.READING)
    assert (await api.call("DELETE", PATH)).status == 202
    await until(api, ResnapshotState.CANCELLED)
    assert (await api.call("DELETE", PATH)).status == 202, "it may be repeated"
    [request] = sent(source, "execute-snapshot")
    assert [signal.request for signal in sent(source, "stop-snapshot")] == [request.id]
    debezium.reads()
    assert (await api.call("POST", PATH)).status == 202
    await until(api, ResnapshotState.EQUAL)


HOSTILE = "<script>alert(1)</script>'\"&"


async def test_the_page_of_the_table_shows_the_progress(api: Api) -> None:
    """The state, the progress and the result are live parts; what others have written stays text."""
    page = "/ui/connectors/shop/tables/shop_public_item"
    assert "<h2>Resnapshot</h2>" not in (await api.call("GET", page)).body.decode()
    request = await api.herder.request_resnapshot("shop", TABLE, f"public.{HOSTILE}", TOPIC)
    id = api.worker.configs.state.resnapshots("shop")[TABLE].id
    reading = ResnapshotProgress(id, ResnapshotState.READING, 0.0, HOSTILE, 2_000, 1_000, 10, 3, 60.0, HOSTILE)
    api.worker.statuses.put_resnapshot("shop", TABLE, reading)
    html = (await api.call("GET", page)).body.decode()
    assert request["state"] == "WAITING"
    assert '<p data-cancellable><span class="state reading">READING</span>' in html
    assert 'max="1000" value="1000"' in html
    assert "2,000 of about 1,000 rows in the lake table, chunk 200 of about 100; 3 records are to be applied" in html
    assert "alert(1)" in html
    assert "<script>" not in html
    ended = ResnapshotProgress(id, ResnapshotState.DIFFERS, 0.0, compared=5_000, differing=2, repaired=1, error=HOSTILE)
    api.worker.statuses.put_resnapshot("shop", TABLE, ended)
    html = (await api.call("GET", page)).body.decode()
    assert "5,000 rows compared: 2 differ, 1 were repaired" in html
    assert "<script>" not in html


async def test_only_an_operator_sees_the_buttons(tmp_path: Path) -> None:
    """And the requests of a reader are refused."""
    api = Api(**{"rest.extension.classes": BASIC_AUTH_EXTENSION, **users(tmp_path)})
    await api.worker.start()
    body = json.dumps({"name": "shop", "config": SHOP}).encode()
    await send(api.app, "POST", "/connectors", {**ANN, "Content-Type": "application/json"}, body)
    await with_table(api)
    for header, buttons in ((EVE, 0), (BOB, 2)):
        html = (await send(api.app, "GET", f"/ui/connectors/shop/tables/{TABLE}", header)).body.decode()
        assert (
            len(re.findall(r'<button id="(?:cancel-)?resnapshot" hx-(?:post|delete)="[./]+connectors/', html))
            == buttons
        )
    assert (await send(api.app, "GET", PATH, EVE)).status == 404, "a reader may look"
    for method in ("POST", "DELETE"):
        assert (await send(api.app, method, PATH, EVE)).status == 403
        assert (await send(api.app, method, PATH, BOB)).status in (400, 404)
    await api.worker.stop()


async def test_a_restart_continues_the_request(source: MemoryRowSource, debezium: Debezium) -> None:
    """The next worker follows the same signal, also if the reads have ended while no worker ran."""
    async with running(source) as first:
        await first.create(**sink(debezium))
        await with_table(first)
        debezium.reads(position=-1)
        await first.call("POST", PATH)
        await eventually(lambda: len(sent(source, "execute-snapshot")) == 1)
        debezium.reads("public.item", position=-1)
        await eventually(lambda: _is_read(first))
        before = await state(first)
    debezium.reads(position=-1)
    async with running(source, first.stores) as second:
        await with_table(second)
        document = await until(second, ResnapshotState.EQUAL)
    assert before["state"] == "READING"
    assert document["requested"] == before["requested"]
    assert len(sent(source, "execute-snapshot")) == 1


def _is_read(api: Api) -> bool:
    progress = api.worker.statuses.resnapshot("shop", TABLE)
    return progress is not None and progress.is_read


async def test_a_paused_connector_makes_it_wait(api: Api, debezium: Debezium) -> None:
    """No task applies the rows. It continues when the connector does."""
    debezium.reads("public.item")
    await api.call("POST", PATH)
    await until(api, ResnapshotState.READING)
    await api.call("PUT", "/connectors/shop/pause")
    await eventually(lambda: "running task" in _waits_for(api))
    debezium.reads()
    await api.call("PUT", "/connectors/shop/resume")
    await until(api, ResnapshotState.EQUAL)


def _waits_for(api: Api) -> str:
    progress = api.worker.statuses.resnapshot("shop", TABLE)
    return "" if progress is None else progress.waits_for


async def test_a_lost_table_is_restarted_and_another_failure_is_reported(api: Api) -> None:
    """The error is its first line, with the way out; it contains no trace."""
    task = api.tasks.tasks["shop-0"]
    trace = f"{TableMissing.__module__}.TableMissing: lake.headrace.{TABLE}: does not exist\n\tat x"
    task.tables = [report(TableState.FAILED, TableStatus(TABLE, TableState.FAILED, trace, 0.0))]
    await api.call("POST", PATH)
    await until(api, ResnapshotState.EQUAL)
    assert f"restart {TABLE} as it is" in task.calls
    trace = "headrace.core.model.errors.Fatal: the type of a column changed\n\tat x"
    task.tables = [report(TableState.FAILED, TableStatus(TABLE, TableState.FAILED, trace, 0.0))]
    await api.call("POST", PATH)
    document = await until(api, ResnapshotState.FAILED)
    assert "the type of a column changed; remove the cause" in document["error"]
    assert "\n" not in document["error"]


async def test_a_source_connector_that_answers_again_is_waited_for(api: Api, debezium: Debezium) -> None:
    """An outage delays the resnapshot, and is shown."""
    good = debezium.answers["/connectors/shop-source/offsets"]
    debezium.answers["/connectors/shop-source/offsets"] = 500, {"message": "the broker is down"}
    await api.call("POST", PATH)
    await eventually(lambda: "the broker is down" in _waits_for(api))
    debezium.answers["/connectors/shop-source/offsets"] = good
    assert "waits_for" not in await until(api, ResnapshotState.EQUAL)


async def test_an_added_table_is_named_by_the_request(api: Api, source: MemoryRowSource) -> None:
    """No task has read its topic: the first task's worker sends the signal."""
    api.tasks.tasks["shop-0"].tables = []
    api.stores.topics.offsets = {}
    answer = await api.call("POST", PATH, {"source.table": "public.item"})
    assert (answer.status, answer.json()["topic"]) == (202, TOPIC)
    document = await until(api, ResnapshotState.FAILED)
    assert "either public.item is empty" in document["error"]
    assert len(sent(source, "execute-snapshot")) == 1


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"table": "public.item"}, 400, "'table' is unknown; the body may have source.table and topic"),
        ({"topic": TOPIC}, 400, "source.table, which is missing"),
        ({"source.table": "item"}, 400, "item: is not SCHEMA.TABLE"),
        ({"source.table": "public.nothing", "topic": TOPIC}, 400, "the source database has no such table"),
        ({"source.table": "public.item", "topic": "shop.public.orders"}, 400, "its lake table is shop_public_orders"),
        ({"source.table": "public.item", "topic": "other"}, 400, "does not read topic other"),
    ],
)
async def test_a_wrong_request_is_refused(api: Api, body: dict[str, str], status: int, text: str) -> None:
    """Nothing is stored, and the message contains what to do."""
    answer = await api.call("POST", PATH, body)
    assert (answer.status, text in answer.json()["message"]) == (status, True), answer.json()
    assert (await api.call("GET", PATH)).status == 404


async def test_a_source_connector_without_signals_is_refused(api: Api, debezium: Debezium) -> None:
    """As by doctor, before anything is stored. One that does not answer is 503, for a later attempt."""
    config = {key: value for key, value in DEBEZIUM.items() if not key.startswith("signal.")}
    debezium.answers["/connectors/shop-source/config"] = 200, config
    answer = await api.call("POST", PATH)
    assert (answer.status, "signal.data.collection is not set" in answer.json()["message"]) == (400, True)
    debezium.answers["/connectors/shop-source/config"] = 404, {"message": "Connector shop-source not found"}
    answer = await api.call("POST", PATH)
    assert (answer.status, "check source.connector.url" in answer.json()["message"]) == (400, True)
    debezium.answers["/connectors/shop-source/config"] = 500, {"message": "no leader"}
    assert (await api.call("POST", PATH)).status == 503


async def test_the_source_connector_is_an_option_of_the_connector(api: Api) -> None:
    """A request cannot name an address."""
    await api.create("other")
    await api.until("RUNNING", "RUNNING", name="other")
    api.tasks.tasks["other-0"].tables = [report()]
    answer = await api.call("POST", "/connectors/other/tables/shop_public_item/resnapshot")
    assert (answer.status, "source.connector.url: is not set" in answer.json()["message"]) == (400, True)
    for method in ("GET", "DELETE"):
        answer = await api.call(method, "/connectors/other/tables/shop_public_item/resnapshot")
        assert (answer.status, "POST /connectors/other/tables" in answer.json()["message"]) == (404, True)
        assert (await api.call(method, "/connectors/nobody/tables/x/resnapshot")).status == 404
    assert (await api.call("POST", "/connectors/other/tables/x/resnapshot")).status == 404


async def test_a_removed_connector_leaves_no_resnapshot(api: Api, debezium: Debezium) -> None:
    """A connector that is created again under its name begins without one."""
    await api.call("POST", PATH)
    await until(api, ResnapshotState.EQUAL)
    await api.call("DELETE", "/connectors/shop")
    await eventually(lambda: api.worker.statuses.resnapshot("shop", TABLE) is None)
    await api.create(**sink(debezium))
    assert (await api.call("GET", PATH)).status == 404


async def test_the_worker_of_the_table_runs_it(source: MemoryRowSource, debezium: Debezium) -> None:
    """Any worker accepts the request and shows the progress; only the one whose task reads the topic sends signals."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        for worker in (leader, follower):
            worker.resnapshots = resnapshots_of(worker.worker, lambda database, options: source, worker.signals)
            worker.stores.topics.offsets = {TopicPartition(TOPIC, 0): 5}
            worker.stores.groups.offsets = {"connect-shop": {TopicPartition(TOPIC, 0): 5}}
        await leader.create(**sink(debezium), **{"tasks.max": "2"})
        await eventually(lambda: len(leader.tasks.tasks) == len(follower.tasks.tasks) == 1)
        await follower.until("RUNNING", "RUNNING", "RUNNING")
        [task] = follower.tasks.tasks.values()
        task.tables = [report()]
        await leader.herder.request_resnapshot("shop", TABLE, "public.item", TOPIC)
        leader.resnapshots.start()
        await leader.resnapshots._look()
        assert not leader.resnapshots._running
        follower.resnapshots.start()
        await until(leader, ResnapshotState.EQUAL)
        assert (await state(follower))["state"] == "EQUAL"
        await leader.resnapshots.stop()
        await follower.resnapshots.stop()
    assert len(sent(source, "execute-snapshot")) == 1
    assert SOURCE.table == "item"
