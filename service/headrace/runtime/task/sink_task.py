"""The way of a record, from a chunk of Kafka records to the commit of its offset.

    SinkTask    put: decode (thread) -> bad records to the dead letter queue -> address changes to tables
    Assignment  sends them to the lanes of their tables, and commits the offsets of what is durable in every table;
                few records of a table that waits for a thread wait with it, and are decoded then
    TableLane   per table, an agent: next batch -> TablePipeline.write (thread): fold, reselect, merge

The task has one assignment at a time. A rebalance ends it, and begins another one with empty queues. All methods run on
the worker's event loop; decode and write run in threads and never on it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence

from headrace.core.batch.table_queue import FAR_BEHIND
from headrace.core.connect.paused_tables import PausedTables
from headrace.core.connect.status import TableReport, TableStatus, with_verifications
from headrace.core.decode.decoded import Decoded
from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.errors import ConfigError, remedy
from headrace.core.model.events import Content, TableId, Truncate
from headrace.core.model.proof import VerificationReport
from headrace.ports import Chunk, OffsetNote, TopicPartition
from headrace.runtime.task.arrived_records import Arrived
from headrace.runtime.task.assignment import Addressed, Assignment
from headrace.runtime.task.load_notes import LoadNotes
from headrace.runtime.task.slot_watch import watch_slots
from headrace.runtime.task.task_parts import SinkTaskParts
from headrace.runtime.task.task_tables import AbsentTopics
from headrace.runtime.threads import run_in

log = logging.getLogger(__name__)

COMMIT_INTERVAL = 5.0
"""Seconds between commits of offsets that moved without a batch, or whose commit failed; and between reports of topics
that do not exist."""


class SinkTask:
    """One task of a sink connector: a ``ports.FeedListener``, and the ``Task`` that a worker supervises."""

    def __init__(self, parts: SinkTaskParts, on_failure: Callable[[BaseException], None]) -> None:
        self._parts, self._options, self._feed = parts, parts.options, parts.feed
        self._on_failure = on_failure
        self._former: set[asyncio.Task[None]] = set()  # assignments whose last write a rebalance did not wait for
        self._commit_turn, self._decoding = asyncio.Lock(), asyncio.Lock()
        self._beside: list[asyncio.Task[None]] = []  # what runs beside the chunks, from the start to the end
        self._is_paused = self._has_failed = self._has_joined = False
        self._assignment = self._new_assignment(-1, (), {})  # until the group assigns partitions
        self._assignment.drop()
        self.waits_for = ""

    # -- life cycle (the worker calls) ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Check warehouse and source, join the group, begin to read. Raises ConfigError, Retriable or Fatal."""
        parts, connector = self._parts, self._options.connector
        if self._options.task == 0:
            parts.errants.note_drops()
        self.waits_for = "Spark and the warehouse"
        await run_in(None, parts.lakehouse.check)
        self.waits_for = "the source database"
        await run_in(None, parts.reselect.check)
        self.waits_for = "the brokers, to join its consumer group"
        parts.observer.watch_lag(self._feed.lag)
        parts.observer.watch_unwritten(lambda: self._assignment.unwritten())
        parts.observer.watch_targets(self._options.batches.target)
        parts.tables.watch_lag(self._feed.lag)
        parts.observer.watch_loads(parts.tables.loads)
        parts.observer.watch_verifications(self._verifications)
        parts.resources.slots.join(connector)
        parts.resources.memory.subscribe(self._throttle)
        self._has_joined = True
        parts.tables.report_states()
        await self._feed.start(self)
        beside = {"offsets": self._commit_regularly()}
        if parts.verification is not None:
            beside["verification"] = parts.verification.run(self._topics_to_verify, self._on_repair)
        if self._options.task == 0:  # the databases are those of the connector
            beside["slots"] = watch_slots(connector, parts.reselect.slots, parts.observer)
        self._beside = [asyncio.create_task(work, name=f"{connector} {name}") for name, work in beside.items()]

    async def stop(self) -> None:
        """Finish the write in flight, commit what is durable, leave the group. Idempotent."""
        self._assignment.close()
        self._feed.pause()
        await self._end_assignments()
        if not self._has_failed:
            await self._assignment.commit()
        await self._close()

    async def leave(self) -> None:
        """Leave the group at once without a commit; return when the writes in progress have ended. Idempotent."""
        self._assignment.close()
        await self._feed.stop()
        self._parts.reselect.close_source()  # a write that waits for the database might do so without end
        await self._end_assignments()
        await self._close()

    async def _end_assignments(self) -> None:
        """Wait for the writes in progress. No other begins."""
        oldest = self._assignment.unwritten()  # shown until the next run of the task has an assignment
        self._parts.observer.watch_unwritten(lambda: oldest)
        self._parts.observer.watch_loads(dict)
        self._parts.observer.watch_verifications(dict)
        await self._assignment.end()
        await asyncio.gather(*self._former)
        for task in self._beside:
            task.cancel()
        await self._parts.upkeep.stop()
        if self._has_joined:
            self._has_joined = False
            self._parts.resources.memory.unsubscribe(self._throttle)
            self._parts.resources.slots.leave(self._options.connector)

    async def _close(self) -> None:
        await self._feed.stop()
        if self._parts.verification is not None:
            self._parts.verification.close()
        self._parts.reselect.close()
        await self._parts.errants.close()

    async def pause(self) -> None:
        """Stop reading but stay in the group. Changes that were read are written and committed before it returns.

        What is decoded only then waits for ``resume``.
        """
        self._is_paused = True
        self._feed.pause()
        await self._assignment.pause()
        self._parts.tables.pause()

    async def resume(self) -> None:
        """Continue reading and writing."""
        self._is_paused = False
        self._parts.tables.resume()
        self._assignment.resume()
        self._feed.resume()

    def on_failure(self, error: BaseException) -> None:
        """Stop writing and committing, and report the error to the worker. Later errors are ignored."""
        if not self._has_failed:
            self._has_failed = True
            self._assignment.close()
            self._feed.pause()
            self._on_failure(error)

    # -- assignments ---------------------------------------------------------------------------------------------------

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Begin an assignment at the committed offsets, with empty queues."""
        if not self._assignment.is_over:
            self._assignment.drop()
            ending = asyncio.create_task(self._assignment.end(), name=f"{self._options.connector} former assignment")
            self._former.add(ending)
            ending.add_done_callback(self._former.discard)
        parts = self._parts
        parts.reselect.cache.assign(partitions)
        parts.pipelines.begin_assignment()
        assignment = self._new_assignment(epoch, partitions, self._feed.committed())
        parts.tables.begin_assignment(assignment.partitions)
        self._assignment = assignment
        assignment.throttle()
        parts.observer.on_assignment(partitions)
        log.info("%s: assigned %d partition(s)", self._options.connector, len(partitions))

    def _new_assignment(
        self, epoch: int, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, OffsetNote]
    ) -> Assignment:
        parts, turn = self._parts, self._commit_turn
        return Assignment(epoch, partitions, committed, parts, turn, self.on_failure, self.put, paused=self._is_paused)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish and commit the writes in progress. Discard the rest, which its new owner reads again."""
        await self._assignment.revoke()
        self._parts.reselect.cache.revoke(partitions)

    @property
    def epoch(self) -> int:
        """The number of the current assignment; -1 before the first."""
        return self._assignment.epoch

    async def _commit_regularly(self) -> None:
        absent = AbsentTopics(self._options.connector, self._feed, self._parts.observer)
        loads = LoadNotes(self._options.connector, self._parts.observer)
        try:
            while True:
                await asyncio.sleep(COMMIT_INTERVAL)
                if self._options.task == 0:  # one task reports them: each has the topics of the complete connector
                    absent.report()
                self._parts.freshness.report(time.monotonic())
                loads.report(self._parts.tables.loads(), time.time())
                await self._assignment.commit()
                current = Counter(partition.topic for partition, records in self._feed.lag().items() if not records)
                partitions = self._assignment.partitions.items()
                self._parts.tables.on_caught_up([topic for topic, count in partitions if current[topic] == count])
        except Exception as error:
            self.on_failure(error)

    # -- chunks --------------------------------------------------------------------------------------------------------

    async def put(self, chunks: Sequence[Chunk | Arrived], assignment: Assignment | None = None) -> None:
        """Decode the chunks of a poll, or what has waited in ``assignment``, and send the changes to their lanes.

        Chunks of a poll may wait for the next batch of their table instead. What comes first is decoded first.
        """
        assignment = assignment or self._assignment
        parts = self._parts
        try:
            arrived = [each for each in chunks if isinstance(each, Arrived)]
            new = [chunk for chunk in chunks if isinstance(chunk, Chunk) and assignment.admit(chunk)]
            for chunk in new:
                if assignment.offsets.begins(chunk.partition, chunk.begin):
                    decoding, resume = parts.resources.threads.decoding, parts.reselect.cache.resume
                    await run_in(decoding, resume, *chunk.partition, chunk.begin)
            arrived += [each for chunk in new for each in assignment.arrive(chunk)]
            async with self._decoding:
                decoded: deque[Decoded] = deque()
                for number, each in enumerate(arrived):
                    chunk, topic = each.chunk, each.chunk.partition.topic
                    result = decoded.popleft() if decoded else None
                    if topic in parts.tables.failed_topics:
                        continue  # no offset passes its origin
                    try:
                        if result is None:
                            result, *rest = await parts.decoder.decode([later.chunk for later in arrived[number:]])
                            decoded.extend(rest)
                        await parts.errants.report(chunk.records, result.errant)
                        contents = parts.router.apply(topic, result.messages, assignment.partitions)
                        parts.router.note(topic, result.notes)
                        if assignment.is_over:  # its new owner reads the chunk
                            return
                        addressed = [self._address(assignment, topic, *content) for content in contents]
                    except Exception as error:
                        if remedy(error).retry or not self._options.isolate_tables:
                            raise
                        if assignment.is_over:  # its new owner reads the chunk, and finds the same
                            return
                        await self.on_topic_failure(topic, error)
                        continue
                    parts.observer.on_chunk_taken(chunk.partition, chunk.end, len(chunk.records))
                    await assignment.put(each, addressed)
        except Exception as error:
            if not assignment.is_over:  # else the next one reads the records again
                self.on_failure(error)

    def _address(self, assignment: Assignment, topic: str, topic_of_rows: str, content: Content) -> Addressed:
        """The table of content. ``topic`` is the one that is read, which transforms may have changed for the rows."""
        options, sources = self._options, self._parts.sources
        name = options.naming.name(topic_of_rows, content.table)
        if isinstance(content, ColumnDefaults):  # of the schema-change topic, which must not wait for one table
            return Addressed(name, topic_of_rows, content)
        whole_name = f"{options.namespace}.{name}"
        sources.admit(whole_name, content.table, topic_of_rows)
        if isinstance(content, Truncate) and not options.tables.history:
            sources.admit_truncate(whole_name, content, topic_of_rows, assignment.partitions[topic])
        return Addressed(name, topic, content)

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        """Fail the tables of a topic that cannot be decoded, or is not what the group has read of it."""
        if not self._options.isolate_tables:
            self.on_failure(error)
            return
        names = self._parts.tables.of_topic(topic)
        if not names:  # it has contained no change yet
            try:
                names = [self._options.naming.name(topic, TableId("", "", "", topic))]
            except ConfigError:  # its name depends on the source table, which is unknown
                names = [topic]
        await self._assignment.fail_topic(topic, names, error)

    # -- tables --------------------------------------------------------------------------------------------------------

    def waiting(self, table: str) -> int:
        lane = self._assignment.lanes.get(table)
        return 0 if lane is None else lane.waiting_events

    def tables(self) -> Sequence[TableStatus]:
        return self._parts.tables.statuses()

    def topics(self) -> Collection[str]:
        return self._assignment.partitions.keys()

    def _topics_to_verify(self) -> Collection[str]:
        """Return the assigned topics whose tables are nearly current: in others most rows would differ for a while."""
        if self._is_paused or self._has_failed or self._assignment.is_over:
            return ()
        lag: Counter[str] = Counter()
        for partition, records in self._feed.lag().items():
            lag[partition.topic] += records
        tables = self._parts.tables
        topics = self._assignment.partitions.keys() - tables.failed_topics - tables.paused_topics
        return [topic for topic in topics if lag[topic] <= FAR_BEHIND]

    def reports(self) -> Sequence[TableReport]:
        """Return a report on each table."""
        lanes = self._assignment.lanes
        reports = self._parts.tables.reports(lambda table: (lanes.get(table.name) or table).report())
        return with_verifications(reports, self._verifications())

    def _on_repair(self, source: TableId, table: str, rows: int) -> None:
        self._parts.reselect.cache.begin_snapshot(source)  # the cache may have the value that made a row wrong
        self._parts.observer.on_repair(table, rows)

    def _verifications(self) -> Mapping[str, VerificationReport]:
        """Return the reports on the verifications of the assigned tables."""
        verification = self._parts.verification
        return {} if verification is None else verification.reports(self._assignment.partitions.keys())

    def restart_table(self, table: str, *, recreate: bool = False) -> bool:
        """Restart a table: open it again, and read from the committed offsets. Return False for an unknown table.

        As in a rebalance, all tables of the task discard their queues and read these changes again. With ``recreate``
        a table that is missing, or behind the group, continues at the group's offsets.
        """
        if not self._parts.tables.restart(table, recreate=recreate):
            return False
        log.info("%s: table %s is restarted%s", self._options.connector, table, " (missing=recreate)" * recreate)
        self._parts.pipelines.discard(table)
        self._feed.rewind()
        return True

    def set_paused_tables(self, paused: PausedTables) -> None:
        """Pause exactly these tables, also before ``start``.

        A write in progress ends. Changes that were read wait in memory, and are read again after a rebalance.
        """
        resumed = self._parts.tables.set_paused(paused)
        if not self._assignment.is_over:
            self._assignment.resume_tables(resumed)

    def _throttle(self) -> None:
        if not self._assignment.is_over:
            self._assignment.throttle()
