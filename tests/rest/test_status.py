"""``headrace status`` against a worker's REST API over a real connection."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from support.rest.served import served
from support.rest.worker_api import Api, failed_table, table_report

from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableReport, TableStatus
from headrace.core.connect.table_activity import LastBatch
from headrace.core.model.errors import Fatal
from headrace_app.command import main

pytestmark = pytest.mark.anyio


@dataclass
class Command:
    """The command, with the worker that it asks."""

    api: Api
    url: str
    capsys: pytest.CaptureFixture[str]

    async def run(self, *options: str) -> tuple[int, str]:
        """Return exit status and both outputs."""
        status = await asyncio.to_thread(main, ["status", "--url", self.url, *options])
        printed = self.capsys.readouterr()
        return status, printed.out + printed.err


@pytest.fixture
async def command(capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Command]:
    """The command with a started worker."""
    api = Api()
    await api.worker.start()
    async with served(api.app) as url:
        yield Command(api, url, capsys)
    await api.worker.stop()


async def test_tables_come_worst_first_with_their_causes(command: Command) -> None:
    """A line for each table, then the first line of each cause; 1 is the exit status."""
    api = command.api
    for name in ("shop", "bank"):
        await api.create(name)
        await api.until("RUNNING", "RUNNING", name=name)
    batch = LastBatch(10, 2_000, 0.25, 1_700_000_001.0, 1_700_000_000.0)
    retried = TableStatus("notes", TableState.RETRYING, "the storage is away\n\tat write(x.py:1)\n", 1_700_000_000.0)
    api.tasks.tasks["bank-0"].tables = [
        TableReport("accounts", TableState.RUNNING, [], 7, 9, None, time.time() - 7_200, batch, None)
    ]
    api.tasks.tasks["shop-0"].tables = [
        table_report("orders"),
        TableReport("notes", TableState.RETRYING, [], 3, 9, None, None, None, retried),
        TableReport("items", TableState.FAILED, [], 0, 0, None, None, batch, failed_table("items")),
    ]
    api.worker.statuses.put_tables("shop", 0, [failed_table("items"), retried])
    status, printed = await command.run()
    assert printed.splitlines() == [
        "STATE     CONNECTOR  TASK  TABLE     BEHIND  WAITING  LAST COMMIT",
        "FAILED    shop       0     items     -       0        2023-11-14T22:13:21Z",
        "RETRYING  shop       0     notes     -       3        -",
        "RUNNING   bank       0     accounts  2 h     7        2023-11-14T22:13:21Z",
        "RUNNING   shop       0     orders    0.0 s   0        -",
        "",
        "connector shop, table items: FAILED since 2023-11-14T22:13:20Z: the cause",
        "connector shop, table notes: RETRYING since 2023-11-14T22:13:20Z: the storage is away",
    ]
    assert status == 1
    status, printed = await command.run("bank")
    assert (status, len(printed.splitlines())) == (0, 2)
    status, printed = await command.run("--json", "shop")
    document = json.loads(printed)
    assert (status, list(document["connectors"])) == (1, ["shop"])
    assert [each["table"] for each in document["tables"]] == ["items", "notes", "orders"]


async def test_failed_tasks_and_connectors_without_tables_have_lines(command: Command) -> None:
    """Neither has tables to show; a task that has failed is a failure."""
    api = command.api
    await api.create("new")
    await api.until("RUNNING", "RUNNING", name="new")
    assert await command.run() == (
        0,
        "STATE    CONNECTOR  TASK  TABLE  BEHIND  WAITING  LAST COMMIT\n"
        "RUNNING  new        -     -      -       -        -\n",
    )
    await api.create("shop")
    await api.until("RUNNING", "RUNNING")
    api.tasks.tasks["shop-0"].fail(Fatal("the group is unknown"))
    await api.until("RUNNING", "FAILED")
    status, printed = await command.run()
    lines = printed.splitlines()
    assert (status, [line.split()[:3] for line in lines[1:4]]) == (
        1,
        [["FAILED", "shop", "0"], ["RUNNING", "new", "-"], ["RUNNING", "shop", "-"]],
    )
    assert lines[5] == "task shop-0: FAILED: headrace.core.model.errors.Fatal: the group is unknown"


async def test_what_the_command_cannot_do(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown connector, a worker that does not answer, and a server that is no worker of Headrace are errors."""
    assert await command.run("nobody") == (
        2,
        f"headrace status: {command.url}: has no connector nobody; its connectors: none\n",
    )
    for answer, expected in ((200, "is not that of a worker of Headrace"), (404, "is a worker of Kafka Connect")):
        async with served(_elsewhere(answer)) as url:
            command.url = url
            status, printed = await command.run()
            assert (status, expected in printed) == (2, True)
    status, printed = await command.run()
    assert (status, "does not answer" in printed) == (2, True)
    with pytest.raises(SystemExit) as ended:
        main(["status", "--help"])
    assert ended.value.code == 0
    assert "exit status: 0 no connector, task or table has failed" in capsys.readouterr().out


def _elsewhere(tables: int) -> ASGIApp:
    """Answer ``GET /tables`` with this status, and every request with a list."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status = tables if scope["path"] == "/tables" else 200
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"[1]"})

    return answer
