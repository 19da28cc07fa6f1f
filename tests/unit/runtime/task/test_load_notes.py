"""The progress of loads, from snapshot reads in a topic to reports, metrics and the note in the task's status."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import TOPIC, Harness, running

from headrace.core.connect.table_load import LoadProgress
from headrace.ports import TopicPartition
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.observation import Observer
from headrace.runtime.task import sink_task
from headrace.runtime.task.load_notes import INTERVAL_SECONDS, LOADS, LoadNotes
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker

TABLE = "shop_public_items"
PLACE = {"connector": "items", "task": "0", "table": TABLE}
BEGAN = 1_764_150_000.0  # 2025-11-26T09:40:00Z


class Noted(Observer):
    """Keeps every call."""

    def __init__(self) -> None:
        self.calls: list[Sequence[str]] = []

    def set_note(self, text: str, locations: Sequence[str]) -> None:
        assert text == LOADS
        self.calls.append(locations)


def _progress(rows: int, remaining: int, end: float | None) -> LoadProgress:
    return LoadProgress(rows, remaining, 10.0, BEGAN, end, None)


def test_a_note_has_the_progress_of_each_table_once_a_minute() -> None:
    """Short loads are not noted, because each change of a note is a record of the status topic."""
    observer = Noted()
    notes = LoadNotes("shop", observer)
    load = {"orders": _progress(1_200_000, 3_800_000, BEGAN + 7200), "items": _progress(5, 5, None)}
    notes.report(load, BEGAN + 30)
    assert observer.calls == [[]], "the note of an earlier run is removed"
    notes.report(load, BEGAN + INTERVAL_SECONDS)
    text = "orders: 1,200,000 of about 5,000,000 rows, until about 2025-11-26T11:40Z"
    assert observer.calls[1:] == [["items: 5 of about 10 rows", text]]
    load["orders"] = _progress(2_000_000, 3_000_000, BEGAN + 7200)
    notes.report(load, BEGAN + INTERVAL_SECONDS + 30)
    assert len(observer.calls) == 2
    notes.report(load, BEGAN + 2 * INTERVAL_SECONDS)
    assert len(observer.calls) == 3
    notes.report({}, BEGAN + 2 * INTERVAL_SECONDS + 1)
    notes.report({}, BEGAN + 5 * INTERVAL_SECONDS)
    assert observer.calls[3:] == [[]], "an end is reported at once, and once"


def test_a_note_of_many_tables_is_bounded() -> None:
    """The tables that take longest are listed, and the number of the others."""
    observer = Noted()
    load = {f"table{number:03}": _progress(1, 1, BEGAN + number) for number in range(500)}
    LoadNotes("shop", observer).report(load, BEGAN + INTERVAL_SECONDS)
    (subjects,) = observer.calls
    assert len(subjects) == 21
    assert subjects[0].startswith("table499: ")
    assert subjects[-1] == "and 480 more tables"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """A harness with one topic, whose task commits and reports at once."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.02)
    broker = MemoryBroker()
    with WorkerThreads.start(2) as threads:
        yield Harness(broker, MemoryLakehouse(), threads)


def _values(metrics: Metrics) -> Mapping[str, float | None]:
    names = ("rows", "remaining_records", "end_seconds")
    return {name: metrics.complete().get_sample_value(f"headrace_load_{name}", PLACE) for name in names}


@pytest.mark.anyio
async def test_progress_of_a_snapshot_in_reports_and_metrics(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and remaining records while the snapshot is loaded; its end when the table has what Kafka has."""
    await harness.broker.create_topic(TOPIC)
    metrics = Metrics()
    task = harness.task(observer=metrics.task("items", 0, lambda topic: None))
    more = {TopicPartition(TOPIC, 0): 4_000}
    lag = task._feed.lag
    monkeypatch.setattr(task._feed, "lag", lambda: more or lag())
    async with running(task):
        for number in range(3):
            harness.broker.append(TOPIC, change("r", {"id": number, "name": "a"}, number + 1), key({"id": number}))
        await eventually(lambda: _values(metrics)["rows"] == 3)
        (report,) = task.reports()
        load = report.load
        assert load is not None
        assert (load.rows, load.remaining, load.ended) == (3, 4_000, None)
        assert load.began <= time.time() < (load.estimated_end or 0)
        document = report.document(0, time.time())["load"]
        assert (document["rows"], document["remaining"], "estimated_end" in document) == (3, 4_000, True)
        assert _values(metrics)["remaining_records"] == 4_000
        more.clear()
        await eventually(lambda: _values(metrics) == dict.fromkeys(_values(metrics)))
        (report,) = task.reports()
        assert report.load is not None
        assert report.load.ended is not None
        assert {"rows": 3, "remaining": 0}.items() <= report.document(0, time.time())["load"].items()


@pytest.mark.anyio
async def test_changes_are_no_load(harness: Harness) -> None:
    """A table that no snapshot fills has no progress."""
    await harness.broker.create_topic(TOPIC)
    async with running(harness.task()) as task:
        harness.insert(1, 1)
        await eventually(lambda: harness.offset() == 1)
        assert [report.load for report in task.reports()] == [None]
        assert "load" not in task.reports()[0].document(0, time.time())
