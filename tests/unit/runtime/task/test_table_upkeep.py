"""Upkeep of tables beside their writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.task.sink_task_harness import Harness, running

from headrace.core.model.errors import Fatal
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import TableOptions, UpkeepReport
from headrace.runtime.metrics.metrics import Metrics
from headrace_dev.memory import MemoryLakehouse

pytestmark = pytest.mark.anyio


class HangingLakehouse:
    """A lakehouse whose upkeep waits for ``released``, and then raises ``error``."""

    def __init__(self, lakehouse: MemoryLakehouse) -> None:
        self._lakehouse = lakehouse
        self.started = 0
        self.released = threading.Event()
        self.error: Exception | None = None
        self.notes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lakehouse, name)

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """Open a table."""
        return _HangingTable(self, self._lakehouse.table(namespace, name, options))


class _HangingTable:
    def __init__(self, owner: HangingLakehouse, table: Any) -> None:
        self._owner = owner
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def upkeep(self) -> UpkeepReport:
        """Return the notes."""
        return UpkeepReport(notes=self._owner.notes)

    def maintain(self, *_: Any) -> None:
        """Wait, then raise."""
        self._owner.started += 1
        assert self._owner.released.wait(30)
        if self._owner.error is not None:
            raise self._owner.error


@pytest.fixture
def hanging(harness: Harness) -> Iterator[HangingLakehouse]:
    """Replace the lakehouse of the harness."""
    lakehouse = HangingLakehouse(harness.lakehouse)
    harness.lakehouse = lakehouse  # type: ignore[assignment] - it delegates everything else
    yield lakehouse
    lakehouse.released.set()


async def test_a_table_is_written_during_its_upkeep(harness: Harness, hanging: HangingLakehouse) -> None:
    """Batches become durable while an upkeep takes long, and no second one of the table begins."""
    async with running(harness.task()) as task:
        for number in (1, 2, 3):
            harness.insert(number, number)
            await eventually(lambda number=number: harness.offset() == number)
        await eventually(lambda: hanging.started > 0)
        assert hanging.started == 1
        hanging.released.set()
        await eventually(lambda: not task._parts.upkeep._running)
        harness.insert(4, 4)
        await eventually(lambda: harness.offset() == 4)
        harness.insert(5, 5)
        await eventually(lambda: hanging.started > 1)


async def test_a_task_stops_during_an_upkeep(harness: Harness, hanging: HangingLakehouse) -> None:
    """Upkeep that runs does not delay the stop: its commit is safe beside the next owner's."""
    async with running(harness.task()):
        harness.insert(1, 1)
        await eventually(lambda: hanging.started == 1)
    assert not hanging.released.is_set()
    assert harness.offset() == 1


async def test_a_table_may_wait_for_its_upkeep(harness: Harness, hanging: HangingLakehouse) -> None:
    """With table.maintenance=inline the next batch is written afterwards."""
    async with running(harness.task(maintenance=Maintenance.INLINE)) as task:
        harness.insert(1, 1)
        await eventually(lambda: hanging.started == 1)
        harness.insert(2, 2)
        await eventually(lambda: [each.waiting_events for each in task.reports()] == [1])
        assert harness.offset() == 1
        hanging.released.set()
        await eventually(lambda: harness.offset() == 2)


@pytest.mark.parametrize("maintenance", [Maintenance.BACKGROUND, Maintenance.INLINE])
async def test_an_error_of_upkeep_fails_nothing(
    harness: Harness, hanging: HangingLakehouse, maintenance: Maintenance
) -> None:
    """Not even an error that would fail a table if a write raised it."""
    hanging.error = Fatal("Spark rejected the statement")
    hanging.released.set()
    async with running(harness.task(maintenance=maintenance, isolated=True)) as task:
        for number in (1, 2):
            harness.insert(number, number)
            await eventually(lambda number=number: harness.offset() == number)
        await eventually(lambda: hanging.started >= 1)
        assert list(task.tables()) == []
    assert not harness.failures


async def test_what_a_catalog_does_otherwise_is_in_the_status(harness: Harness, hanging: HangingLakehouse) -> None:
    """The notes of a table reach the status of the task."""
    hanging.notes = ("the catalog chose another version",)
    notes: list[tuple[str, str]] = []
    observer = Metrics().task("items", 0, lambda topic: None, lambda text, place: notes.append((text, place)))
    async with running(harness.task(observer=observer)):
        harness.insert(1, 1)
        await eventually(lambda: harness.offset() == 1)
        await eventually(lambda: notes)
    assert [text for text, _ in notes] == [*hanging.notes]
