"""A new snapshot of one table: request it, and follow it until the lake table contains what was read.

    request   a signal that is stored in its channel: a later run finds it there and continues
    read      Debezium reads the table in chunks, between the changes; the offsets of its connector show the end
    apply     the sink connector has committed the offsets of the topic at the end of the reads

A lake table that was dropped or rolled back is accepted as it is, after the request is stored: it gets all rows again.
Nothing is removed here. Rows that the source does not have are found afterwards, by the comparison of both sides.

Tests: ``tests/unit/runtime/resnapshot/test_table_snapshot.py``, ``tests/integration/test_resnapshot.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Protocol, TypeVar

from headrace.core.connect.lifecycle import State, TableState
from headrace.core.connect.problems import headline
from headrace.core.model.errors import ConfigError, Fatal, RestError, Retriable, TableMissing
from headrace.core.resnapshot.signals import (
    Signal,
    end_of,
    open_request,
    progress_mark,
    snapshot_request,
    stop_request,
)
from headrace.core.resnapshot.source_connector import SignalSettings, SnapshotState
from headrace.ports import SignalChannel, TopicPartition
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.verify.table_verifier import Clock, Offsets

T = TypeVar("T")

POLL_SECONDS = 1.0
MARK_SECONDS = 10.0
"""Without a change for this time, a signal makes an idle source connector store its progress."""
QUIET_SECONDS = 70.0
"""After rows have arrived, and no more for this time, the reads have ended if the offsets do not contain the table.

Kafka Connect commits offsets once a minute by default (``offset.flush.interval.ms``).
"""
RESTART_SECONDS = 30.0
_CAUSE_SHOWN = 100
"""Characters of an error in the line of the progress."""


class SinkTables(Protocol):
    """The lake tables of the sink connector. Every call raises Retriable if its worker does not answer."""

    def table(self, table: str) -> Mapping[str, Any] | None:
        """Return the document of ``GET /connectors/{name}/tables/{table}``; None without changes of the table."""

    def restart_table(self, table: str) -> None:
        """Restart the table with ``missing=recreate``."""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """The source table (``schema.table``), its topic, its lake table without the namespace, and the sink connector."""

    name: str
    topic: str
    lake_table: str
    connector: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a snapshot is. ``rows`` of ``total`` are in the lake table, as far as that is known; ``left`` records of
    the topic are to be applied after the reads have ended. ``waits_for`` is what does not work now. ``has_begun``: the
    source connector has begun to read for this request."""

    step: str
    rows: int = 0
    total: int | None = None
    left: int | None = None
    seconds_left: float | None = None
    waits_for: str = ""
    has_begun: bool = False


class TableSnapshot:
    """A snapshot of one table. ``log_end`` returns the end of the source's log.

    ``new_id`` returns the id of a new signal. ``notice`` gets what happens once, ``report`` the progress every second.
    ``wait`` are the seconds without any progress after which a step fails. Requests that are stored stay so after an
    error, except for one that the source connector has not begun.
    """

    def __init__(
        self,
        table: SnapshotTable,
        source: SourceConnector,
        settings: SignalSettings,
        signals: SignalChannel,
        sink: SinkTables,
        offsets: Offsets,
        log_end: Callable[[], int],
        clock: Clock,
        new_id: Callable[[], str],
        notice: Callable[[str], None],
        report: Callable[[Progress], None],
        wait: float,
    ) -> None:
        self._table = table
        self._source, self._settings, self._signals = source, settings, signals
        self._sink, self._offsets, self._log_end = sink, offsets, log_end
        self._clock, self._new_id = clock, new_id
        self._notice, self._report = notice, report
        self._wait = wait
        self._request: Signal | None = None
        self._earlier_load: tuple[str, int] = "", 0
        self._has_begun = False
        self._restarted = -inf
        self._first_failure: float | None = None

    @property
    def request(self) -> str:
        """The id of the signal that is followed; empty before it is sent, and for a snapshot of another request."""
        return "" if self._request is None else self._request.id

    def follow(self, begun: str = "") -> None:
        """Request the snapshot, unless a request is open, and return when the lake table contains it.

        ``begun`` is the id of a request of which it is known that the source connector has begun to read: its end may
        have come before this call. Raises the errors of its parts, Fatal for a table that has failed, and Retriable
        after ``wait`` seconds without progress.
        """
        self._request = self._find_or_send_request()
        self._has_begun = self._request is None or self._request.id == begun
        self._await_reads()
        self._await_applied()

    def finish(self) -> None:
        """Mark the request that was followed as done: the next run begins a new one."""
        if self._request is not None:
            self._signals.send(end_of(self._new_id(), self._table.name, self._request.id))

    def cancel(self) -> bool:
        """Let the source connector end the reads of an open request. Return False if there is none."""
        request = open_request(self._signals.signals(), self._table.name, self._table.connector)
        if request is not None:
            self._signals.send(stop_request(self._new_id(), self._table.name, request.id))
        return request is not None

    # -- request ------------------------------------------------------------------------------------------------------

    def _find_or_send_request(self) -> Signal | None:
        """Return the open request, or a new one; None if another one's snapshot reads the table already."""
        name = self._table.name
        load = (self._sink.table(self._table.lake_table) or {}).get("load")
        request = open_request(self._signals.signals(), name, self._table.connector)
        if request is not None:
            self._notice(f"continues the request {request.id}")
            if load is not None and datetime.fromisoformat(load["began"]).timestamp() >= int(request.sent_at):
                load = None  # its rows belong to the request
        elif name in self._source.snapshot(self._settings.prefix).tables:
            self._notice(f"source connector {self._source.name} reads the table already, for another request")
        else:
            request = snapshot_request(self._new_id(), name, self._table.connector)
            self._signals.send(request)
            where = f"signal table {self._settings.table}" if self._settings.table else f"topic {self._settings.topic}"
            self._notice(f"snapshot requested: {request.id} in {where}")
        if load is not None:
            self._earlier_load = load["began"], load["rows"]
        return request

    # -- read ---------------------------------------------------------------------------------------------------------

    def _await_reads(self) -> None:
        """Return when the source connector does not read the table any more.

        Its offsets are those of the last commit. So a table that they do not contain is one that was read, if they have
        contained it before, or if their position is beyond the signal in a signal table.
        """
        position = None
        if self._settings.table:
            position = self._log_end()
            self._mark()  # lies beyond the position, also if the database is idle
        began = received = changed = arrived = marked = self._clock.now()
        before: tuple[int, SnapshotState | None] = 0, None
        while True:
            load, state, source_state = self._load(), self._snapshot(), self._source_state()
            now, rows = self._clock.now(), self._rows(load)
            is_reading = state is not None and self._table.name in state.tables
            self._has_begun |= is_reading
            if state is not None:
                if not is_reading and (self._has_begun or (position is not None and state.position >= position)):
                    self._notice("the source connector has read the table")
                    return
                self._report_reads(state, rows, now - began, source_state)
            if rows != before[0]:
                arrived = now
            if (rows, state) != before or source_state != State.RUNNING:
                before, changed = (rows, state), now
            if source_state != State.RUNNING:  # it cannot receive the signal
                received = now
            if position is not None and now - max(changed, marked) >= MARK_SECONDS and source_state == State.RUNNING:
                self._mark()
                marked = now
            if position is None and rows and not is_reading and now - arrived >= QUIET_SECONDS:
                self._notice("no more rows arrive; the source connector has not confirmed the end of its reads")
                return
            if not self._has_begun and not rows and now - received >= self._wait:
                self.finish()  # what was not begun is not continued
                raise Retriable(
                    f"{self._table.name}: source connector {self._source.name} has not begun to read within "
                    f"{self._wait:g} s; its log shows whether it has received the signal; check signal.*, and "
                    "heartbeat.interval.ms if the database is idle"
                )
            if now - changed >= self._wait:
                raise Retriable(
                    f"{self._table.name}: source connector {self._source.name} has made no progress for "
                    f"{self._wait:g} s; look at its log, then run the command again to continue"
                )
            self._clock.sleep(POLL_SECONDS)

    def _mark(self) -> None:
        self._signals.send(progress_mark(self._new_id(), self._table.name))

    def _report_reads(self, state: SnapshotState, rows: int, seconds: float, source_state: str) -> None:
        waits_for = "" if source_state == State.RUNNING else f"source connector {self._source.name} is {source_state}"
        if self._table.name not in state.tables:
            step, total = "requested", None
        elif state.tables[0] != self._table.name:
            step, total = f"source reads {state.tables[0]} first", None
        else:
            step, total = "source reads", state.rows
        seconds_left = (max(total - rows, 0)) * seconds / rows if total is not None and rows else None
        self._report(Progress(step, rows, total, None, seconds_left, waits_for, self._has_begun))

    # -- apply --------------------------------------------------------------------------------------------------------

    def _await_applied(self) -> None:
        """Return when the sink connector has committed the topic's present ends."""
        ends = self._offsets.ends(self._table.topic)
        changed, before = self._clock.now(), -1
        while True:
            load = self._load()
            left = self._records_left(ends)
            if left == 0:
                return
            now = self._clock.now()
            if left is not None and left != before:
                before, changed = left, now
            self._report(Progress("sink applies", self._rows(load), None, left, has_begun=True))
            if now - changed >= self._wait:
                raise Retriable(
                    f"{self._table.name}: connector {self._table.connector} has applied nothing for {self._wait:g} s "
                    f"({before} record(s) are left); see headrace status; run the command again to continue"
                )
            self._clock.sleep(POLL_SECONDS)

    def _records_left(self, ends: Mapping[TopicPartition, int]) -> int | None:
        committed = self._answer_of(self._offsets.committed_offsets)
        if committed is None:
            return None
        return sum(max(end - committed.get(partition, 0), 0) for partition, end in ends.items())

    # -- what is read of source and sink ------------------------------------------------------------------------------

    def _load(self) -> Mapping[str, Any] | None:
        """Return the load of the lake table, if one is known. Accept a table that was dropped or rolled back.

        Raises Fatal if the table has failed for another reason.
        """
        name = self._table.lake_table
        document = self._answer_of(lambda: self._sink.table(name))
        if document is None:
            return None
        if document["state"] == TableState.FAILED and (error := document.get("last_error")) is not None:
            cause = headline(error["trace"])
            if not cause.startswith(f"{TableMissing.__module__}.{TableMissing.__qualname__}:"):
                raise Fatal(
                    f"table {name} is FAILED: {cause}; remove the cause, restart it, then run the command again"
                )
            if self._clock.now() - self._restarted >= RESTART_SECONDS:
                self._restarted = self._clock.now()
                self._answer_of(lambda: self._sink.restart_table(name))
                self._notice(f"table {name} was dropped or rolled back: restarted with missing=recreate")
        load: Mapping[str, Any] | None = document.get("load")
        return load

    def _rows(self, load: Mapping[str, Any] | None) -> int:
        """Return the rows of the snapshot that are in the lake table, as far as the running task knows."""
        if load is None:
            return 0
        began, rows = self._earlier_load
        return int(load["rows"]) - (rows if load["began"] == began else 0)

    def _snapshot(self) -> SnapshotState | None:
        return self._answer_of(lambda: self._source.snapshot(self._settings.prefix))

    def _source_state(self) -> str:
        return self._answer_of(self._source.state) or "not answering"

    def _answer_of(self, call: Callable[[], T]) -> T | None:
        """Return None for a system that does not answer now; raise its error if that lasts for ``wait`` seconds."""
        try:
            answer = call()
        except (Retriable, ConfigError, RestError) as error:
            now = self._clock.now()
            self._first_failure = now if self._first_failure is None else self._first_failure
            if now - self._first_failure >= self._wait:
                raise
            self._report(Progress("waits", waits_for=str(error)[:_CAUSE_SHOWN], has_begun=self._has_begun))
            return None
        self._first_failure = None
        return answer
