"""Upkeep of a task's tables, beside their writes or between them. An error of it never stops a table."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from headrace.core.batch.batch import Batch
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import TableWriter, UpkeepReport
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.task.task_tables import TaskTable
from headrace.runtime.threads import run_in
from headrace.runtime.trace import summary

log = logging.getLogger(__name__)


class TableUpkeep:
    """At most one upkeep of each table at a time. All methods run on the worker's event loop."""

    def __init__(
        self, connector: str, pipelines: Pipelines, executor: Executor, maintenance: Maintenance, observer: Observer
    ) -> None:
        self._connector = connector
        self._pipelines = pipelines
        self._executor = executor
        self._inline = maintenance is Maintenance.INLINE
        self._observer = observer
        self._running: dict[str, asyncio.Task[None]] = {}
        self._noted: set[tuple[str, str]] = set()

    async def run(self, batch: Batch, table: TaskTable) -> None:
        """Begin what is due for the table of a durable batch; with ``inline``, wait for its end."""
        _, lake, pipeline = self._pipelines.open_table(batch)  # open already: the batch was written with it
        report = self._report(table, lake)
        for note in report.notes:
            if (batch.table, note) not in self._noted:
                self._noted.add((batch.table, note))
                log.warning("%s: table %s: %s", self._connector, batch.table, note)
                self._observer.on_note(note, batch.table)
        if batch.table in self._running or not pipeline.maintenance_due():
            return
        upkeep = asyncio.create_task(self._maintain(table, lake, pipeline.maintain))
        self._running[batch.table] = upkeep
        upkeep.add_done_callback(lambda _: self._running.pop(batch.table, None))
        if self._inline:
            await upkeep

    def _report(self, table: TaskTable, lake: TableWriter) -> UpkeepReport:
        table.upkeep = report = lake.upkeep()
        self._observer.on_upkeep(table.name, report)
        return report

    async def _maintain(self, table: TaskTable, lake: TableWriter, maintain: Callable[[], None]) -> None:
        try:
            await run_in(self._executor, maintain)
            self._report(table, lake)
        except Exception as error:
            # Whatever it is: the table's writes meet it as well if it concerns them, and report it with the way out.
            text = summary(error)
            log.warning("%s: upkeep of table %s failed and is tried again: %s", self._connector, table.name, text)

    async def stop(self) -> None:
        """Cancel upkeep that runs: its commit is safe beside any other writer."""
        for upkeep in list(self._running.values()):
            upkeep.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
