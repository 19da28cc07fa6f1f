"""The tables of a task and the topics that it lacks: what its status shows.

They outlive its assignments: a failed table stays failed in the next one.

Tests: ``tests/unit/runtime/task/test_table_lanes.py``, ``test_paused_tables.py``, ``test_absent_topics.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.core.batch.commit_scheduler import CommitPace
from headrace.core.connect.lifecycle import LAKE_TABLE, TableEvent, TableState, next_state
from headrace.core.connect.paused_tables import PausedTable, PausedTables, topics_of
from headrace.core.connect.status import TableReport, TableStatus, report_of
from headrace.core.connect.table_activity import TableActivity
from headrace.core.connect.table_load import LoadProgress, TableLoad
from headrace.core.model.events import TableId
from headrace.ports import Feed, TopicPartition, UpkeepReport
from headrace.runtime.observation import Observer
from headrace.runtime.trace import render

log = logging.getLogger(__name__)

PAUSED = (
    "the table is paused: its topics are not read, so their lag grows, and Kafka deletes records that are older than "
    "the retention of the topic; PUT /connectors/<name>/tables/<table>/resume continues where it stopped"
)
_PAUSED_TRACE = "The table was paused by PUT /connectors/<name>/tables/<table>/pause"


class TaskTable:
    """A table of a task. In an assignment, only its lane changes the state.

    ``turn`` is held during a write. If a rebalance did not wait for a write to end, the next assignment does. ``pace``
    is what the table's commits have taken, ``load`` what a snapshot has sent, ``activity`` what was written, and
    ``sources`` the source tables of it. ``upkeep`` is the last report on the files. ``is_held``: a request has paused
    the table, not its connector, so that no write may begin.
    """

    def __init__(self, name: str, on_change: Callable[[], None]) -> None:
        self.name = name
        self.topics: set[str] = set()
        self.state = TableState.RUNNING
        self.status: TableStatus | None = None
        """State and error of a table that is retried or has failed, None of any other."""
        self.last_error: TableStatus | None = None
        self.turn = asyncio.Lock()
        self.pace = CommitPace()
        self.load = TableLoad()
        self.activity = TableActivity()
        self.sources: set[TableId] = set()
        self.upkeep = UpkeepReport()
        self.is_held = False
        self._on_change = on_change

    def move(self, event: TableEvent, error: BaseException | None = None, next_attempt: float | None = None) -> None:
        """Change the state; ``next_attempt`` is in seconds since the epoch."""
        before, self.state = self.state, next_state(LAKE_TABLE, self.state, event)
        if error is not None:
            since = self.status.since if self.status is not None and before is self.state else time.time()
            self.status = self.last_error = TableStatus(self.name, self.state, render(error), since, next_attempt)
        elif self.state is not before:
            self.status = None
        if error is not None or self.state is not before:
            self._on_change()

    def pause_if_held(self) -> None:
        """Set the state PAUSED of a table that is held, unless a write is in progress: its lane calls again then."""
        if self.is_held and not self.turn.locked():
            self.move(TableEvent.PAUSE)

    def lag(self, lag: Mapping[str, int]) -> int:
        """Return the records of the table's topics that are not committed. ``lag`` is that of all topics."""
        return sum(lag.get(topic, 0) for topic in self.topics)

    def report(self) -> TableReport:
        return TableReport(
            self.name, self.state, sorted(self.topics), 0, 0, None, None, self.activity.last_batch, self.last_error
        )


class TaskTables:
    """The tables of one task. All methods run on the worker's event loop.

    ``blocked`` are the tables that did not run in an earlier run of the task. What they lack is read and written again.
    They are shown as RETRYING, with the cause of that run, until they have a durable batch, fail again, or nothing of
    their topics is left to read. Those that were paused are shown so until the first assignment, if they still are.
    """

    def __init__(self, observer: Observer, blocked: Sequence[TableStatus] = ()) -> None:
        self._observer = observer
        self._tables: dict[str, TaskTable] = {}
        paused = [status for status in blocked if status.state is TableState.PAUSED]
        self._recovering = {status.table: _recovering(status) for status in blocked if status not in paused}
        self._to_restart: set[str] = set()
        self._to_recreate = {status.table for status in blocked if status.recreate}
        self._failed_topics: frozenset[str] | None = frozenset()  # None: to be determined
        self._assigned: Collection[str] = {topic for status in paused for topic in status.topics}
        self._paused = False
        self._paused_tables: PausedTables = {}
        self._paused_topics: frozenset[str] = frozenset()
        self._noted: Sequence[str] | None = None
        self._lag: Callable[[], Mapping[TopicPartition, int]] = dict

    def watch_lag(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Take the function that returns the records that are not committed, by partition."""
        self._lag = lag

    def open(self, name: str, topic: str) -> TaskTable:
        """Return a table that has changes of ``topic``."""
        if name not in self._tables:
            table = self._tables[name] = TaskTable(name, self.report_states)
            if self._paused:
                table.move(TableEvent.PAUSE)
        table = self._tables[name]
        if topic not in table.topics:
            table.topics.add(topic)
            self._failed_topics = None
            if self._paused_tables:
                self._hold()
        return table

    def of_topic(self, topic: str) -> list[str]:
        names = [table.name for table in self._tables.values() if topic in table.topics]
        return names or [name for name, status in self._recovering.items() if topic in status.topics]

    def topics_of(self, names: Iterable[str]) -> set[str]:
        return {topic for name in names for topic in self._tables[name].topics}

    @property
    def failed_topics(self) -> frozenset[str]:
        """The topics of failed tables. It is asked for each chunk."""
        if self._failed_topics is None:
            failed = (name for name, table in self._tables.items() if table.state is TableState.FAILED)
            self._failed_topics = frozenset(self.topics_of(failed))
        return self._failed_topics

    @property
    def paused_topics(self) -> frozenset[str]:
        """The topics of the tables that requests have paused. They are not read."""
        return self._paused_topics

    # -- events of the task --------------------------------------------------------------------------------------------

    def begin_assignment(self, topics: Collection[str]) -> None:
        """Begin an assignment: run what is to be restarted, and remove tables whose topics another task has."""
        self._assigned = topics
        restarts, self._to_restart = self._to_restart, set()
        for name in restarts & self._tables.keys():
            table = self._tables[name]
            if table.status is not None:
                self._recovering[name] = _recovering(self._status_of(table, table.status))
            table.move(TableEvent.RESTART)
            table.pause_if_held()
            if self._paused:
                table.move(TableEvent.PAUSE)
        elsewhere = [name for name, table in self._tables.items() if table.topics.isdisjoint(topics)]
        for name in elsewhere:
            del self._tables[name]
        self._recovering = {
            name: status for name, status in self._recovering.items() if not set(topics).isdisjoint(status.topics)
        }
        self._observer.on_tables_left(elsewhere)
        self._hold()
        self.report_states()

    def restart(self, name: str, *, recreate: bool = False) -> bool:
        """Restart a table when the next assignment begins. Return False for a table without changes.

        Not at once: records that are read now must not be written before the earlier ones are read again. With
        ``recreate`` a table that is missing or behind is accepted as it is, until a batch is durable.
        """
        if name in self._tables:
            self._to_restart.add(name)
        is_known = name in self._tables or name in self._recovering
        if is_known and recreate:
            self._to_recreate.add(name)
        return is_known

    def recreates(self, name: str) -> bool:
        """Return whether the table is accepted as it is if it is missing or behind."""
        return name in self._to_recreate

    def set_paused(self, paused: PausedTables) -> Collection[str]:
        """Hold exactly these tables, and those that have no other topics. Return the tables that may be written again.

        A table without changes is one of them as well: the topics of the record are not read.
        """
        held = [name for name, table in self._tables.items() if table.is_held]
        self._paused_tables = paused
        self._hold()
        resumed = [name for name in held if not self._tables[name].is_held]
        for name in () if self._paused else resumed:
            self._tables[name].move(TableEvent.RESUME)
        self.report_states()
        return resumed

    def _hold(self) -> None:
        """Determine the topics that are not read, and the tables that are not written."""
        named = self.topics_of(self._paused_tables.keys() & self._tables.keys())
        self._paused_topics = topics_of(self._paused_tables) | named
        for name, table in self._tables.items():
            table.is_held = name in self._paused_tables or table.topics <= self._paused_topics
            table.pause_if_held()

    def _paused_here(self) -> Mapping[str, PausedTable]:
        """Return the paused tables of this task with their topics, and those that have no other topics than these."""
        assigned = set(self._assigned)
        paused = {name: entry for name, entry in self._paused_tables.items() if not assigned.isdisjoint(entry.topics)}
        for name, table in self._tables.items():
            if table.is_held:
                entry = self._paused_tables.get(name)
                causes = [entry] if entry is not None else self._paused_tables.values()
                since = min(cause.since for cause in causes)
                paused[name] = PausedTable(tuple(sorted(table.topics)), since)
        return paused

    def pause(self) -> None:
        self._paused = True
        for table in self._tables.values():
            table.move(TableEvent.PAUSE)

    def resume(self) -> None:
        self._paused = False
        for table in self._tables.values():
            if not table.is_held:
                table.move(TableEvent.RESUME)

    def on_batch_durable(self, table: TaskTable) -> None:
        """Show a table as it is: it has recovered from an earlier run. The next loss of the table is an error again."""
        self._to_recreate.discard(table.name)
        if self._recovering.pop(table.name, None) is not None:
            self.report_states()

    def on_caught_up(self, topics: Collection[str]) -> None:
        """End the loads of tables whose ``topics`` are read and committed to the end.

        Show tables as RUNNING that had failed before, if all of their topics are.
        The task that had failed may have ended after the commit of the table and before it wrote its status, or the
        broker has removed the records that the table lacks.
        """
        now = time.time()
        for table in self._tables.values():
            if table.load.is_running and table.topics <= set(topics):
                table.load.end(now)
        for name, status in list(self._recovering.items()):
            assigned = set(status.topics) & set(self._assigned)  # none before the first assignment
            if assigned and assigned <= set(topics):
                del self._recovering[name]
                self.report_states()

    # -- what a status shows -------------------------------------------------------------------------------------------

    def loads(self) -> Mapping[str, LoadProgress]:
        """Return the progress of the loads that are running, by table."""
        tables = [table for table in self._tables.values() if table.state is not TableState.FAILED]
        running = [table for table in tables if table.load.is_running and not table.is_held]
        if not running:
            return {}
        lag, now = self._lag_of_topics(), time.time()
        progress = {table.name: table.load.progress(table.lag(lag), now) for table in running}
        return {name: load for name, load in progress.items() if load is not None}

    def _lag_of_topics(self) -> Mapping[str, int]:
        lag: Counter[str] = Counter()
        for partition, records in self._lag().items():
            lag[partition.topic] += records
        return lag

    def report_states(self) -> None:
        """Report the tables that do not run to the observer. Called after each change of a state."""
        self._failed_topics = None
        for name, table in self._tables.items():
            if table.status is not None:  # its own attempt has failed
                self._recovering.pop(name, None)
        self._observer.on_blocked_tables(self.statuses())
        if (paused := sorted(self._paused_here())) != self._noted:  # the first call removes an outdated note
            self._noted = paused
            self._observer.set_note(PAUSED, paused)

    def statuses(self) -> Sequence[TableStatus]:
        """Return the tables that are retried, have failed or are paused alone."""
        statuses = dict(self._recovering)
        for name, table in self._tables.items():
            if table.status is not None:
                statuses[name] = self._status_of(table, table.status)
        for name, paused in self._paused_here().items():
            if name not in self._tables or self._tables[name].state is TableState.PAUSED:
                statuses[name] = TableStatus(name, TableState.PAUSED, _PAUSED_TRACE, paused.since, None, paused.topics)
        return list(statuses.values())

    def _status_of(self, table: TaskTable, status: TableStatus) -> TableStatus:
        return replace(status, topics=tuple(sorted(table.topics)), recreate=table.name in self._to_recreate)

    def reports(self, report: Callable[[TaskTable], TableReport]) -> Sequence[TableReport]:
        """Return a report on each table, by name; ``report`` makes that of a table that has changes."""
        reports = {status.table: report_of(status) for status in self.statuses()}
        for name in reports.keys() & self._recovering.keys():
            reports[name] = replace(reports[name], last_error=self._recovering[name])
        lag, now = self._lag_of_topics(), time.time()
        for name, table in self._tables.items():
            reports[name] = replace(report(table), load=table.load.progress(table.lag(lag), now))
            if (earlier := self._recovering.get(name)) is not None and table.state is TableState.RUNNING:
                reports[name] = replace(reports[name], state=earlier.state, last_error=earlier)
        return [reports[name] for name in sorted(reports)]


def _recovering(status: TableStatus) -> TableStatus:
    return replace(status, state=TableState.RETRYING, next_attempt=None)


ABSENT = (
    "no such topic exists, or the connector's user may not describe it, so nothing is read; correct topics or "
    "topics.regex (which has to match complete names), or check the source connector"
)


class AbsentTopics:
    """Reports the absent topics of one task."""

    def __init__(self, connector: str, feed: Feed, observer: Observer) -> None:
        self._connector = connector
        self._feed = feed
        self._observer = observer
        self._reported: Sequence[str] | None = None

    def report(self) -> None:
        """Report what has changed since the last call; the first call removes an outdated note as well."""
        absent = self._feed.absent()
        if absent is None or absent == self._reported:
            return
        reported = self._reported or ()
        self._reported = absent
        for name in absent:
            if name not in reported:
                log.warning("%s: %s: %s", self._connector, name, ABSENT)
        for name in reported:
            if name not in absent:
                log.info("%s: %s: the topic exists now", self._connector, name)
        self._observer.set_note(ABSENT, absent)
