"""One line of the log per connector and minute: batches, events, seconds behind, and what has failed.

A worker shows in its log that it works. An idle connector is logged once, so that 1,000 of them do not fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field

from headrace.core.connect.lifecycle import NOT_READ, State, TableState
from headrace.runtime.metrics.connect_declarations import RECORDS_SENT
from headrace.runtime.metrics.connect_metrics import TaskCollector
from headrace.runtime.metrics.task_progress import ProgressCollector
from headrace.runtime.worker import log_format

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
_MAX_NAMES = 5


@dataclass(slots=True)
class ConnectorSummary:
    """What the tasks of a connector on this worker have done in an interval.

    ``behind`` is by how many seconds the table ``latest`` is behind its source, of all tables the most; None if nothing
    was written and nothing waits. ``runs``: a task is RUNNING or FAILED.
    """

    connector: str
    batches: int = 0
    events: int = 0
    behind: float | None = None
    latest: str = ""
    failed_tasks: list[str] = field(default_factory=list)
    failed_tables: list[str] = field(default_factory=list)
    retried_tables: list[str] = field(default_factory=list)
    runs: bool = False

    @property
    def has_failures(self) -> bool:
        """Whether a task or table has failed, or a table is retried."""
        return bool(self.failed_tasks or self.failed_tables or self.retried_tables)

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.batches and self.behind is None and not self.has_failures

    def text(self) -> str:
        """Return the line of the log."""
        parts = [f"{self.batches} batch(es) with {self.events} event(s) committed in the last minute"]
        if self.behind is not None:
            parts.append(f"{self.behind:.1f} s behind (table {self.latest})")
        for state, objects, names in (
            ("FAILED", "task(s)", self.failed_tasks),
            ("FAILED", "table(s)", self.failed_tables),
            ("RETRYING", "table(s)", self.retried_tables),
        ):
            if names:
                more = ", ..." if len(names) > _MAX_NAMES else ""
                parts.append(f"{len(names)} {objects} {state}: {', '.join(names[:_MAX_NAMES])}{more}")
        return f"Connector {self.connector}: {'; '.join(parts)}"


class Summaries:
    """Compares the counts of the tasks with those of the last call. ``now`` returns Unix time in seconds."""

    def __init__(self, tasks: TaskCollector, progress: ProgressCollector, now: Callable[[], float]) -> None:
        self._tasks = tasks
        self._progress = progress
        self._now = now
        self._since = now()
        self._before: Mapping[tuple[str, str], tuple[int, int]] = {}

    def since_last_call(self, states: Mapping[tuple[str, int], State]) -> Sequence[ConnectorSummary]:
        """Return a summary of each connector with a task on this worker, by name. ``states`` are those of its tasks."""
        summaries = {name: ConnectorSummary(name) for name, _ in sorted(states)}
        since, now = self._since, self._now()
        counted = {labels: (task.batches, task.counts[RECORDS_SENT]) for labels, task in self._tasks.tasks().items()}
        for labels, (batches, events) in counted.items():
            if (summary := summaries.get(labels[0])) is not None:
                batches_before, events_before = self._before.get(labels, (0, 0))
                summary.batches += batches - batches_before
                summary.events += events - events_before
        for (name, number), state in states.items():
            summaries[name].runs |= state in (State.RUNNING, State.FAILED)
            if state is State.FAILED:
                summaries[name].failed_tasks.append(f"{name}-{number}")
        for (name, _), progress in self._progress.current().items():
            if (summary := summaries.get(name)) is None:
                continue
            for table, blocked in progress.blocked.items():
                tables = {TableState.FAILED: summary.failed_tables, TableState.RETRYING: summary.retried_tables}
                if blocked in tables:
                    tables[blocked].append(table)
            for table, table_progress in progress.tables.items():
                behind = table_progress.behind(since, now)
                is_read = progress.blocked.get(table) not in NOT_READ
                if is_read and behind is not None and behind > (-1.0 if summary.behind is None else summary.behind):
                    summary.behind, summary.latest = behind, table
        self._since, self._before = now, counted
        return list(summaries.values())


class SummaryLog:
    """Logs the summaries every minute, from the worker's event loop."""

    def __init__(self, summaries: Callable[[], Sequence[ConnectorSummary]]) -> None:
        self._summaries = summaries
        self._idle: set[str] = set()
        self._logging: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to log."""
        self._logging = asyncio.create_task(self._log_regularly(), name="summaries")

    async def stop(self) -> None:
        """End it. Idempotent."""
        logging_task, self._logging = self._logging, None
        if logging_task is not None:
            logging_task.cancel()
            with suppress(asyncio.CancelledError):
                await logging_task

    def log(self) -> None:
        """Log one line per connector, none of one that does not run or was idle before."""
        copy_context().run(self._log)  # each line has the context of its connector, and the caller keeps its own

    def _log(self) -> None:
        idle = set()
        for summary in self._summaries():
            if not summary.runs:
                continue
            log_format.enter(summary.connector)
            if summary.is_idle:
                idle.add(summary.connector)
                if summary.connector not in self._idle:
                    text = "Connector %s: is idle: nothing was read or written in the last minute (logged once)"
                    log.info(text, summary.connector)
            else:
                log.log(logging.WARNING if summary.has_failures else logging.INFO, "%s", summary.text())
        self._idle = idle

    async def _log_regularly(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            self.log()
