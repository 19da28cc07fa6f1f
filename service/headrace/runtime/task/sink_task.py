"""The way of a record, from a chunk of Kafka records to the commit of its offset.

    put        check the sequence -> decode (thread) -> bad records to the dead letter queue -> lanes of the tables
    TableLane  per table, an agent: next batch -> BatchWriter -> TablePipeline.write (thread): fold, reselect, merge
    written    changes of rows that could not be completed to the dead letter queue -> commit the group's offsets, over
               chunks of which every table is durable

All methods run on the worker's event loop; decode and write run in threads and never on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from headrace.converters.conversion import Conversion
from headrace.core.batch.batch import Batch, Content
from headrace.core.batch.event_pairs import resumable
from headrace.core.batch.offsets import ChunkSequence, OffsetTracker, Origin
from headrace.core.connect.table_status import TableReport, TableStatus
from headrace.core.decode.envelope_events import Errant
from headrace.core.decode.record_decoder import Sources
from headrace.core.model.column_defaults import ColumnDefaults
from headrace.core.model.errors import ConfigError, Stage, remedy
from headrace.core.model.events import TableId, Truncate
from headrace.core.reselect.unresolved import OmittedChange
from headrace.core.tables.table_sources import TableSources
from headrace.ports import (
    Chunk,
    DeadLetterQueue,
    Feed,
    Lakehouse,
    TopicPartition,
)
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.absent_topics import AbsentTopics
from headrace.runtime.task.batch_writer import BatchWriter, partitions_of
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.committed_offsets import CommittedOffsets
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace.runtime.task.message_router import MessageRouter
from headrace.runtime.task.options import SinkTaskOptions
from headrace.runtime.task.resources import TaskResources
from headrace.runtime.task.table_lanes import Addressed, TableLanes
from headrace.runtime.task.table_ownership import TableOwnership
from headrace.runtime.task.table_upkeep import TableUpkeep
from headrace.runtime.task.uncommitted_records import UncommittedRecords
from headrace.runtime.task.write_gate import WriteGate
from headrace.runtime.task.written_tables import WrittenTables
from headrace.runtime.threads import run_in

log = logging.getLogger(__name__)

COMMIT_INTERVAL = 5.0
"""Seconds between commits of offsets that moved without a batch, or whose commit failed; and between reports of topics
that do not exist."""


class SinkTask:
    """One task of a sink connector: a ``ports.FeedListener``, and the ``Task`` that a worker supervises."""

    def __init__(
        self,
        options: SinkTaskOptions,
        feed: Feed,
        lakehouse: Lakehouse,
        reselect: Reselect,
        dead_letter_queue: DeadLetterQueue | None,
        resources: TaskResources,
        on_failure: Callable[[BaseException], None],
        observer: Observer = NO_OBSERVER,
        conversion: Conversion | None = None,
        sources: Sources | None = None,
        blocked: Sequence[TableStatus] = (),
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
        self._threads = resources.threads
        self._on_failure = on_failure
        self._observer = observer
        self._sequence = ChunkSequence()
        self._decoder = ChunkDecoder(
            options.connector,
            options.envelope,
            options.transforms,
            options.fields,
            conversion,
            sources or {},
            reselect.catalog,
            observer,
            partial(run_in, self._threads.decoding),
        )
        self._router = MessageRouter(options.connector, reselect, observer, fills_defaults=options.fills_defaults)
        self._pipelines = Pipelines(options.namespace, options.tables, options.pipeline, lakehouse, reselect, observer)
        self._upkeep = TableUpkeep(
            options.connector, self._pipelines, self._threads.maintenance, options.tables.maintenance, observer
        )
        self._sources = TableSources(
            shared=options.tables_are_shared,
            merged=options.transforms.merges,
        )
        self._chunks = OffsetTracker()
        self._offsets = CommittedOffsets(
            options.connector, feed, reselect.cache.mark_durable, observer, partial(run_in, self._threads.decoding)
        )
        self._writer = BatchWriter(
            options.connector,
            options.group,
            self._pipelines,
            self._offsets,
            observer,
            partial(run_in, self._threads.writing),
            WrittenTables(options.connector, options.group, recreate=options.tables.recreate),
            TableOwnership(
                options.connector,
                options.group,
                shared=options.tables_are_shared,
                adopts_from=options.adopts_from,
            ),
        )
        self._gate = WriteGate()
        self._lanes = TableLanes(
            options.connector,
            options.batches,
            self,
            feed,
            self._writer,
            self._gate,
            resources,
            observer,
            isolation=options.isolate_tables,
            holds_halves=not options.tables.history,
            blocked=blocked if options.isolate_tables else (),
        )
        self._assigned: Counter[str] = Counter()  # partitions by topic; a task has all of a topic's
        self._kept = UncommittedRecords(options.dead_letters_unresolved)
        # Of several tasks the first reports them: each of them knows all topics of the connector.
        self._absent_topics = AbsentTopics(options.connector, feed, observer) if options.task == 0 else None
        self._committer: asyncio.Task[None] | None = None
        self.waits_for = ""
        self._failed = False

    # -- life cycle (the worker calls) ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Check warehouse and source, join the group, begin to read. Raises ConfigError, Retriable or Fatal."""
        if self._options.task == 0:
            self._errants.note_drops()
        self.waits_for = "Spark and the warehouse"
        await run_in(None, self._lakehouse.check)
        self.waits_for = "the source database"
        await run_in(None, self._reselect.check)
        self.waits_for = "the brokers, to join its consumer group"
        self._observer.lag(self._feed.lag)
        self._lanes.start()
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
        """Leave the group at once without a commit; return when the writes in progress have ended. Idempotent."""
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
        """Wait for the writes in progress. The gate is closed, so that no other begins."""
        await self._gate.quiet()
        await self._offsets.quiet()  # a commit that is cancelled on its way may arrive behind the last one
        if self._committer is not None:
            self._committer.cancel()
        await self._lanes.stop()
        await self._upkeep.stop()

    async def pause(self) -> None:
        """Stop reading but stay in the group. Changes that were read are written and committed before it returns.

        What is decoded only then waits for ``resume``.
        """
        self._feed.pause()
        await self._lanes.flush()
        self._gate.hold()
        await self._gate.quiet()
        self._lanes.pause()
        await self._offsets.commit()

    async def resume(self) -> None:
        """Continue reading and writing."""
        self._gate.release()
        self._lanes.resume()
        self._feed.resume()

    @property
    def epoch(self) -> int:
        """The number of the current assignment."""
        return self._sequence.epoch

    def waiting(self, table: str) -> int:
        """Return the number of events that wait to be written to a table."""
        return self._lanes.waiting(table)

    def tables(self) -> Sequence[TableStatus]:
        """The tables that are retried or have failed."""
        return self._lanes.statuses()

    def reports(self) -> Sequence[TableReport]:
        """Return a report on each table."""
        return self._lanes.reports()

    def restart_table(self, table: str) -> bool:
        """Restart a table: open it again, and read from the committed offsets. Return False for an unknown table.

        As in a rebalance, all tables of the task discard their queues and read these changes again.
        """
        if not self._lanes.restart(table):
            return False
        log.info("%s: table %s is restarted", self._options.connector, table)
        self._pipelines.discard(table)
        self._feed.rewind()
        return True

    # -- what the feed brings ------------------------------------------------------------------------------------------

    async def put(self, chunk: Chunk) -> None:
        """Decode a chunk and hand its changes to the lanes of their tables."""
        try:
            if not self._sequence.admit(chunk.epoch, chunk.sequence, chunk.partition, chunk.begin, chunk.end):
                return
            if self._offsets.begins(chunk.partition, chunk.begin):  # the first chunk of an assignment
                await run_in(self._threads.decoding, self._reselect.cache.resume, *chunk.partition, chunk.begin)
            if chunk.partition.topic in self._lanes.failed_topics:
                self._chunks.begin(chunk.partition, chunk.end, time.monotonic())  # no offset passes it
            else:
                await self._take(chunk)
        except Exception as error:
            self.failed(error)

    async def _take(self, chunk: Chunk) -> None:
        try:
            decoded = await self._decoder.decode(chunk)
            await self._errants.report(chunk.records, decoded.errant)
            queued = self._router.apply(chunk.partition.topic, decoded.messages, self._assigned)
            self._router.note(chunk.partition.topic, decoded.notes)
            if chunk.epoch != self._sequence.epoch:  # revoked meanwhile: its new owner reads it
                return
            self._kept.keep(chunk)
            contents = [self._addressed(chunk, topic, content) for topic, content in queued]
        except Exception as error:
            await self._topic_failed(chunk, error)
            return
        self._observer.taken(chunk.partition, chunk.end, len(chunk.records))
        end = resumable(chunk.end, [content for _, content in queued], chunk.behind)
        origin = self._chunks.begin(chunk.partition, end, time.monotonic(), chunk.behind)
        await self._lanes.put(contents, origin)
        self._moved(self._chunks.done([origin]))

    async def assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin an assignment at the committed offsets, with empty queues."""
        self._sequence.begin(epoch)
        self._chunks.clear()
        self._offsets.clear()
        self._kept.clear()
        self._assigned = Counter(partition.topic for partition in partitions)
        await self._lanes.assigned(self._assigned)
        self._reselect.cache.assign(partitions)
        self._pipelines.begin_assignment()
        self._writer.assigned(self._feed.committed())
        self._observer.assigned(partitions)
        self._gate.open()
        log.info("%s: assigned %d partition(s)", self._options.connector, len(partitions))

    async def topic_failed(self, topic: str, error: Exception) -> None:
        """Fail the tables of a topic that is not what the group has read of it."""
        if self._options.isolate_tables:
            await self._lanes.fail_topic(topic, self._table_of(topic), error)
        else:
            self.failed(error)

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish and commit the writes in progress. Discard the rest, which its new owner reads again."""
        self._gate.close()
        await self._gate.quiet()
        await self._offsets.commit()
        self._sequence.begin(self._sequence.epoch + 1)
        self._chunks.clear()
        self._lanes.clear()
        self._reselect.cache.revoke(partitions)

    def failed(self, error: BaseException) -> None:
        """Stop writing and committing, and report the error to the worker. Later errors are ignored."""
        if not self._failed:
            self._failed = True
            self._gate.close()
            self._feed.pause()
            self._lanes.idle()
            self._on_failure(error)

    # -- tables --------------------------------------------------------------------------------------------------------

    async def _topic_failed(self, chunk: Chunk, error: Exception) -> None:
        """Fail the tables of a topic with a chunk that cannot be decoded or assigned to a table."""
        if remedy(error).retry or not self._options.isolate_tables:
            raise error
        if chunk.epoch == self._sequence.epoch:  # otherwise its new owner reads it, and finds the same
            topic = chunk.partition.topic
            self._chunks.begin(chunk.partition, chunk.end, time.monotonic())  # no offset passes it
            await self._lanes.fail_topic(topic, self._table_of(topic), error)

    def _table_of(self, topic: str) -> str:
        """Return the name of the table of a topic that has contained no change yet."""
        try:
            return self._options.naming.name(topic, TableId("", "", "", topic))
        except ConfigError:  # its name depends on the source table, which nobody knows
            return topic

    async def written(self, batch: Batch, origins: Sequence[Origin], omitted: Sequence[OmittedChange]) -> None:
        """Commit the offsets of a durable batch (``table_lanes.LaneOwner``)."""
        await self._report_omitted(omitted)
        self._moved(self._chunks.done(origins))
        await self._offsets.commit()

    async def maintain(self, batch: Batch) -> None:
        """Maintain a table if due (``table_lanes.LaneOwner``)."""
        await self._upkeep.run(batch)

    async def _report_omitted(self, omitted: Sequence[OmittedChange]) -> None:
        """Report the records of omitted changes as bad records, before their offsets are committed."""
        for each in omitted:
            partition = TopicPartition(each.version.topic, each.version.partition)
            record = self._kept.record(partition, each.version.offset)
            await self._errants.report([record], [Errant(0, Stage.TASK_PUT, each.error)])
            self._reselect.cache.lose(*partition, each.version.offset)

    # -- offsets -------------------------------------------------------------------------------------------------------

    def _moved(self, offsets: Mapping[object, int]) -> None:
        self._offsets.moved(partitions_of(offsets))
        self._kept.discard(partitions_of(offsets))

    async def _commit_regularly(self) -> None:
        try:
            while True:
                await asyncio.sleep(COMMIT_INTERVAL)
                if self._absent_topics is not None:
                    self._absent_topics.report()
                await self._offsets.commit()
                self._lanes.caught_up(self._topics_without_lag())
        except Exception as error:
            self.failed(error)

    def _topics_without_lag(self) -> Collection[str]:
        """Return the topics of which every partition is known to be committed up to its end."""
        current = Counter(partition.topic for partition, records in self._feed.lag().items() if not records)
        return [topic for topic, partitions in self._assigned.items() if current[topic] == partitions]

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _addressed(self, chunk: Chunk, topic: str, content: Content) -> Addressed:
        """The table of content; ``topic`` is that of its rows after transforms, the chunk's is the one that is read."""
        name = self._options.naming.name(topic, content.table)
        if isinstance(
            content, ColumnDefaults
        ):  # from the schema-change topic, which must not be throttled for the table
            return Addressed(name, topic, content)
        whole_name = f"{self._options.namespace}.{name}"
        self._sources.admit(whole_name, content.table, topic)
        if isinstance(content, Truncate) and not self._options.tables.history:
            self._sources.admit_truncate(whole_name, content, topic, self._assigned[chunk.partition.topic])
        return Addressed(name, chunk.partition.topic, content)
