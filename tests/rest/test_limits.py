"""No single request can block or crash a worker: requests are limited before they are stored."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress

import pytest
from support.rest.asgi import Answer, request
from support.rest.served import served
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.config_state import MAX_TASKS
from headrace.rest.transport import MAX_BODY_BYTES

pytestmark = pytest.mark.anyio
JSON = {"Content-Type": "application/json"}
VALIDATE = "/connector-plugins/LakehouseSink/config/validate"


async def _sent(api: Api, method: str, target: str, body: bytes) -> Answer:
    return await request(api.app, method, target, JSON, body)


async def _aborted(writer: asyncio.StreamWriter) -> None:
    """Wait for the end of a connection, whose transport would otherwise be open in a later test."""
    writer.transport.abort()
    with suppress(OSError):  # the worker has reset it
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("topics", "tasks"),
    [({"topics": "a,b,c"}, 3), ({"topics": "", "topics.regex": "a.*"}, MAX_TASKS)],
)
async def test_a_huge_number_of_tasks_is_bounded_before_it_is_stored(topics: dict[str, str], tasks: int) -> None:
    """The limit is the number of topics, since one task reads a topic, and a constant for a pattern."""
    api = Api()
    await api.worker.start()
    assert (await api.create(**{"tasks.max": "999999999", **topics})).status == 201
    await api.until("RUNNING", *["RUNNING"] * tasks)
    assert (await api.call("GET", "/connectors/shop/config")).json()["tasks.max"] == "999999999"
    stored = [key for key in api.stores.configs._storage.records if key.startswith("task-shop-")]
    assert len(stored) == tasks
    await api.worker.stop()


async def test_tasks_that_are_stored_in_excess_are_read_safely() -> None:
    """An older worker stored the connector and some of its tasks; this one writes one task per topic."""
    api = Api()
    properties = {**SHOP, "name": "shop", "tasks.max": "999999999"}
    record = json.dumps({"properties": properties}).encode()
    await api.stores.configs.start(lambda key, value: None)
    await api.stores.configs.lead()
    await api.stores.configs.append(
        [
            ("connector-shop", record),
            *((f"task-shop-{number}", record) for number in range(500)),
            ("commit-shop", b'{"tasks":500}'),
        ]
    )
    await api.worker.start()
    await api.until("RUNNING", *["RUNNING"] * 4)
    await api.worker.stop()


async def test_unreadable_records_do_not_end_the_worker() -> None:
    """Invalid records of other writers in the config and the status topic."""
    api = Api()
    await api.worker.start()
    deep = b"[" * 200_000
    wrong = [deep, b"[]", b"7", b'{"tasks":1e999}', b'{"properties":[1]}', b"\xff", b'{"state":[]}']
    keys = ("connector-x", "target-state-x", "task-x-0", "commit-x", "restart-connector-x", "logger-cluster-x")
    await api.stores.configs.append([(key, value) for key in keys for value in wrong])
    await api.stores.statuses.append(
        [
            (key, value)
            for key in ("status-connector-x", "status-task-x-0", "status-topic-x:connector-y")
            for value in wrong
        ]
    )
    assert (await api.create()).status == 201
    await api.until("RUNNING", "RUNNING")
    await api.worker.stop()


@pytest.mark.parametrize(
    ("method", "target"), [("POST", "/connectors"), ("PUT", VALIDATE), ("PUT", "/connectors/a/config")]
)
async def test_a_large_body_is_refused(method: str, target: str) -> None:
    """The worker returns 413 without parsing the body."""
    api = Api()
    await api.worker.start()
    answer = await _sent(api, method, target, b"{" + b" " * MAX_BODY_BYTES)
    assert (answer.status, answer.json()["error_code"]) == (413, 413)
    await api.worker.stop()


async def test_a_body_that_is_nested_deeply_is_refused() -> None:
    """The answer has a message, and Connect's status for bodies that it cannot parse."""
    api = Api()
    await api.worker.start()
    answer = await _sent(api, "POST", "/connectors", b"[" * 500_000)
    assert (answer.status, answer.json()["message"]) == (500, "The request body is nested too deeply")
    await api.worker.stop()


@pytest.mark.parametrize(
    "options",
    [
        {f"unknown.{number}": "" for number in range(20_000)},
        {"x" * 900_000: ""},
        {"topics": ",".join(f"t{number}" for number in range(100_000))},
        {"topics": "", "topics.regex": "(a+)+", "errors.deadletterqueue.topic.name": "a" * 60 + "!"},
        {"topics": "", "topics.regex": "(" * 100_000},
        {"reselect.columns.include.list": "(a+)+:b"},
        {"connector.class": "x" * 900_000},
    ],
    ids=lambda options: next(reversed(options))[:40],
)
async def test_a_validation_takes_seconds_at_most(options: dict[str, str]) -> None:
    """The worker answers nothing else during a validation, and its group membership depends on that."""
    api = Api()
    await api.worker.start()
    began = time.process_time()
    await api.call("PUT", VALIDATE, {**SHOP, "name": "shop", **options})
    assert time.process_time() - began < 10
    await api.worker.stop()


async def test_a_name_is_short_enough_for_a_path() -> None:
    """A connector with a longer name could not be deleted."""
    api = Api()
    await api.worker.start()
    assert (await api.create("ä" * 600)).status == 400
    assert (await api.create("ä" * 500)).status == 201
    async with served(api.app) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /connectors/{'%C3%A4' * 500} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        await _aborted(writer)
    await api.worker.stop()


async def test_the_head_of_a_request_is_bounded() -> None:
    """The HTTP server closes connections with many headers, a long query or a long path."""
    api = Api()
    await api.worker.start()
    heads = (
        b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1000) for number in range(1000)),
        b"X: " + b"x" * 1_000_000 + b"\r\n",
    )
    async with served(api.app) as url:
        port = int(url.rpartition(":")[2])
        for target, head in ((b"/", heads[0]), (b"/", heads[1]), (b"/?" + b"x" * 1_000_000, b"")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n" + head + b"\r\n")
            assert b" 200 " not in (await reader.readline())
            await _aborted(writer)
    await api.worker.stop()
