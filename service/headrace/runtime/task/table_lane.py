"""One table of a task in one assignment: an agent that is sent the table's changes and writes them, batch by batch.

``TableLane.run`` is the story of a table. Only the agent's coroutine touches the queue, the retries and the state of
its table; the assignment sends messages, and gets results. A write that fails for a passing reason is repeated without
end, with back-off, while the other tables continue; any other error fails the table until it is restarted, and so does
a damaged file that stays damaged (``retry.py``). ``errors.isolation=task`` is Kafka Connect's way: the task
fails instead, after ``RETRY_SECONDS``.

Tests: ``tests/unit/runtime/task/``, ``tests/properties/test_history_laws.py``.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import pyarrow as pa

from headrace.core.batch.batch import Batch, Unwritten, Watermarks, late_events, operations
from headrace.core.batch.event_pairs import TooLarge, divide
from headrace.core.batch.offsets import Origin
from headrace.core.batch.table_queue import FAR_BEHIND, Backlog, TableQueue
from headrace.core.connect.lifecycle import TableEvent, TableState
from headrace.core.connect.status import TableReport
from headrace.core.connect.table_activity import LastBatch, TableDetails
from headrace.core.connect.timeline import name_list
from headrace.core.merge.history import next_offsets
from headrace.core.model.errors import DamagedFile, EngineFailed, EngineOutOfMemory, Fenced, TableDamaged, remedy
from headrace.core.model.events import Changes, Content, Operation
from headrace.core.reselect.unresolved import OmittedChange
from headrace.ports import Agent, Commit, Messages, TopicPartition
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.retry import LastingDamage, pause_after
from headrace.runtime.task.arrived_records import Arrived, Decode
from headrace.runtime.task.committed_offsets import CommittedOffsets
from headrace.runtime.task.flow_control import WriteGate
from headrace.runtime.task.freshness_notes import Cause
from headrace.runtime.task.task_parts import SinkTaskParts
from headrace.runtime.task.task_tables import TaskTable
from headrace.runtime.task.write_checks import WrittenTables
from headrace.runtime.threads import run_in
from headrace.runtime.trace import summary

log = logging.getLogger(__name__)

RETRY_SECONDS = 15.0
"""Seconds for which a write is repeated before the table is opened again, or the task fails."""

BACKOFF = 30.0
"""The longest pause between two attempts in seconds; ``RETRY_SECONDS / 3`` where the task is to fail.

Rows are to arrive within a minute of the end of an outage, and the attempt takes time as well.
"""

_MOST_PORTIONS = 256


# -- what a lane is sent -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Content of a chunk: changes, a truncate, or the defaults of new columns. ``size`` is in bytes."""

    content: Content
    origin: Origin
    size: int
    events: int


@dataclass(frozen=True, slots=True)
class Fail:
    """The topic of the table cannot be read."""

    error: Exception


class Signal(Enum):
    """A message without content."""

    TICK = "a writing thread is free for the table"
    FLUSH = "write what has arrived without a linger"
    DRAIN = "as FLUSH, also more often than commits.per.hour allows"
    RESUME = "a pause has ended, in which nothing was read"


Message = Part | Fail | Signal


# -- what comes of it --------------------------------------------------------------------------------------------------


class LaneEvent(Enum):
    """A result without content."""

    BATCH_CLOSED = "a batch is written now, and the queue can accept more"
    WAITING = "there is nothing to write before the next message"


@dataclass(frozen=True, slots=True)
class BatchDurable:
    """A batch is durable, without the ``omitted`` changes of rows that cannot be completed."""

    batch: Batch
    omitted: Sequence[OmittedChange]


@dataclass(frozen=True, slots=True)
class TableFailed:
    """The table has failed; its topics cannot be read until it is restarted."""

    error: Exception


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """An error after which the task cannot continue."""

    error: Exception


Result = LaneEvent | BatchDurable | TableFailed | TaskFailed


@dataclass(frozen=True, slots=True)
class LaneContext:
    """What the lanes of an assignment share."""

    task: SinkTaskParts
    gate: WriteGate
    backlog: Backlog
    offsets: CommittedOffsets
    written: WrittenTables
    watermarks: Watermarks
    decode: Decode


class TableLane:
    """The lane of one table. All methods run on the worker's event loop."""

    def __init__(self, table: TaskTable, context: LaneContext) -> None:
        self.table = table
        self._context, self._task, self._gate = context, context.task, context.gate
        options = self._task.options
        self._connector, self._isolated = options.connector, options.isolate_tables
        self._target, self._interval = options.batches.target(table.name), options.batches.interval(table.name)
        slots = self._task.resources.slots
        self._slot = slots.open(self._connector, self._target, table.pace, self._tick)
        self._queue = TableQueue(table.name, options.batches, context.backlog, holds_halves=not options.tables.history)
        # Of content that was sent and is not in the queue yet, because a write is in progress.
        self._arriving_bytes = self._arriving_events = 0
        self.undecoded: dict[TopicPartition, Arrived] = {}
        """Records of the table for the next batch, by partition."""
        self._flushes: set[Signal] = set()  # that were sent and not received
        self._is_flushing = self._is_draining = False
        self._failure: Exception | None = None
        self._batch: Batch | None = None
        self._is_bounded = False  # the open batch has waited for commits.per.hour
        self._portions = 1  # of the open batch; more than one after it ran out of memory
        self._failures, self._first_failure, self._next_attempt = 0, 0.0, 0.0
        self._damage = LastingDamage()

    async def start(self, agent: Agent[Message]) -> None:
        self._agent = agent
        await agent.start()

    async def stop(self) -> None:
        """Cancel the agent. No write is in progress."""
        await self._agent.stop()
        self._slot.close()

    # -- the story of a table ------------------------------------------------------------------------------------------

    async def run(self, messages: Messages[Message]) -> AsyncGenerator[Result]:
        """Write the batches for which the worker has a thread, until the agent is cancelled. Raises nothing."""
        async for message in messages:
            self._receive(message)
            if self._slot.is_granted:
                async with self.table.turn:  # proven: one-writer
                    try:
                        while self.undecoded and self._batch is None and self._may_write:  # proven: undecoded-first
                            await self._context.decode(self.take_undecoded())
                        # The batch contains what arrived until a thread was free. And a half of a key change is not
                        # written alone while the other one waits here.
                        for message in messages.waiting():  # proven: arrived-first
                            self._receive(message)
                        if self._batch is None and self._may_write:
                            self._close_batch(time.monotonic())
                        if self._batch is not None and self._may_write:
                            with self._gate.writing():
                                yield LaneEvent.BATCH_CLOSED
                                try:
                                    result = await self._write(self._batch)
                                except Exception as error:
                                    result = self._on_error(error)
                                events = len(result.batch.content) if isinstance(result, BatchDurable) else None
                                self._slot.release(events)
                                if result is not None:
                                    yield result
                    finally:
                        self._slot.release()
                self.table.pause_if_held()
            if self._failure is not None:
                yield self._fail(self._failure)
            self._is_flushing &= not self._queue.is_idle
            self._is_draining &= self._is_flushing
            self._ask()
            yield LaneEvent.WAITING

    def _receive(self, message: Message) -> None:
        match message:
            case Part(content, origin, size, events):
                self._arriving_bytes -= size
                self._arriving_events -= events
                if self.table.state is not TableState.FAILED:  # otherwise its part stays, and no offset passes it
                    self._queue.put(content, origin)
                    origin.missing -= 1
            case Fail(error):
                self._failure = error
            case Signal.FLUSH | Signal.DRAIN:
                self._flushes.discard(message)
                self._is_flushing = True
                self._is_draining |= message is Signal.DRAIN
            case Signal.RESUME:
                self._queue.resume(time.monotonic())

    @property
    def _may_write(self) -> bool:
        is_stopped = self.table.is_held or self.table.state is TableState.FAILED or self._failure is not None
        return self._gate.is_open and not is_stopped

    def _close_batch(self, now: float) -> None:
        """Close the next batch, if there is one."""
        self._batch = self._queue.next(now, flush=self._is_flushing)
        self._portions, self._failures = 1, 0
        self._damage.begin()
        if self._batch is not None:
            pace, self._is_bounded = self.table.pace, False
            if self._interval:
                self._is_bounded = (
                    pace.began + self._interval > self._batch.opened_at + self._task.options.batches.linger
                )
            pace.began = now

    def _ask(self) -> None:
        """Wait for a writing thread if there is something to write, now or later."""
        due = self._due()
        if due is None:
            self._slot.withdraw()
        else:
            urgent = self._batch is not None or self._is_flushing or self._queue.next_is_complete
            self._slot.ask(due, self._since(), urgent=urgent)

    def _due(self) -> float | None:
        """When (monotonic seconds) the open batch is tried again, or the queue may close one; None for never."""
        if not self._may_write:
            return None
        if self._batch is not None:
            return self._next_attempt
        # What came before them was the tombstone of a delete, or half of a key change.
        is_unknown = bool(self.undecoded) and not self.has_changes  # proven: undecoded-due
        due = 0.0 if is_unknown or (self._is_flushing and not self._queue.is_idle) else self._queue.due()
        if due is None or self._is_draining:
            return due
        return max(due, self.table.pace.began + self._interval)

    def _since(self) -> float:
        """Return from when (monotonic seconds) on the freshness target counts.

        That is the commit of the oldest change at its source. The time before it was read counts up to half of the
        target: a table that catches up must not keep the threads from tables that can meet their targets.
        """
        oldest, now = self._queue.oldest_unwritten, time.monotonic()
        if oldest is None:
            return now
        committed = oldest.source_time / 1_000_000 - time.time() + now
        return min(oldest.since, max(committed, oldest.since - self._target / 2))

    # -- one attempt to write a batch ----------------------------------------------------------------------------------

    async def _write(self, batch: Batch) -> Result | None:
        """Make a batch durable. Return None if it is left to another worker.

        After an error that passes it is called again with the same batch.
        """
        task, name, written = self._task, self.table.name, self._context.written
        group = task.options.group
        in_thread = partial(run_in, task.resources.threads.writing)
        started = time.monotonic()
        label, lake, pipeline = await in_thread(task.pipelines.open_table, batch)  # the first one starts Spark
        required, topic_ids = written.required(label), task.feed.topic_ids()
        recreate = task.tables.recreates(name)

        def check() -> pa.Schema | None:
            lake.begin_batch()
            written.check(label, lake, required, recreate=recreate)
            task.ownership.register(label, lake, batch.content, topic_ids)
            return lake.schema()

        self._on_columns(await in_thread(check))
        # The commit contains all offsets that the table is known to contain: earlier commits may be expired.
        reached = {**written.required(label), **batch.offsets}
        commit = Commit(batch.id, self._connector, group, reached, self._context.watermarks.advance(batch))

        omitted: list[OmittedChange] = []
        parts = [batch.content]
        if isinstance(batch.content, Changes) and self._portions > 1:
            parts = [*divide(batch.content, self._portions)]
        while parts:
            if await in_thread(pipeline.prepare):  # which has read what only the partitions' owner may rely on
                try:
                    await self._context.offsets.confirm(batch.offsets)
                except Fenced as error:
                    log.warning("%s: %s is left to another worker: %s", self._connector, name, error)
                    self._succeed()
                    self._gate.close()  # until the next assignment
                    return None
            content = parts.pop(0)
            part_commit = commit
            if parts and isinstance(content, Changes):
                part_commit = replace(commit, offsets=next_offsets(content.version), watermark=-1)
            try:
                omitted += await in_thread(pipeline.write, content, part_commit)
            except EngineOutOfMemory:  # while a table is opened or prepared, its cause is not the size of the batch
                # This also divides the batches of tables that are written at the same time: their rows are in the same
                # heap, and the error does not indicate which of them were too many.
                self._portions = min(2 * self._portions, _MOST_PORTIONS)
                log.warning(
                    "%s: %s: the batch ran out of memory and is written in %d parts",
                    *(self._connector, name, self._portions),
                )
                raise
            except TooLarge as error:
                if not isinstance(content, Changes):
                    raise
                log.info("%s: %s: %s", self._connector, name, error)
                parts[:0] = divide(content, error.parts)

        notes = pipeline.notes if isinstance(pipeline, TablePipeline) else []
        while notes:
            topic, note = notes.pop(0)
            log.warning("%s: %s: %s", self._connector, note.subject(topic), note.text)
            task.observer.on_note(note.text, note.subject(topic))
        stored_offsets, columns = await in_thread(lambda: (lake.reached(group) if group else None, lake.schema()))
        self._on_columns(columns)
        if group and (offset_notes := written.written(label, stored_offsets)):
            task.feed.note(offset_notes)
        return self._on_durable(batch, commit.watermark, omitted, time.monotonic() - started)

    def _on_columns(self, columns: pa.Schema | None) -> None:
        """Report how the columns of an existing table have changed, by this task or by others."""
        changes = [each for each in self.table.activity.on_columns(columns, time.time()) if each.column]
        if changes:
            self._task.observer.on_schema_change(self.table.name, name_list(map(str, changes)))

    def _on_durable(self, batch: Batch, watermark: int, omitted: Sequence[OmittedChange], seconds: float) -> Result:
        self._task.observer.on_batch_durable(batch, seconds, time.time())
        self._count_late_events(batch)
        self._succeed()
        self._batch = None
        self._queue.complete(batch)
        events, of_batch = len(batch.content), operations(batch.content)
        if self.table.activity.last_batch is None:
            log.info(
                "%s: table %s: the first batch of this run is committed: %d event(s), written in %.1f s",
                *(self._connector, self.table.name, events, seconds),
            )
        newest, now = batch.content.newest_source_time / 1_000_000 or None, time.time()
        last_batch = LastBatch(events, batch.size, seconds, now, newest, batch.trigger, batch.offsets, of_batch)
        self.table.activity.on_batch(last_batch, watermark)
        self.table.sources.add(batch.content.table)
        opened = now - (time.monotonic() - batch.opened_at)
        self.table.load.on_batch(of_batch.get(Operation.READ, 0), events, opened, now)
        return BatchDurable(batch, omitted)

    def _count_late_events(self, batch: Batch) -> None:
        """Report events that are visible after the target, with the cause if it is the worker or an option."""
        now = time.monotonic()
        waited = now - batch.opened_at
        late = late_events(batch, self._target, waited, int(time.time() * 1_000_000))
        self._task.observer.on_late_events(self.table.name, late)
        if not late:
            return
        if self._is_bounded:
            self._task.freshness.on_miss(self.table.name, Cause.COMMITS_PER_HOUR, now)
        elif not self._failures and (
            waited > self._target or any(origin.behind >= FAR_BEHIND for origin in batch.origins)
        ):
            self._task.freshness.on_miss(self.table.name, Cause.OVERLOAD, now)

    def _succeed(self) -> None:
        if self.table.state is TableState.RETRYING:
            log.info("%s: table %s is written again", self._connector, self.table.name)
            self.table.move(TableEvent.SUCCEED)

    def _on_error(self, error: Exception) -> Result | None:
        """Repeat the write after a pause (None), or fail."""
        # proven: error-of-dropped
        if self._gate.is_dropped:  # the next assignment writes the table again, and finds out for itself
            return None
        now, name = time.monotonic(), self.table.name
        self._failures += 1
        if self._failures == 1:
            self._first_failure = now
        takes_long = now - self._first_failure > RETRY_SECONDS
        lasts = self._damage.lasts(error, now)
        if lasts or not remedy(error).retry:
            return self._fail(TableDamaged(str(error)) if lasts else error)
        if not self._may_write:  # the gate has closed or the table is paused, and the batch is kept for a resume
            return None
        if takes_long and not self._isolated:
            return TaskFailed(TableDamaged(str(error)) if isinstance(error, DamagedFile) else error)
        log.warning("%s: writing %s failed and is repeated: %s", self._connector, name, error)
        pause = pause_after(self._failures, BACKOFF if self._isolated else RETRY_SECONDS / 3)
        self._next_attempt = now + pause
        self._task.observer.on_retry()
        if takes_long or isinstance(error, EngineFailed):
            self._task.pipelines.discard(name)
        if self._isolated:
            self.table.move(TableEvent.RETRY, error, time.time() + pause)
        return None

    def _fail(self, error: Exception) -> Result:
        """Discard the queue, and set the state FAILED until the table is restarted."""
        self._failure = None
        if not self._isolated or remedy(error).retry:
            return TaskFailed(error)
        self._batch = None
        self._queue.clear()
        self.undecoded.clear()
        self.table.move(TableEvent.FAIL, error)
        log.error(
            "%s: table %s failed; its topics are not read until it is restarted: %s",
            *(self._connector, self.table.name, summary(error)),
        )
        return TableFailed(error)

    # -- what the assignment sends and asks ----------------------------------------------------------------------------

    def put(self, content: Content, origin: Origin) -> None:
        """Send content of a chunk. It is a part of its origin until it is durable."""
        origin.missing += 1
        part = Part(content, origin, content.size, len(content))
        self._arriving_bytes += part.size
        self._arriving_events += part.events
        self._agent.send(part)

    def take_undecoded(self) -> list[Arrived]:
        """Return the records that wait undecoded, which the caller decodes."""
        arrived, self.undecoded = self.undecoded, {}
        return [*arrived.values()]

    def send(self, message: Signal | Fail) -> None:
        self._agent.send(message)

    def flush(self, *, drain: bool = False) -> None:
        """Write without a linger what waits; with ``drain`` also more often than ``commits.per.hour`` allows."""
        signal = Signal.DRAIN if drain else Signal.FLUSH
        if signal not in self._flushes:
            self._flushes.add(signal)
            self._agent.send(signal)

    def _tick(self) -> None:
        self._agent.send(Signal.TICK)

    @property
    def memory(self) -> int:
        return self._queue.memory + self._arriving_bytes + sum(each.size for each in self.undecoded.values())

    @property
    def has_changes(self) -> bool:
        """Whether decoded changes wait for the next batch."""
        return self._queue.records + self._arriving_events > 0

    @property
    def waiting_events(self) -> int:
        undecoded = sum(len(each.chunk.records) for each in self.undecoded.values())
        return self._queue.records + self._arriving_events + undecoded

    @property
    def is_full(self) -> bool:
        """Whether a full batch waits already: reading more for the table would only take memory."""
        policy = self._task.options.batches
        return self._queue.size + self._arriving_bytes >= policy.max_bytes or self.waiting_events >= policy.max_records

    @property
    def is_idle(self) -> bool:
        return (
            self.table.is_held
            or self.table.state in (TableState.RETRYING, TableState.FAILED)
            or (not self._arriving_events and not self.undecoded and self._queue.is_idle)
        )

    @property
    def unwritten(self) -> Unwritten | None:
        """What has waited longest of the queue and the open batch."""
        return self._queue.oldest_unwritten

    def report(self) -> TableReport:
        """Return a report on the table."""
        oldest, to_epoch = self._queue.oldest_unwritten, time.time() - time.monotonic()
        in_batch = len(self._batch.content) if self._batch is not None else 0
        return replace(
            self.table.report(),
            waiting_events=self.waiting_events + in_batch,
            waiting_bytes=self.memory,
            oldest=None if oldest is None else oldest.since + to_epoch,
            freshness_target=self._target,
            oldest_source_time=None if oldest is None or not oldest.source_time else oldest.source_time / 1_000_000,
            details=self._details,
        )

    def _details(self) -> TableDetails:
        upkeep, reselect = self.table.upkeep, self._task.reselect.use_of(self.table.sources)
        compacted = None if upkeep.compacted is None else upkeep.compacted / 1_000_000
        return self.table.activity.details(upkeep.files, compacted, reselect)
