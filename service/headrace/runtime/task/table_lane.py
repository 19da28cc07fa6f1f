"""One table of a task: an agent takes the table's batches when they are due and writes them, one after the other.

The lane owns the retries of the table. A write that fails for a passing reason is repeated without end, with back-off,
while the other tables continue; any other error fails the table until it is restarted. ``isolation=False`` is Kafka
Connect's way: the task fails instead, after ``PATIENCE``.

The batches themselves wait in the batch manager (``core/batch/batch.py``) and not in the agent's channel, which only
carries wake-ups: a batch closes by rows, bytes, age and the halves of key changes, and Faust's ``stream.take`` knows
rows and age alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tenacity import RetryCallState

from headrace.core.batch.batch import Batch, BatchManager
from headrace.core.connect.lifecycle import LAKE_TABLE, TableEvent, TableState, next_state
from headrace.core.connect.table_status import TableStatus
from headrace.core.model.errors import remedy
from headrace.core.reselect.unresolved import LeftOut
from headrace.ports import OpenAgent
from headrace.runtime.retry import retrying
from headrace.runtime.task.batch_writer import BatchWriter
from headrace.runtime.task.write_gate import WriteGate
from headrace.runtime.trace import render, summary

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds for which a write is repeated before the table is opened again, or the task fails."""

BACKOFF = 60.0
"""The longest pause between two attempts in seconds; ``PATIENCE / 3`` where the task is to fail."""


@dataclass(frozen=True, slots=True)
class LaneOwner:
    """What a task lends to its lanes.

    ``epoch`` returns the number of the assignment and ``flush`` whether a pause waits for what was read. ``writes`` is
    called before a batch is written, ``written`` once it is durable, ``idle`` when the lane has nothing left to do.
    ``failed`` and ``changed`` hear of every failure of a table, and of every change of its state.
    """

    connector: str
    isolation: bool
    batches: BatchManager
    writer: BatchWriter
    gate: WriteGate
    open_agent: OpenAgent
    epoch: Callable[[], int]
    flush: Callable[[], bool]
    writes: Callable[[], None]
    written: Callable[[Batch, Sequence[LeftOut], int], Awaitable[None]]
    idle: Callable[[], None]
    failed: Callable[[str, Exception], None]
    changed: Callable[[], None]


class TableLane:
    """The lane of one table. All methods run on the worker's event loop."""

    def __init__(self, table: str, owner: LaneOwner) -> None:
        self.table = table
        self.state = TableState.RUNNING
        self._owner = owner
        self._agent = owner.open_agent(f"{owner.connector} {table}", self._run)
        self._status: TableStatus | None = None
        self._pending: tuple[int, Batch] | None = None
        self._attempts_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to write."""
        await self._agent.start()

    async def stop(self) -> None:
        """Cancel what is under way; the gate is closed, and quiet if nothing may be lost."""
        self._disarm()
        await self._agent.stop()

    def wake(self) -> None:
        """Something has arrived for the table, or may be written now."""
        self._agent.wake()

    @property
    def status(self) -> TableStatus | None:
        """The state of a table that does not run, None of one that does."""
        return self._status

    @property
    def is_blocked(self) -> bool:
        """Whether what waits for the table cannot be written for now."""
        return self.state is not TableState.RUNNING

    def fail(self, error: Exception) -> None:
        """Stop here until the table is restarted."""
        self._disarm()
        self._pending = None
        self._move(TableEvent.FAIL, error)
        log.error(
            "%s: table %s failed; its topics are not read until it is restarted: %s",
            self._owner.connector,
            self.table,
            summary(error),
        )

    # -- the agent's body ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Write the batches that are due; lets no exception out."""
        try:
            while (batch := self._next()) is not None:
                await self._write(batch)
                self._owner.idle()
            self._arm()
        except Exception as error:
            self._owner.failed(self.table, error)

    @property
    def _may_write(self) -> bool:
        return self._owner.gate.is_open and self.state is not TableState.FAILED

    def _next(self) -> Batch | None:
        if not self._may_write:
            return None
        pending, self._pending = self._pending, None
        if pending is not None and pending[0] == self._owner.epoch():
            return pending[1]
        return self._owner.batches.next(self.table, time.monotonic(), flush=self._owner.flush())

    def _arm(self) -> None:
        """Wake up when the table's queue is due by age."""
        self._disarm()
        due = self._owner.batches.due(self.table) if self._may_write else None
        if due is not None:
            delay = max(due - time.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(delay, self._agent.wake)

    def _disarm(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    # -- one batch -----------------------------------------------------------------------------------------------------

    async def _write(self, batch: Batch) -> None:
        """Write a batch, again and again while that may help. Once the gate is closed it is kept for a resume."""
        isolation, epoch = self._owner.isolation, self._owner.epoch()
        longest = BACKOFF if isolation else PATIENCE / 3
        retry = retrying(longest, self._retried).copy(sleep=self._owner.gate.sleep, stop=self._gives_up)
        self._attempts_since = None
        try:
            await retry(self._write_once, batch, epoch)
        except Exception as error:
            if self._may_write or not remedy(error).retry:
                raise
            self._pending = epoch, batch

    async def _write_once(self, batch: Batch, epoch: int) -> None:
        owner = self._owner
        with owner.gate.writing():
            owner.writes()
            left_out = await owner.writer.write(batch)
            if self.state is TableState.RETRYING:
                log.info("%s: table %s is written again", owner.connector, self.table)
                self._move(TableEvent.SUCCEED)
            if left_out is not None:
                await owner.written(batch, left_out, epoch)
            elif epoch == owner.epoch():
                owner.gate.close()  # until the next assignment

    def _retried(self, error: BaseException, pause: float) -> None:
        log.warning("%s: writing %s failed and is repeated: %s", self._owner.connector, self.table, error)
        self._owner.writer.failed(self._attempts_for > PATIENCE, self.table)
        if self._owner.isolation:
            self._move(TableEvent.RETRY, error, time.time() + pause)

    def _gives_up(self, state: RetryCallState) -> bool:
        now = time.monotonic()
        self._attempts_since = now if self._attempts_since is None else self._attempts_since
        return not self._may_write or (not self._owner.isolation and self._attempts_for > PATIENCE)

    @property
    def _attempts_for(self) -> float:
        return 0.0 if self._attempts_since is None else time.monotonic() - self._attempts_since

    def _move(self, event: TableEvent, error: BaseException | None = None, next_attempt: float | None = None) -> None:
        before, self.state = self.state, next_state(LAKE_TABLE, self.state, event)
        if error is None:
            self._status = None
        else:
            since = self._status.since if self._status is not None and before is self.state else time.time()
            self._status = TableStatus(self.table, self.state, render(error), since, next_attempt)
        self._owner.changed()
