"""Batches that end Spark for lack of memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.task.sink_task_harness import Harness, running

from headrace.core.model.actions import Actions
from headrace.core.model.errors import EngineFailed, EngineOutOfMemory
from headrace.ports import Commit, MergeCounts, TableOptions
from headrace.runtime.task import table_lane
from headrace_dev.memory import MemoryLakehouse

pytestmark = pytest.mark.anyio


class SmallLakehouse:
    """A lakehouse whose merges raise ``error`` for more rows than ``limit``."""

    def __init__(self, lakehouse: MemoryLakehouse, error: type[Exception]) -> None:
        self._lakehouse = lakehouse
        self._error = error
        self.limit = 3
        self.refused: list[int] = []
        self.merged: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lakehouse, name)

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """Open a table."""
        table: Any = self._lakehouse.table(namespace, name, options)
        merge = table.merge

        def limited(actions: Actions, commit: Commit) -> MergeCounts:
            (self.merged if len(actions) <= self.limit else self.refused).append(len(actions))
            if len(actions) > self.limit:
                raise self._error("items: Spark's JVM has ended: it ran out of memory")
            counts: MergeCounts = merge(actions, commit)
            return counts

        table.merge = limited
        return table


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat writes at once."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)


def small(harness: Harness, error: type[Exception]) -> SmallLakehouse:
    """Replace the lakehouse of the harness, and append a batch of twenty rows."""
    lakehouse = SmallLakehouse(harness.lakehouse, error)
    harness.lakehouse = lakehouse  # type: ignore[assignment] - it delegates everything else
    for number in range(1, 21):
        harness.insert(number, number)
    return lakehouse


async def test_a_batch_that_runs_out_of_memory_is_written_in_parts(harness: Harness) -> None:
    """The parts get smaller until they fit. The next batch is written as a whole again."""
    lakehouse = small(harness, EngineOutOfMemory)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: harness.offset() == 20)
        assert lakehouse.refused == [20, 10, 5]
        assert sum(lakehouse.merged) == 20
        for number in (21, 22):
            harness.insert(number, number)
        await eventually(lambda: harness.offset() == 22)
        assert list(task.tables()) == []
    assert not harness.failures
    assert len(harness.rows()) == 22


@pytest.mark.parametrize("step", ["open", "read the ledger"])
async def test_memory_that_ends_before_the_write_does_not_divide_the_batch(
    harness: Harness, step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps that do not depend on the batch fit no better with a smaller one. The error is reported and repeated."""
    lakehouse = small(harness, EngineOutOfMemory)
    monkeypatch.setattr(lakehouse, "limit", 20)
    attempts: list[str] = []
    open_table = lakehouse.table

    def run_out() -> None:
        attempts.append(step)
        if len(attempts) < 5:
            raise EngineOutOfMemory("items: Spark's JVM has ended: it ran out of memory")

    def table(namespace: str, name: str, options: TableOptions) -> Any:
        opened = open_table(namespace, name, options)
        if step == "open":
            run_out()
            return opened
        ledger = opened.ledger

        def limited() -> Any:
            run_out()
            return ledger()

        opened.ledger = limited
        return opened

    monkeypatch.setattr(lakehouse, "table", table)
    async with running(harness.task(isolated=True)):
        await eventually(lambda: harness.offset() == 20)
    assert lakehouse.merged == [20]
    assert caplog.text.count("failed and is repeated: items: Spark's JVM has ended") == 4
    assert not harness.failures


async def test_another_end_of_the_engine_repeats_the_batch_as_it_is(harness: Harness) -> None:
    """A JVM that was killed says nothing about the size of the batch."""
    lakehouse = small(harness, EngineFailed)
    async with running(harness.task(isolated=True)):
        await eventually(lambda: len(lakehouse.refused) > 3)
    assert set(lakehouse.refused) == {20}
    assert harness.rows() == {}
