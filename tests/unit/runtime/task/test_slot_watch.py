"""Tests of the look at replication slots: what it reports, and when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import pytest
from support.fix_asyncio import eventually

from headrace.core.model.errors import Retriable
from headrace.ports import ReplicationSlot
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.observation import Observer
from headrace.runtime.task.slot_watch import watch_slots

ACTIVE = ReplicationSlot("db:5432/shop", "debezium", active=True, retained=10)
LABELS = {"connector": "shop", "database": "db:5432/shop", "slot": "debezium"}


class Reports(Observer):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.slots: list[Sequence[ReplicationSlot]] = []

    def on_slots(self, slots: Sequence[ReplicationSlot]) -> None:
        self.slots.append(slots)


@pytest.mark.anyio
async def test_a_database_that_does_not_answer_has_no_slots(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once, and its slots are reported again when it answers."""
    outages = [False, True, True]
    reports = Reports()

    def slots() -> Sequence[ReplicationSlot]:
        if outages and outages.pop(0):
            raise Retriable("down")
        return [ACTIVE]

    with caplog.at_level(logging.WARNING):
        watch = asyncio.create_task(watch_slots("shop", slots, reports, interval=0))
        await eventually(lambda: len(reports.slots) >= 4)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    assert reports.slots[:4] == [[ACTIVE], (), (), [ACTIVE]]
    assert [record.getMessage() for record in caplog.records] == [
        "shop: replication slots of its database are not known: down"
    ]


@pytest.mark.anyio
async def test_without_a_database_it_ends() -> None:
    """A connector without a database reports nothing."""
    reports = Reports()
    await watch_slots("shop", lambda: None, reports)
    assert reports.slots == []


def test_slots_are_metrics_of_the_connector() -> None:
    """They exist from the first report until the task has ended."""
    metrics = Metrics()
    task = metrics.task("shop", 0, lambda topic: None)

    def value(name: str) -> float | None:
        return metrics.complete().get_sample_value(f"headrace_source_slot_{name}", LABELS)

    assert value("active") is None
    task.on_slots([ACTIVE])
    assert (value("active"), value("retained_bytes")) == (1, 10)
    task.on_slots([ReplicationSlot("db:5432/shop", "debezium", active=False, retained=20)])
    assert (value("active"), value("retained_bytes")) == (0, 20)
    metrics._progress.end("shop", "0")
    assert value("active") is None
