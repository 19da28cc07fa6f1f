"""What commands add to the timeline."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from io import StringIO
from typing import Any

from headrace.config import WorkerConfig
from headrace.core.connect.timeline import Kind, decode_event, is_timeline_key
from headrace_app.command_events import CommandEvents
from headrace_app.composition import status_topic
from headrace_dev.memory.stores import MemoryStores


def stored(stores: MemoryStores) -> dict[str, bytes | None]:
    """The records of the status log."""
    records: dict[str, bytes | None] = {}
    asyncio.run(stores.statuses.start(records.__setitem__))
    return records


def events() -> CommandEvents:
    """Two repaired tables, at the same time."""
    events = CommandEvents("shop", "headrace verify --repair")
    events.add(Kind.ROWS_REPAIRED, "3 row(s)", "orders")
    events.add(Kind.ROWS_REPAIRED, "1 row(s)", "items")
    return events


def test_each_repair_is_a_record_of_its_own() -> None:
    stores, err = MemoryStores(), StringIO()
    events().write(lambda: stores.statuses, err)
    records = stored(stores)
    assert all(map(is_timeline_key, records))
    documents: list[dict[str, Any]] = [json.loads(value or b"") for value in records.values()]
    assert [(event["table"], event["text"]) for event in documents] == [("orders", "3 row(s)"), ("items", "1 row(s)")]
    assert {event["connector"] for event in documents} == {"shop"}
    assert documents[0]["by"] == {"type": "command", "path": "headrace verify --repair"}
    assert [decode_event(value or b"").key for value in records.values()] == list(records)
    assert err.getvalue() == ""


def test_a_command_without_a_repair_does_not_open_the_topic() -> None:
    stores = MemoryStores()
    stores.statuses.outage = "no broker"
    err = StringIO()
    CommandEvents("shop", "headrace verify --repair").write(lambda: stores.statuses, err)
    assert err.getvalue() == ""


def test_a_failure_is_a_line() -> None:
    """The repair is done, so the command does not fail."""
    stores, err = MemoryStores(), StringIO()
    stores.statuses.outage = "topic status: this user may not write it"
    events().write(lambda: stores.statuses, err)
    assert err.getvalue() == (
        "timeline: does not contain what the command has changed: topic status: this user may not write it\n"
    )


def test_a_standalone_worker_has_no_topic() -> None:
    """Its timeline is in its memory, where no command reaches it."""
    err = StringIO()
    config = WorkerConfig({"bootstrap.servers": "127.0.0.1:9092"}, distributed=False)
    events().write(partial(status_topic, config), err)
    assert err.getvalue() == ""
