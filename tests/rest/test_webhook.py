"""``alerts.webhook.url``: what is posted, once, to a real server that may be away, refuse, or never answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.fix_asyncio import eventually, serving
from support.rest.worker_api import Api, failed_table, table_report

from headrace.config.worker_options import AlertSettings
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableReport
from headrace.core.model.proof import VerificationReport
from headrace.rest import webhook
from headrace.rest.webhook import AlertWebhook
from headrace_dev.server import free_ports

pytestmark = pytest.mark.anyio


@dataclass
class Receiver:
    """Answers each request with ``status``, or never if that is None."""

    status: int | None = 204
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    port: int = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.partition(":")[2]) for line in head.splitlines() if line.startswith("content-length"))
        body = json.loads(await reader.readexactly(length))
        self.requests.append((head, body))
        if self.status is None:
            await reader.read()  # until the client gives up
        else:
            writer.write(f"HTTP/1.1 {self.status} x\r\nContent-Length: 0\r\n\r\n".encode())

    def names(self, what: str) -> list[list[str]]:
        """The tables of each request that had ``begun`` or ``ended``."""
        return [[problem["table"] for problem in body[what]] for _, body in self.requests if body[what]]


@asynccontextmanager
async def listening(receiver: Receiver) -> AsyncIterator[Receiver]:
    async with serving(receiver.answer, receiver.port) as receiver.port:
        yield receiver


@asynccontextmanager
async def posting(api: Api, receiver: Receiver) -> AsyncIterator[AlertWebhook]:
    settings = AlertSettings(f"http://127.0.0.1:{receiver.port}/hook", "Bearer s3cr3t")
    posts = AlertWebhook(settings, api.worker, api.herder)
    posts.start()
    try:
        yield posts
    finally:
        await posts.stop()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for the pauses of production."""
    monkeypatch.setattr(webhook, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(webhook, "_LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(webhook, "_ANSWER_SECONDS", 5.0)


def failed(table: str) -> TableReport:
    return TableReport(table, TableState.FAILED, [f"shop.{table}"], 3, 400, None, None, None, failed_table(table))


async def test_a_failure_and_its_end_are_posted_once(api: Api) -> None:
    """With the cause, and with the header that the operator has set."""
    async with listening(Receiver()) as receiver, posting(api, receiver):
        task = api.tasks.tasks["shop-0"]
        task.tables = [failed("items"), table_report("orders")]
        await eventually(lambda: len(receiver.requests) == 1)
        head, body = receiver.requests[0]
        assert "post /hook" in head
        assert "authorization: bearer s3cr3t" in head
        [problem] = body["begun"]
        assert (problem["connector"], problem["table"], problem["state"]) == ("shop", "items", "FAILED")
        assert problem["cause"]
        assert (body["ended"], body["more"]) == ([], 0)
        task.tables = [table_report("items"), table_report("orders")]
        await eventually(lambda: receiver.names("ended") == [["items"]])
    assert receiver.names("begun") == [["items"]]


async def test_rows_that_differ_are_posted(api: Api) -> None:
    """The state of the table is no other one: the verification has found them."""
    report = VerificationReport(3600.0, "shop.items", differing=3, ended=1_700_000_000.0)
    async with listening(Receiver()) as receiver, posting(api, receiver):
        api.tasks.tasks["shop-0"].tables = [replace(table_report("items"), verification=report)]
        await eventually(lambda: receiver.names("begun") == [["items"]])
    [problem] = receiver.requests[0][1]["begun"]
    assert (problem["state"], problem["cause"]) == ("DIFFERENT", "3 row(s) differ from the source")


@pytest.mark.parametrize("status", [503, 302, None])
async def test_a_receiver_that_refuses_gets_what_is_wrong_then(
    api: Api, status: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again; what has ended meanwhile is posted no more."""
    if status is None:  # each request takes that long
        monkeypatch.setattr(webhook, "_ANSWER_SECONDS", 0.5)
    async with listening(Receiver(status)) as receiver, posting(api, receiver) as posts:
        task = api.tasks.tasks["shop-0"]
        task.tables = [failed("items")]
        await eventually(lambda: len(receiver.requests) >= 2)
        task.tables = [failed("orders")]
        await eventually(lambda: receiver.names("begun")[-1] == ["orders"])
        receiver.status = 200
        await eventually(lambda: len(posts._posted) == 1)
        task.tables = [table_report("orders")]
        await eventually(lambda: receiver.names("ended") == [["orders"]])


async def test_a_receiver_that_is_away_gets_it_when_it_is_back(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The log says why nothing arrives, without the secret."""
    receiver = Receiver(port=free_ports(1)[0])
    async with listening(receiver):
        pass
    async with posting(api, receiver):
        api.tasks.tasks["shop-0"].tables = [failed("items")]
        await eventually(lambda: "does not accept alerts" in caplog.text)
        async with listening(receiver):
            await eventually(lambda: receiver.names("begun") == [["items"]])
    assert "s3cr3t" not in caplog.text


async def test_an_unexpected_error_does_not_end_it(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What fails later is posted, and the stop of the worker raises nothing."""

    def fail() -> list[Any]:
        raise ValueError("unexpected")

    async with listening(Receiver()) as receiver, posting(api, receiver):
        with monkeypatch.context() as broken:
            broken.setattr(api.herder, "all_tables", fail)
            await eventually(lambda: "cannot be determined now" in caplog.text)
        api.tasks.tasks["shop-0"].tables = [failed("items")]
        await eventually(lambda: receiver.names("begun") == [["items"]])


async def test_without_an_address_nothing_runs(api: Api) -> None:
    posts = AlertWebhook(AlertSettings(), api.worker, api.herder)
    posts.start()
    await posts.stop()
    assert posts._running is None
