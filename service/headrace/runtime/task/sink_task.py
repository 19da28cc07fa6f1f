"""The way of a record, from a chunk of Kafka records to the commit of its offset.

    put        check the sequence -> decode (thread) -> bad records to the dead letter queue -> into the batch manager
    TableLane  per table, an agent: next batch -> BatchWriter -> TablePipeline.write (thread): fold, reselect, merge
    _written   changes of rows that could not be completed to the dead letter queue -> complete the batch -> commit the
               group's offsets, over chunks of which every table is durable

All methods run on the worker's event loop; decode and write run in threads and never on it. Reading is throttled, topic
by topic, when a table's queue holds a full batch that its writer has not taken yet, and where a table has failed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any, TypeVar

from headrace.converters.conversion import Conversion
from headrace.core.batch.batch import Batch, BatchManager, BatchPolicy, Piece
from headrace.core.batch.offsets import ChunkSequence
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.table_status import TableStatus
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.envelope_events import Errant
from headrace.core.model.column_defaults import ColumnDefaults
from headrace.core.model.errors import ConfigError, EngineFailed, Stage, remedy
from headrace.core.model.events import TableId, Truncate
from headrace.core.reselect.unresolved import LeftOut
from headrace.core.tables.field_selection import FieldSelection
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.table_sources import TableSources
from headrace.core.tables.table_topics import TableTopics
from headrace.ports import (
    Chunk,
    DeadLetterQueue,
    Feed,
    Lakehouse,
    OpenAgent,
    TableOptions,
    TopicPartition,
)
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.batch_writer import BatchWriter, partitions_of
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.committed_offsets import CommittedOffsets
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace.runtime.task.kept_records import KeptRecords
from headrace.runtime.task.table_lane import LaneOwner, TableLane
from headrace.runtime.task.write_gate import WriteGate
from headrace.runtime.task.written_tables import WrittenTables
from headrace.transforms.chain import Chain

log = logging.getLogger(__name__)

_T = TypeVar("_T")

COMMIT_INTERVAL = 5.0
"""Seconds after which offsets that moved without a batch, or could not be committed, are tried again."""


@dataclass(frozen=True, slots=True)
class SinkTaskOptions:
    """What a connector's configuration says to its tasks."""

    connector: str
    group: str
    namespace: str
    task: int = field(default=0, kw_only=True)
    naming: TableNaming
    envelope: EnvelopeOptions
    batches: BatchPolicy
    tables: TableOptions
    pipeline: PipelineOptions
    fields: FieldSelection = field(default_factory=FieldSelection)
    fills_defaults: bool = False
    dead_letters_unresolved: bool = False
    transforms: Chain = field(default_factory=Chain)
    tolerate_errors: bool = False
    isolate_tables: bool = True
    log_errors: bool = False
    log_messages: bool = False
    converters: Mapping[Stage, str] = field(default_factory=dict)


class SinkTask:
    """One task of a sink connector: a ``ports.FeedListener``, and the ``Task`` that a worker supervises."""

    def __init__(
        self,
        options: SinkTaskOptions,
        feed: Feed,
        open_agent: OpenAgent,
        lakehouse: Lakehouse,
        reselect: Reselect,
        dead_letter_queue: DeadLetterQueue | None,
        executor: Executor,
        on_failure: Callable[[BaseException], None],
        observer: Observer = NO_OBSERVER,
        conversion: Conversion | None = None,
    ) -> None:
        self._options = options
        self._feed = feed
        self._lakehouse = lakehouse
        self._reselect = reselect
        self._errants = ErrantReporter(
            f"{options.connector}-{options.task}",
            dead_letter_queue,
            tolerate_errors=options.tolerate_errors,
            log_errors=options.log_errors,
            log_messages=options.log_messages,
            converters=options.converters,
            observer=observer,
        )
        self._executor = executor
        self._on_failure = on_failure
        self._observer = observer
        self._sequence = ChunkSequence()
        self._batches = BatchManager(options.batches, holds_halves=not options.tables.history)
        self._decoder = ChunkDecoder(
            options.connector,
            options.envelope,
            options.transforms,
            options.fields,
            conversion,
            reselect,
            observer,
            self._in_thread,
        )
        self._pipelines = Pipelines(options.namespace, options.tables, options.pipeline, lakehouse, reselect, observer)
        self._topics = TableTopics()
        self._sources = TableSources(
            shared=options.tables.history or bool(options.envelope.key_fields) or options.transforms.merges,
            merged=options.transforms.merges,
        )
        self._lanes: dict[str, TableLane] = {}
        self._offsets = CommittedOffsets(
            options.connector, feed, reselect.cache.mark_durable, observer, self._in_thread
        )
        writer = self._writer = BatchWriter(
            options.connector,
            options.group,
            self._pipelines,
            self._offsets,
            observer,
            self._in_thread,
            WrittenTables(options.connector, options.group, recreate=options.tables.recreate),
        )
        self._assigned: Counter[str] = Counter()  # partitions by topic; a task has all of a topic's
        self._kept = KeptRecords(options.dead_letters_unresolved)
        self._committer: asyncio.Task[None] | None = None
        self._gate = WriteGate()
        self._lane_owner = LaneOwner(
            options.connector,
            options.isolate_tables,
            self._batches,
            writer,
            self._gate,
            open_agent,
            epoch=lambda: self._sequence.epoch,
            flush=lambda: self._flush,
            writes=self._throttle,
            written=self._written,
            idle=self._note_idle,
            failed=self._table_failed,
            changed=self._report_tables,
        )
        self._idle = asyncio.Event()
        self._flush = False
        self._failed = False

    # -- life cycle (the worker calls) ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Check warehouse and source, join the group, begin to read. Raises ConfigError, Retriable or Fatal."""
        await self._in_thread(self._lakehouse.check)
        await self._in_thread(self._reselect.check)
        self._observer.lag(self._feed.lag)
        self._report_tables()
        await self._feed.start(self)
        self._committer = asyncio.create_task(self._commit_regularly(), name=f"{self._options.connector} offsets")

    async def stop(self) -> None:
        """Finish the write in flight, commit what is durable, leave the group. Idempotent."""
        self._gate.close()
        self._feed.pause()
        await self._end_writes()
        if not self._failed:
            await self._offsets.commit()
        await self._close()

    async def leave(self) -> None:
        """Leave the group at once, with nothing committed; return when the write in flight has ended. Idempotent."""
        self._gate.close()
        await self._feed.stop()
        self._reselect.close_source()  # a write that waits for the database might do so without end
        await self._end_writes()
        await self._close()

    async def _close(self) -> None:
        await self._feed.stop()
        self._reselect.close()
        await self._errants.close()

    async def _end_writes(self) -> None:
        """Wait for the writes in flight and begin no other. The gate is closed."""
        await self._gate.quiet()
        await self._offsets.quiet()  # a commit that is cancelled on its way may arrive behind the last one
        if self._committer is not None:
            self._committer.cancel()
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(lane.stop() for lane in lanes.values()))

    async def pause(self) -> None:
        """Stop reading but stay in the group; what was read is still written and committed, and nothing afterwards.

        What is decoded only then waits for ``resume``.
        """
        self._feed.pause()
        self._flush = True
        while not self._is_idle:
            self._wake_all()
            self._idle.clear()
            await self._idle.wait()
        self._flush = False
        self._gate.hold()
        await self._gate.quiet()
        await self._offsets.commit()

    async def resume(self) -> None:
        """Read again."""
        self._gate.release()
        self._wake_all()
        self._feed.resume()

    @property
    def epoch(self) -> int:
        """The number of the current assignment."""
        return self._sequence.epoch

    def waiting(self, table: str) -> int:
        """Events that wait for a table's writer."""
        return self._batches.waiting(table)[0]

    # -- what the feed brings ------------------------------------------------------------------------------------------

    async def put(self, chunk: Chunk) -> None:
        """Decode a chunk and hand its changes to the batch manager."""
        try:
            if not self._sequence.admit(chunk.epoch, chunk.sequence, chunk.partition, chunk.begin, chunk.end):
                return
            await self._resume(chunk)
            if chunk.partition.topic in self._failed_topics:
                self._batches.block(chunk.partition, chunk.end)
            else:
                await self._take(chunk)
        except Exception as error:
            self.failed(error)

    async def _resume(self, chunk: Chunk) -> None:
        """The first chunk of a partition tells where the assignment begins."""
        if self._offsets.begins(chunk.partition, chunk.begin):
            await self._in_thread(self._reselect.cache.resume, *chunk.partition, chunk.begin)

    async def _take(self, chunk: Chunk) -> None:
        try:
            decoded = await self._decoder.decode(chunk)
            await self._errants.report(chunk.records, decoded.errant)
            self._decoder.heed(chunk, decoded)
            if chunk.epoch != self._sequence.epoch:  # revoked meanwhile: its new owner reads it
                return
            self._kept.keep(chunk)
            pieces = [(self._table_name(topic, chunk, piece), piece) for topic, piece in _topics(chunk, decoded)]
            pieces += self._new_columns(chunk.partition.topic, decoded)
        except Exception as error:
            await self._topic_failed(chunk, error)
            return
        self._observer.taken(chunk.partition, chunk.end, len(chunk.records))
        self._batches.add(chunk.partition, chunk.end, pieces, time.monotonic(), chunk.behind)
        for table in {name for name, _ in pieces}:
            (await self._lane(table)).wake()
        self._moved(self._batches.settled())
        self._throttle()

    def _new_columns(self, topic: str, decoded: Decoded) -> Iterator[tuple[str, Piece]]:
        """What rows have in columns that are added, by lake table; noted where nobody fills it in."""
        for change, version in decoded.altered:
            rows = f"{change.table.name}.{change.table.database}.{change.table.table}"
            if version.position and self._options.fills_defaults and rows in self._assigned:
                if change.defaults:
                    name = self._options.naming.name(rows, change.table)
                    yield name, ColumnDefaults(change.table, version, change.defaults)
            else:
                for note in change.unless_filled:
                    self._decoder.note(topic, note)

    async def assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """A new assignment: begin from the group's offsets with nothing in memory."""
        self._sequence.begin(epoch)
        self._drop()
        self._offsets.clear()
        self._kept.clear()
        self._assigned = Counter(partition.topic for partition in partitions)
        left = self._topics.keep(self._assigned)
        self._observer.left(left)
        await asyncio.gather(*(self._lanes.pop(table).stop() for table in left if table in self._lanes))
        self._report_tables()
        self._reselect.cache.assign(partitions)
        self._pipelines.begin_assignment()
        self._writer.assigned(self._feed.committed())
        self._observer.assigned(partitions)
        self._throttle()
        self._gate.open()
        log.info("%s: assigned %d partition(s)", self._options.connector, len(partitions))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Let the writes in flight finish and commit them; drop the rest, which its new owner reads again."""
        self._gate.close()
        await self._gate.quiet()
        await self._offsets.commit()
        self._sequence.begin(self._sequence.epoch + 1)
        self._drop()
        self._reselect.cache.revoke(partitions)

    def _drop(self) -> None:
        """Give back what waits; no queue is full any more."""
        self._batches.reset()
        self._observer.unwritten({})
        self._throttle()
        self._note_idle()

    def failed(self, error: BaseException) -> None:
        """Stop here: nothing more is written or committed, and the worker hears why. Only the first error counts."""
        if not self._failed:
            self._failed = True
            self._gate.close()
            self._feed.pause()
            self._note_idle()
            self._on_failure(error)

    # -- tables --------------------------------------------------------------------------------------------------------

    async def _lane(self, table: str) -> TableLane:
        """The lane of a table, which its first changes open."""
        if table not in self._lanes:
            lane = self._lanes[table] = TableLane(table, self._lane_owner)
            await lane.start()
        return self._lanes[table]

    def _wake_all(self) -> None:
        for lane in self._lanes.values():
            lane.wake()

    @property
    def _failed_topics(self) -> set[str]:
        """The topics of tables that have failed: nobody could write what they bring."""
        return self._topics.of(name for name, lane in self._lanes.items() if lane.state is TableState.FAILED)

    async def _topic_failed(self, chunk: Chunk, error: Exception) -> None:
        """A chunk cannot be decoded or assigned to a table: the tables of its topic fail."""
        if remedy(error).retry or not self._options.isolate_tables:
            raise error
        if chunk.epoch != self._sequence.epoch:  # its new owner reads it, and finds the same
            return
        topic = chunk.partition.topic
        self._batches.block(chunk.partition, chunk.end)
        for table in self._topics.tables(topic) or [self._table_of(topic)]:
            self._topics.add(table, topic)
            await self._lane(table)
            self._table_failed(table, error)

    def _table_failed(self, table: str, error: Exception) -> None:
        """Fail one table, and the task once no topic is left, or at once with ``errors.isolation=task``."""
        if not self._options.isolate_tables or remedy(error).retry or isinstance(error, EngineFailed):
            self.failed(error)
            return
        self._lanes[table].fail(error)
        self._batches.fail(table)
        self._throttle()
        self._observer.unwritten(self._batches.unwritten())
        self._note_idle()
        if self._failed_topics >= set(self._assigned):
            self.failed(error)

    def _table_of(self, topic: str) -> str:
        """What a table would be called of which the topic has shown no change yet."""
        try:
            return self._options.naming.name(topic, TableId("", "", "", topic))
        except ConfigError:  # its name depends on the source table, which nobody knows
            return topic

    def _report_tables(self) -> None:
        self._observer.tables(self.tables())

    def tables(self) -> Sequence[TableStatus]:
        """The tables that do not run."""
        return [lane.status for lane in self._lanes.values() if lane.status is not None]

    async def _written(self, batch: Batch, left_out: Sequence[LeftOut], epoch: int) -> None:
        """A batch is durable: its offsets may be committed. What fails here concerns the whole task."""
        try:
            # Otherwise fenced: the new owner writes the batch again, without effect.
            if epoch == self._sequence.epoch and self._lanes[batch.table].state is not TableState.FAILED:
                await self._report_left_out(left_out)
                self._moved(self._batches.complete(batch.id))
                await self._offsets.commit()
        except Exception as error:
            self.failed(error)
            return
        await self._maintain(batch)

    async def _maintain(self, batch: Batch) -> None:
        """Maintain a table if that is due. Its batch is complete: a passing failure waits for the next batch."""
        try:
            await self._in_thread(self._pipelines.open_table(batch).pipeline.maintain)
        except Exception as error:
            if not remedy(error).retry:
                raise
            log.warning(
                "%s: upkeep of table %s failed and is tried again: %s", self._options.connector, batch.table, error
            )

    async def _report_left_out(self, left_out: Sequence[LeftOut]) -> None:
        """Changes whose rows could not be completed go where bad records go, before any offset passes them."""
        for each in left_out:
            partition = TopicPartition(each.version.topic, each.version.partition)
            record = self._kept.record(partition, each.version.offset)
            await self._errants.report([record], [Errant(0, Stage.TASK_PUT, each.error)])
            self._reselect.cache.lose(*partition, each.version.offset)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing is written or waits that could be written now."""
        blocked = {name for name, lane in self._lanes.items() if lane.is_blocked}
        return self._failed or self._batches.is_idle(without=blocked)

    def _note_idle(self) -> None:
        if self._is_idle:
            self._idle.set()
        else:
            self._idle.clear()

    def _throttle(self) -> None:
        self._feed.throttle(self._topics.of(self._batches.crowded()) | self._failed_topics)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _moved(self, offsets: Mapping[object, int]) -> None:
        self._observer.unwritten(self._batches.unwritten())
        self._offsets.moved(partitions_of(offsets))
        self._kept.forget(partitions_of(offsets))

    async def _commit_regularly(self) -> None:
        try:
            while True:
                await asyncio.sleep(COMMIT_INTERVAL)
                await self._offsets.commit()
        except Exception as error:
            self.failed(error)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _table_name(self, topic: str, chunk: Chunk, piece: Piece) -> str:
        """The table of a piece; ``topic`` is the one that transforms have given it, the chunk's is what is read."""
        name = self._options.naming.name(topic, piece.table)
        whole_name = f"{self._options.namespace}.{name}"
        self._sources.admit(whole_name, piece.table, topic)
        if isinstance(piece, Truncate) and not self._options.tables.history:
            self._sources.admit_truncate(whole_name, piece, topic, self._assigned[chunk.partition.topic])
        self._topics.add(name, chunk.partition.topic)
        return name

    async def _in_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(
            self._executor, partial(copy_context().run, function, *args)
        )


def _topics(chunk: Chunk, decoded: Decoded) -> Iterable[tuple[str, Piece]]:
    return zip(decoded.topics or repeat(chunk.partition.topic, len(decoded.pieces)), decoded.pieces, strict=True)
