"""Sends requests that were recorded from Kafka Connect 4.3.1 (distributed, one worker) and compares the answers.

The fixture has all requests of the recording, in order; they build on earlier ones and on what the tasks did
(``PROGRESS``, ``FAILURES``). ``DIFFERENT`` names every intended difference, with the reason. Texts of status 500 come
from Jackson or the JVM, so only the code is compared. GET bodies have no fixed order of keys, so bodies are compared as
JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from support.fix_asyncio import eventually
from support.rest.asgi import Answer, request
from support.rest.stand_in import FileStreamSinkConnector, StandInTasks, application

from headrace.config import WorkerConfig
from headrace.core.connect.status import TopicStatus
from headrace.core.model.errors import Fatal
from headrace.ports import TopicPartition
from headrace.runtime.worker.loggers import Loggers
from headrace.runtime.worker.worker import Worker
from headrace_dev.memory.stores import MemoryStores

FIXTURE = Path(__file__).parent.parent / "fixtures" / "connect-rest" / "transcript.jsonl"
WORKER = {
    "bootstrap.servers": "127.0.0.1:19092",
    "group.id": "ref-rest3",
    "config.storage.topic": "configs",
    "status.storage.topic": "status",
    "listeners": "http://127.0.0.1:18185",
}
_COMMIT = "our own commit, and no Kafka cluster behind the memory stores"
_NO_PAGES = "errors are JSON here, also those that Connect's server answers with an HTML page"
_PLUGINS = "the list names the connectors of this worker"
_NO_SOURCES = "source connectors do not exist here"
_ADDRESSABLE = "names that no path can address are refused when they are created"
_KEY_ORDER = "keys are named in the order in which they were given, not in that of a Java HashMap"
_CHOICES = "the closest class and the list of classes follow Connect's sentence"
_ONCE = "an error of two options is listed once, where Connect lists it for each"
DIFFERENT: dict[int, str] = {
    **dict.fromkeys((1, 7, 9), _COMMIT),
    **dict.fromkeys((17, 18), _NO_PAGES),
    20: "metrics are served",
    **dict.fromkeys((98, 99, 101, 122, 123), _PLUGINS),
    **dict.fromkeys((100, 253), _KEY_ORDER),
    **dict.fromkeys((110, 112, 113), _CHOICES),
    **dict.fromkeys((102, 103, 124, 234, 241), _ONCE),
    104: "Python's words about a regular expression",
    117: "client properties are checked by the feeds, which this worker has none of",
    120: "the message names the option in full, so that one sees which converter is meant",
    121: "the recorded worker had a file of secrets",
    139: "UTF-16 in the recording has been edited",
    148: "tasks are up at once; any answer is possible at this moment",
    **dict.fromkeys((254, 255, 256, 257), _NO_SOURCES),
    **dict.fromkeys((586, 596, 631, *range(611, 616)), _ADDRESSABLE),
    **dict.fromkeys((*range(587, 591), *range(597, 601), *range(632, 636), *range(657, 661)), _NO_PAGES),
    **dict.fromkeys(range(409, 414), _PLUGINS),
    **dict.fromkeys((421, 422, 458, *range(522, 526), *range(557, 579)), _NO_SOURCES),
    **dict.fromkeys((426, 427), "a null is never replaced by its column's default"),
    452: "client properties are listed as they are given, without Kafka's definitions of them",
    **dict.fromkeys((453, 454), "the file that the recorded worker's config provider read is not at hand"),
    456: "a null has a definition, too, so that clients need no special case",
    **dict.fromkeys((541, 692, 700, 701), "the list has none of those that are not made here"),
    **dict.fromkeys((693, 694, 695, 697, 699), _NO_PAGES),
    696: "dot segments are refused, whatever stands behind them",
    698: "a semicolon is a part of the name, not the beginning of a parameter",
    666: "Connect fails on its own Location header",
}


INCOMPARABLE = ("last_modified", "trace", "documentation", "recommended_values")
"""Members of which only counts whether they are null."""
FAILURES = {503: "f1", 507: "f2", 511: "f3", 515: "f4", 528: "f2", 530: "f2", 538: "f2", 553: "d4"}
"""The connector whose task had failed before a request."""
PROGRESS: dict[int, tuple[str, tuple[str, ...], int]] = {
    336: ("s1", ("snk-swap", "snk-in"), 10),
    340: ("s1", ("snk-in",), 11),
    403: ("s1", ("snk-in",), 11),
    548: ("d1", ("snk-dlqin",), 7),
    550: ("d2", ("snk-dlqin",), 7),
    552: ("d3", ("snk-dlqin",), 7),
    556: ("d5", ("snk-dlqin",), 7),
}
"""What a connector's task had done before a request: topics read from, and the offset committed of the last one."""


def _recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]


@pytest.mark.anyio
async def test_recorded_requests_get_the_recorded_answers() -> None:
    """Status, body, Location and Allow of every recorded request are equal, except for the named differences."""
    stores = MemoryStores()
    stores.groups.partitions = {"snk-in": 1}
    tasks = StandInTasks()
    loggers = Loggers(lambda: datetime.now(UTC), _connects_loggers())
    worker = Worker(
        WorkerConfig(WORKER),
        stores,
        tasks,
        ("127.0.0.1", 18185),
        loggers=loggers,
        connector_class=FileStreamSinkConnector,
    )
    await worker.start()
    app = application(worker)
    differences = []
    for recorded in _recorded():
        _progress(worker, stores, recorded["id"])
        await _failure(tasks, recorded["id"])
        answer = await _send(app, recorded)
        await _let_happen(worker)
        problem = _difference(recorded, answer)
        if (problem is not None) != (recorded["id"] in DIFFERENT):
            differences.append(f"{recorded['id']} {recorded['method']} {recorded['path']}: {problem}")
    await worker.stop()
    assert not differences, "\n".join(differences)


def _progress(worker: Worker, stores: MemoryStores, request: int) -> None:
    connector, topics, offset = PROGRESS.get(request, ("", (), 0))
    for topic in topics:
        worker.statuses.put_topic(TopicStatus(topic, connector, 0, 0))
        stores.groups.offsets[f"connect-{connector}"] = {TopicPartition(topic, 0): offset}


def _connects_loggers() -> logging.Manager:
    """The loggers of the recorded worker, beside Python's: root was set to WARN, two namespaces to INFO."""
    manager = logging.Manager(logging.RootLogger(logging.WARNING))
    manager.root.manager = manager
    listed = next(each for each in _recorded() if each["path"] == "/admin/loggers")
    for name, seen in json.loads(listed["response_body"]).items():
        if name != "root":
            manager.getLogger(name).setLevel(logging.NOTSET if seen["level"] == "WARN" else seen["level"])
    return manager


async def _send(app: FastAPI, recorded: dict[str, Any]) -> Answer:
    body = recorded["request_body"]
    encoded = b"" if body is None else body.encode("latin-1" if "\x00" in body or "ÿ" in body else "utf-8")
    return await request(app, recorded["method"], recorded["path"], recorded["request_headers"], encoded)


async def _let_happen(worker: Worker) -> None:
    """Run the event loop until requested changes have taken effect.

    They wait for no other process, but a new task may wait for the clock: between two rebalances the leader pauses in
    proportion to the tasks of the cluster, and a status lists only tasks that are assigned.
    """
    await _turns()
    await eventually(lambda: all(worker.cluster.owns(*task) for task in worker.configs.state.tasks()))
    await _turns()


async def _turns() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def _failure(tasks: StandInTasks, request: int) -> None:
    if request in FAILURES:
        tasks.tasks[f"{FAILURES[request]}-0"].fail(Fatal("a record that cannot be used"))
        await _turns()


def _difference(recorded: dict[str, Any], answer: Answer) -> str | None:
    if answer.status != recorded["status"]:
        return f"status {answer.status}, recorded {recorded['status']}: {answer.body[:300]!r}"
    for header, value in recorded.get("response_headers", {}).items():
        if answer.headers.get(header.lower()) != value:
            return f"{header} {answer.headers.get(header.lower())}, recorded {value}"
    if recorded["method"] == "HEAD":
        return None if not answer.body else "a body"
    return _body_difference(recorded["response_body"], answer)


def _body_difference(recorded: str, answer: Answer) -> str | None:
    if answer.status == 500:
        return None if answer.json()["error_code"] == 500 and answer.json()["message"] else "no message"
    try:
        wanted = json.loads(recorded)
    except ValueError:
        return None if recorded == answer.body.decode() else f"{answer.body[:300]!r}, recorded {recorded[:300]!r}"
    return (
        None
        if _comparable(wanted) == _comparable(answer.json())
        else f"{answer.body[:700]!r}, recorded {recorded[:700]!r}"
    )


def _comparable(body: Any) -> Any:
    """The body without values that may differ in any answer: times, Java's traces, Headrace's own texts and classes."""
    if isinstance(body, list):
        return [_comparable(entry) for entry in body]
    if not isinstance(body, dict):
        return body
    return {key: value is not None if key in INCOMPARABLE else _comparable(value) for key, value in body.items()}
