"""A task counts events that miss the freshness target, and notes tables while the worker or an option is the cause."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import TOPIC, Harness, running

from headrace.ports import TableOptions
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.observation import Observer
from headrace.runtime.task import sink_task
from headrace.runtime.task.freshness_notes import LASTING_SECONDS, Cause, FreshnessNotes
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker

pytestmark = pytest.mark.anyio

TABLE = "shop_public_items"
OVERLOAD, BOUND = Cause.OVERLOAD.value, Cause.COMMITS_PER_HOUR.value


class Noted(Observer):
    """Keeps the notes that apply, and every call."""

    def __init__(self) -> None:
        self.notes: dict[str, Sequence[str]] = {}
        self.calls: list[tuple[str, Sequence[str]]] = []

    def set_note(self, text: str, locations: Sequence[str]) -> None:
        self.notes[text] = locations
        self.calls.append((text, locations))


async def test_a_note_lists_the_rate_and_the_tables_until_they_are_in_time(caplog: pytest.LogCaptureFixture) -> None:
    """A note changes once a minute, and is removed a minute after the last miss."""
    caplog.set_level(logging.INFO)
    observer, rates = Noted(), [1234.0, 5678.0]
    notes = FreshnessNotes("shop", observer, lambda: rates[0])
    notes.report(100.0)
    assert observer.notes == {OVERLOAD: (), BOUND: ()}, "those of an earlier run are removed"
    notes.on_miss("orders", Cause.OVERLOAD, 101.0)
    notes.report(105.0)
    assert observer.notes[OVERLOAD] == ["1,200 events/s", "orders"]
    rates.pop(0)
    notes.on_miss("items", Cause.OVERLOAD, 130.0)
    notes.report(135.0)
    assert len(observer.calls) == 3, "a minute has not passed"
    notes.report(105.0 + LASTING_SECONDS)
    assert observer.notes[OVERLOAD] == ["5,700 events/s", "items"]
    notes.report(130.0 + LASTING_SECONDS)
    assert observer.notes == {OVERLOAD: (), BOUND: ()}
    rates[0] = 0.0
    notes.on_miss("orders", Cause.OVERLOAD, 300.0)
    notes.report(300.0)
    assert observer.notes[OVERLOAD] == ["orders"], "what the worker sustains is unknown"
    notes.report(300.0 + LASTING_SECONDS)
    notes.report(500.0)
    assert len(observer.calls) == 7
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"] * 2


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """A harness with one topic, whose task reports at once."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.02)
    broker = MemoryBroker()
    with WorkerThreads.start(2) as threads:
        yield Harness(broker, MemoryLakehouse(), threads)


def missed(metrics: Metrics) -> float | None:
    """The value of the counter."""
    labels = {"connector": "items", "task": "0", "table": TABLE}
    return metrics.complete().get_sample_value("headrace_freshness_target_missed_total", labels)


async def test_events_that_arrive_late_are_counted_and_not_noted(harness: Harness) -> None:
    """Each event counts by its own source time. The worker is not the cause if it commits an old event at once."""
    notes: dict[str, Sequence[str]] = {}
    metrics = Metrics()
    observer = metrics.task("items", 0, lambda topic: None, set_note=notes.__setitem__)
    await harness.broker.create_topic(TOPIC)
    async with running(harness.task(observer=observer)):
        harness.broker.append(TOPIC, change("c", {"id": 1}, 10, ts_ms=int(time.time() * 1000)), key({"id": 1}))
        await eventually(lambda: harness.offset() == 1)
        assert missed(metrics) == 0
        harness.insert(2, 20)  # of 2023
        await eventually(lambda: harness.offset() == 2)
        assert missed(metrics) == 1
        await eventually(lambda: OVERLOAD in notes)
        assert (notes[OVERLOAD], notes[BOUND]) == ((), ())


async def test_events_that_wait_for_the_worker_are_noted(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose commit takes longer than its target is in a note with the rate of the worker."""
    go, observer = Event(), Noted()
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    merge = table.merge

    def slow(self: Any, *args: Any, **kwargs: Any) -> Any:
        go.wait(60)
        return merge(self, *args, **kwargs)

    monkeypatch.setattr(table, "merge", slow)
    await harness.broker.create_topic(TOPIC)
    async with running(harness.task(observer=observer, freshness=1.0)) as task:
        go.set()
        harness.insert(0, 0)
        await eventually(lambda: harness.offset() == 1)
        go.clear()
        harness.insert(1, 10)
        await eventually(lambda: (report := task.reports()) != [] and report[0].oldest is not None)
        late = task.reports()[0].oldest or 0.0
        await eventually(lambda: time.time() > late + 1.0)
        go.set()
        await eventually(lambda: len(observer.notes.get(OVERLOAD, ())) == 2)
        assert observer.notes[OVERLOAD][1] == TABLE
        assert observer.notes[OVERLOAD][0].endswith(" events/s")


async def test_commits_per_hour_outranks_the_target(harness: Harness) -> None:
    """The second batch of a table waits until its interval has passed, and the status says why it is late."""
    observer = Noted()
    await harness.broker.create_topic(TOPIC)
    async with running(harness.task(observer=observer, commits_per_hour=3_600)) as task:  # each second
        began = time.monotonic()
        harness.insert(1, 10)
        await eventually(lambda: harness.offset() == 1)
        harness.insert(2, 20)
        await eventually(lambda: harness.offset() == 2)
        assert time.monotonic() - began >= 1.0
        await eventually(lambda: observer.notes.get(BOUND) == [TABLE])
        assert observer.notes.get(OVERLOAD, ()) == ()
        assert task.waiting(TABLE) == 0


async def test_a_pause_does_not_wait_for_commits_per_hour(harness: Harness) -> None:
    """A pause writes what was read although the table has had its commit of this hour."""
    await harness.broker.create_topic(TOPIC)
    async with running(harness.task(commits_per_hour=1)) as task:
        harness.insert(1, 10)
        await eventually(lambda: harness.offset() == 1)
        harness.insert(2, 20)
        await eventually(lambda: task.waiting(TABLE) == 1)
        await task.pause()
        assert harness.offset() == 2
        await task.resume()
        harness.insert(3, 30)
        await eventually(lambda: task.waiting(TABLE) == 1)
        assert harness.offset() == 2
