"""Tests of log lines as text and JSON, each with its connector and task."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from headrace.runtime.worker import log_format

log = logging.getLogger("headrace.test")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Capture the output of the root logger."""
    stream = io.StringIO()
    root, handler = logging.getLogger(), logging.StreamHandler(stream)
    kept, root.handlers = root.handlers, [handler]
    yield stream
    root.handlers = kept


async def _work() -> None:
    async def task() -> None:
        log_format.enter("shop", 0)
        log.error("in the %s", "task")
        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, log.error, "in its thread")

    async def connector() -> None:
        log_format.enter("shop")
        await asyncio.create_task(task())
        log.error("in the connector")

    log.error("before")
    await asyncio.create_task(connector())
    log.error("after")


def test_text_names_connector_and_task_as_connect_does(lines: io.StringIO) -> None:
    """Lines of coroutines and threads that a task starts contain its id. Lines of its caller do not."""
    log_format.use("text")
    asyncio.run(_work())
    shown = [line.partition(" ERROR ")[2] for line in lines.getvalue().splitlines()]
    assert shown == [
        "before (headrace.test)",
        "[shop|task-0] in the task (headrace.test)",
        "[shop|task-0] in its thread (headrace.test)",
        "[shop|worker] in the connector (headrace.test)",
        "after (headrace.test)",
    ]


def test_json_has_them_as_members(lines: io.StringIO) -> None:
    """Each line is one JSON object, also for messages with newlines. The option's value is case-insensitive."""
    log_format.use("JSON ")
    asyncio.run(_work())
    log.error('two\nlines with "quotes"')
    documents = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [(each.get("connector"), each.get("task")) for each in documents] == [
        (None, None),
        ("shop", 0),
        ("shop", 0),
        ("shop", None),
        (None, None),
        (None, None),
    ]
    assert documents[1].keys() == {"timestamp", "level", "logger", "message", "connector", "task"}
    assert (documents[1]["level"], documents[1]["logger"]) == ("ERROR", "headrace.test")
    assert documents[1]["timestamp"].endswith("Z")
    assert documents[-1]["message"] == 'two\nlines with "quotes"'


def test_an_exception_is_a_separate_member(lines: io.StringIO) -> None:
    """The member ``exception`` contains the traceback of a logged exception."""
    log_format.use("json")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    document = json.loads(lines.getvalue())
    assert document["message"] == "it failed"
    assert "ValueError: broken" in document["exception"]
