"""One table of a task: an agent closes the table's batches when they are due and writes them, one after the other.

The lane owns the queue, the retries and the state of its table. A write that fails for a passing reason is repeated
without end, with back-off, while the other tables continue; any other error fails the table until it is restarted, and
so does a damaged file that stays damaged (``lasting_damage.py``).
``errors.isolation=task`` is Kafka Connect's way: the task fails instead, after ``RETRY_SECONDS``.

The changes wait in the lane's queue (``core/batch/table_queue.py``) and not in the agent's channel, which only carries
wake-ups: a batch closes by rows, bytes, age and the halves of key changes, and Faust's ``stream.take`` knows rows and
age alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenacity import RetryCallState

from headrace.core.batch.batch import Batch, Content, newest_source_time, record_count
from headrace.core.batch.offsets import Origin
from headrace.core.batch.table_queue import TableQueue
from headrace.core.connect.lifecycle import LAKE_TABLE, TableEvent, TableState, next_state
from headrace.core.connect.table_status import LastBatch, TableReport, TableStatus
from headrace.core.model.errors import DamagedFile, EngineFailed, TableDamaged, remedy
from headrace.core.reselect.unresolved import OmittedChange
from headrace.ports import OpenAgent
from headrace.runtime.retry import retrying
from headrace.runtime.task.batch_writer import BatchWriter
from headrace.runtime.task.lasting_damage import LastingDamage
from headrace.runtime.task.write_gate import WriteGate
from headrace.runtime.task.write_slots import WriteSlots
from headrace.runtime.trace import render, summary

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""Seconds for which a write is repeated before the table is opened again, or the task fails."""

BACKOFF = 30.0
"""The longest pause between two attempts in seconds; ``RETRY_SECONDS / 3`` where the task is to fail.

Rows are to arrive within a minute of the end of an outage, and the attempt takes time as well.
"""


class LaneListener(Protocol):
    """Follows the lanes of a task."""

    def closed(self, lane: TableLane) -> None:
        """Handle a closed batch: the lane's queue can accept more."""

    async def written(self, lane: TableLane, batch: Batch, omitted: Sequence[OmittedChange]) -> None:
        """Handle a durable batch of the current assignment. Raises an error that fails the table."""

    def idle(self) -> None:
        """Handle a lane that has nothing to do now."""

    def failed(self, lane: TableLane, error: Exception) -> None:
        """Handle an error of a table."""

    def moved(self) -> None:
        """Handle a new state of a lane."""


@dataclass(frozen=True, slots=True)
class LaneParts:
    """What the lanes of a task share. ``isolation`` is False with ``errors.isolation=task``."""

    connector: str
    isolation: bool
    writer: BatchWriter
    gate: WriteGate
    slots: WriteSlots
    open_agent: OpenAgent
    listener: LaneListener


class TableLane:
    """The lane of one table. All methods run on the worker's event loop."""

    def __init__(self, table: str, queue: TableQueue, parts: LaneParts) -> None:
        self.table = table
        self.queue = queue
        self.state = TableState.RUNNING
        self._last_error: TableStatus | None = None
        self._last_batch: LastBatch | None = None
        self.hurried = False
        self._parts = parts
        self._agent = parts.open_agent(f"{parts.connector} {table}", self._run)
        self._status: TableStatus | None = None
        self._batch: Batch | None = None
        self._assignment = 0
        self._attempts_since: float | None = None
        self._damage = LastingDamage()
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to write."""
        await self._agent.start()

    async def stop(self) -> None:
        """Cancel the agent. The gate is closed."""
        self._disarm()
        await self._agent.stop()

    def put(self, content: Content, origin: Origin) -> None:
        """Queue content of a chunk. A failed table discards it and blocks the offset of the chunk."""
        if self.state is TableState.FAILED:
            origin.block()
        else:
            self.queue.put(content, origin)
            self.wake()

    def wake(self) -> None:
        """Check whether a batch is due."""
        self._agent.wake()

    def hurry(self, hurried: bool) -> None:
        """Write the queue without a linger: nothing more is read, or the connector pauses."""
        was, self.hurried = self.hurried, hurried
        if hurried and not was:
            self.wake()

    def clear(self) -> None:
        """Discard the queue: the next assignment reads it again, here or on another worker."""
        self._disarm()
        self._assignment += 1
        self._batch = None
        self.queue.clear()

    @property
    def status(self) -> TableStatus | None:
        """State and error of a table that is retried or has failed, None of any other."""
        return self._status

    def report(self, topics: Sequence[str]) -> TableReport:
        """Return a report on the table; ``topics`` are those of its changes."""
        oldest, to_epoch = self.queue.unwritten, time.time() - time.monotonic()
        return TableReport(
            self.table,
            self.state,
            topics,
            self.queue.records + (record_count(self._batch.content) if self._batch is not None else 0),
            self.queue.memory,
            None if oldest is None else oldest.since + to_epoch,
            None if oldest is None or not oldest.source_time else oldest.source_time / 1_000_000,
            self._last_batch,
            self._last_error,
        )

    @property
    def is_idle(self) -> bool:
        """Whether the queue contains nothing that can be written now."""
        return self.state in (TableState.RETRYING, TableState.FAILED) or self.queue.is_idle

    # -- state ---------------------------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Set the state FAILED until the table is restarted."""
        self.clear()
        self._move(TableEvent.FAIL, error)
        log.error(
            "%s: table %s failed; its topics are not read until it is restarted: %s",
            self._parts.connector,
            self.table,
            summary(error),
        )

    def restart(self) -> None:
        """Run again with an empty queue."""
        self.clear()
        self._move(TableEvent.RESTART)

    def pause(self) -> None:
        """Set the state PAUSED. The closed gate keeps the lane from writing."""
        self._move(TableEvent.PAUSE)

    def resume(self) -> None:
        """End the state PAUSED, and continue."""
        self._move(TableEvent.RESUME)
        self.queue.resume(time.monotonic())
        self.wake()

    def _move(self, event: TableEvent, error: BaseException | None = None, next_attempt: float | None = None) -> None:
        before, self.state = self.state, next_state(LAKE_TABLE, self.state, event)
        if error is not None:
            since = self._status.since if self._status is not None and before is self.state else time.time()
            self._status = self._last_error = TableStatus(self.table, self.state, render(error), since, next_attempt)
        elif self.state is not before:
            self._status = None
        if error is not None or self.state is not before:
            self._parts.listener.moved()

    # -- the agent's body ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Write the batches that are due, with retries. Raises nothing."""
        longest = BACKOFF if self._parts.isolation else RETRY_SECONDS / 3
        retry = retrying(longest, self._retried).copy(sleep=self._parts.gate.sleep, stop=self._gives_up)
        try:
            while self._is_due:
                self._attempts_since = None
                self._damage.begin()
                await retry(self._write)
                self._parts.listener.idle()
            self._arm()
        except Exception as error:
            if self._may_write or not remedy(error).retry:
                lasts = isinstance(error, DamagedFile)
                self._parts.listener.failed(self, TableDamaged(str(error)) if lasts else error)
            else:  # the gate has closed, and the batch is kept for a resume
                self._parts.listener.idle()

    @property
    def _may_write(self) -> bool:
        return self._parts.gate.is_open and self.state is not TableState.FAILED

    @property
    def _is_due(self) -> bool:
        if not self._may_write:
            return False
        if self._batch is not None or (self.hurried and not self.queue.is_idle):
            return True
        due = self.queue.due()
        return due is not None and due <= time.monotonic()

    def _arm(self) -> None:
        """Set a timer for the time at which the queue is due."""
        self._disarm()
        due = self.queue.due() if self._may_write else None
        if due is not None:
            delay = max(due - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._agent.wake)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    # -- one batch -----------------------------------------------------------------------------------------------------

    async def _write(self) -> None:
        """Wait for a slot, then write the open batch, or close a batch and write it."""
        parts, assignment = self._parts, self._assignment
        slot = await parts.slots.acquire(parts.connector, self._oldest)
        try:
            if not self._may_write:
                return
            if self._batch is None:
                self._batch = self.queue.next(time.monotonic(), flush=self.hurried)
                parts.listener.closed(self)
            if (batch := self._batch) is None:
                return
            with parts.gate.writing():
                began = time.monotonic()
                omitted = await parts.writer.write(batch)
                slot.release()
                await self._written(batch, omitted, assignment, time.monotonic() - began)
        finally:
            slot.release()

    async def _written(
        self, batch: Batch, omitted: Sequence[OmittedChange] | None, assignment: int, seconds: float
    ) -> None:
        if self.state is TableState.RETRYING:
            log.info("%s: table %s is written again", self._parts.connector, self.table)
            self._move(TableEvent.SUCCEED)
        if assignment != self._assignment:  # fenced: the new owner writes the batch again, without effect
            return
        if omitted is None:
            self._parts.gate.close()  # until the next assignment
            return
        self._batch = None
        newest = newest_source_time(batch.content) / 1_000_000 or None
        if self._last_batch is None:
            log.info(
                "%s: table %s: the first batch of this run is committed: %d event(s), written in %.1f s",
                *(self._parts.connector, self.table, record_count(batch.content), seconds),
            )
        self._last_batch = LastBatch(record_count(batch.content), batch.size, seconds, time.time(), newest)
        await self._parts.listener.written(self, batch, omitted)

    def _oldest(self) -> float:
        unwritten = self.queue.unwritten
        return unwritten.since if unwritten is not None else time.monotonic()

    def _retried(self, error: BaseException, pause: float) -> None:
        log.warning("%s: writing %s failed and is repeated: %s", self._parts.connector, self.table, error)
        reopen = isinstance(error, EngineFailed) or self._attempts_for > RETRY_SECONDS
        self._parts.writer.failed(reopen, self.table)
        if self._parts.isolation:
            self._move(TableEvent.RETRY, error, time.time() + pause)

    def _gives_up(self, state: RetryCallState) -> bool:
        now = time.monotonic()
        self._attempts_since = now if self._attempts_since is None else self._attempts_since
        if self._damage.lasts(None if state.outcome is None else state.outcome.exception(), now):
            return True
        return not self._may_write or (not self._parts.isolation and self._attempts_for > RETRY_SECONDS)

    @property
    def _attempts_for(self) -> float:
        return 0.0 if self._attempts_since is None else time.monotonic() - self._attempts_since
