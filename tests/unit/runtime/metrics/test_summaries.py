"""The line that the log has per connector and minute."""

from __future__ import annotations

import asyncio
import logging

import pytest
from support.clock import Clocks
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import TOPIC, Harness, running

from headrace.core.batch.batch import Batch, Trigger, Unwritten
from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.status import TableStatus
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.runtime.metrics import summaries
from headrace.runtime.metrics.metrics import Metrics, TaskMetrics
from headrace.runtime.metrics.summaries import ConnectorSummary, SummaryLog
from headrace.runtime.worker.log_format import TextFormatter

IDLE = "Connector shop: is idle: nothing was read or written in the last minute (logged once)"


class Scene:
    """The metrics of a worker with a running connector, and the lines of its log."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, summaries.__name__)
        self._caplog = caplog
        self.time = Clocks()
        self.metrics = Metrics(self.time.monotonic, self.time.wall)
        self.task = self.run(0)
        self.log = SummaryLog(self.metrics.summaries)

    def run(self, number: int) -> TaskMetrics:
        task = self.metrics.task("shop", number, lambda topic: None)
        self.metrics.on_task_state("shop", number, State.RUNNING)
        task.on_assignment([])
        return task

    def written(self, task: TaskMetrics, behind: float, table: str = "orders") -> None:
        """Report a batch of one event that was committed at the source ``behind`` seconds ago."""
        source_time = int((self.time.wall() - behind) * 1_000_000)
        content = Truncate(TableId("shop", "shop", "public", table), RowVersion(b"", table, 0, 1, source_time))
        task.on_batch_durable(Batch(1, table, content, {}, Trigger.AGE, 0.0, ()), 0.5, self.time.wall())

    def minute(self) -> list[tuple[str, str]]:
        """Return level and text of the lines of the next minute."""
        self.time.seconds += 60
        self._caplog.clear()
        self.log.log()
        return [(record.levelname, record.getMessage()) for record in self._caplog.records]


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    """Return a worker with one running task."""
    return Scene(caplog)


def test_batches_events_and_seconds_behind(scene: Scene) -> None:
    """The counts are those since the last line, of all tasks; the table that is most behind is named."""
    other = scene.run(1)
    scene.written(scene.task, 2.0)
    scene.written(other, 7.5, "items")
    text = "Connector shop: 2 batch(es) with 2 event(s) committed in the last minute; 7.5 s behind (table items)"
    assert scene.minute() == [("INFO", text)]
    scene.written(scene.task, 1.0)
    text = "Connector shop: 1 batch(es) with 1 event(s) committed in the last minute; 1.0 s behind (table orders)"
    assert scene.minute() == [("INFO", text)]


def test_an_event_that_waits(scene: Scene) -> None:
    """A connector that writes nothing, as while Spark starts, shows how old its oldest event is."""
    oldest = {"orders": Unwritten(scene.time.seconds, int(scene.time.wall() * 1_000_000))}
    scene.task.watch_unwritten(lambda: oldest)
    text = "Connector shop: 0 batch(es) with 0 event(s) committed in the last minute; 60.0 s behind (table orders)"
    assert scene.minute() == [("INFO", text)]


def test_an_idle_connector_is_logged_once(scene: Scene) -> None:
    """It is logged again after it has written something; a paused connector is not logged."""
    assert [scene.minute() for _ in range(3)] == [[("INFO", IDLE)], [], []]
    scene.written(scene.task, 1.0)
    assert len(scene.minute()) == 1
    assert scene.minute() == [("INFO", IDLE)]
    scene.metrics.on_task_state("shop", 0, State.PAUSED)
    scene.written(scene.task, 1.0)
    assert scene.minute() == []


def test_failures_are_repeated_every_minute(scene: Scene) -> None:
    """As warnings, with tasks and tables; a failed table counts as neither current nor behind."""
    scene.written(scene.task, 2.0)
    scene.minute()
    blocked = [
        TableStatus("orders", TableState.FAILED, "the cause", 0.0),
        TableStatus("items", TableState.RETRYING, "the cause", 0.0),
    ]
    scene.task.on_blocked_tables(blocked)
    text = "Connector shop: 0 batch(es) with 0 event(s) committed in the last minute"
    tables = "1 table(s) FAILED: orders; 1 table(s) RETRYING: items"
    assert [scene.minute() for _ in range(2)] == [[("WARNING", f"{text}; {tables}")]] * 2
    scene.metrics.on_task_state("shop", 0, State.FAILED)
    assert scene.minute() == [("WARNING", f"{text}; 1 task(s) FAILED: shop-0")]


def test_the_names_of_many_failed_tables_are_cut() -> None:
    """A line stays readable; the status has all names."""
    text = ConnectorSummary("shop", failed_tables=[f"t{number}" for number in range(7)]).text()
    assert text.endswith("; 7 table(s) FAILED: t0, t1, t2, t3, t4, ...")


def test_a_deleted_connector_is_not_logged(scene: Scene) -> None:
    """Nor one whose tasks have moved to another worker."""
    scene.written(scene.task, 1.0)
    scene.metrics.on_task_state("shop", 0, State.DESTROYED)
    assert scene.minute() == []


def test_the_caller_keeps_its_context(scene: Scene) -> None:
    """The lines name their connectors; later lines of the caller do not."""
    scene.written(scene.task, 1.0)
    assert len(scene.minute()) == 1
    record = logging.LogRecord("headrace", logging.INFO, __file__, 1, "later", None, None)
    assert "shop" not in TextFormatter("%(context)s%(message)s").format(record)


@pytest.mark.anyio
async def test_lines_come_by_themselves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the worker stops."""
    monkeypatch.setattr(summaries, "INTERVAL_SECONDS", 0.0)
    calls: list[None] = []
    regular = SummaryLog(lambda: calls.append(None) or [])  # type: ignore[func-returns-value]
    regular.start()
    await eventually(lambda: len(calls) > 2)
    await regular.stop()
    ended = len(calls)
    for _ in range(3):
        await asyncio.sleep(0)
    assert len(calls) == ended


@pytest.mark.anyio
async def test_the_start_of_a_table_is_logged(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    """Its creation, and the first batch of each run of the task; later batches are in the summary only."""
    caplog.set_level(logging.INFO, "headrace.runtime")
    metrics = Metrics()
    created = "Table lake.shop_public_items: created with 2 column(s); key: id"
    first = "items: table shop_public_items: the first batch of this run is committed: 1 event(s), written in"
    async with running(harness.task(observer=metrics.task("items", 0, lambda topic: None))):
        for number in (1, 2):
            harness.insert(number, number)
            await eventually(lambda number=number: harness.offset() == number)
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count(created) == 1
    assert sum(line.startswith(first) for line in lines) == 1
    caplog.clear()
    async with running(harness.task(observer=metrics.task("items", 0, lambda topic: None))):
        harness.broker.append(TOPIC, change("c", {"id": 3, "name": "new"}, 3), key({"id": 3}))
        await eventually(lambda: harness.offset() == 3)
    lines = [record.getMessage() for record in caplog.records]
    assert created not in lines
    assert sum(line.startswith(first) for line in lines) == 1
    metrics.on_task_state("items", 0, State.RUNNING)
    (summary,) = metrics.summaries()
    assert (summary.batches, summary.events, summary.is_idle) == (3, 3, False)
