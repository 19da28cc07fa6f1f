"""Write the batches of a task's tables, unless the group has assigned their partitions to another worker."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.core.batch.batch import Batch, Content
from headrace.core.batch.event_pairs import TooLarge, divide
from headrace.core.batch.watermarks import Watermarks
from headrace.core.merge.history import next_offsets
from headrace.core.model.errors import EngineOutOfMemory, Fenced
from headrace.core.model.events import Changes
from headrace.core.reselect.unresolved import OmittedChange
from headrace.ports import Commit, OffsetNote, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.pipelines import Pipeline, Pipelines
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.task.committed_offsets import CommittedOffsets, InThread
from headrace.runtime.task.table_ownership import TableOwnership
from headrace.runtime.task.written_tables import WrittenTables

log = logging.getLogger(__name__)

_MOST_PARTS = 256


class BatchWriter:
    """Writes batches in threads; batches of several tables at the same time."""

    def __init__(
        self,
        connector: str,
        group: str,
        pipelines: Pipelines,
        offsets: CommittedOffsets,
        observer: Observer,
        in_thread: InThread,
        tables: WrittenTables,
        ownership: TableOwnership,
    ) -> None:
        self._connector = connector
        self._group = group
        self._pipelines = pipelines
        self._offsets = offsets
        self._observer = observer
        self._in_thread = in_thread
        self._tables = tables
        self._ownership = ownership
        self._watermarks = Watermarks()
        self._parts: dict[str, tuple[int, int]] = {}  # of the batch with this id, by table

    def assigned(self, committed: Mapping[TopicPartition, OffsetNote]) -> None:
        """Begin an assignment with the committed offsets and notes of its partitions."""
        self._watermarks.begin(partition.topic for partition in committed)
        self._tables.begin(committed)

    async def write(self, batch: Batch) -> Sequence[OmittedChange] | None:
        """Make a batch durable. Return the omitted changes, or None if the batch is left to another worker.

        After an error that passes call it again with the same batch.
        """
        started = time.monotonic()
        name, lake, pipeline = await self._in_thread(self._pipelines.open_table, batch)  # the first one starts Spark
        await self._in_thread(self._tables.check, name, lake, self._tables.required(name))
        await self._in_thread(self._ownership.register, name, lake, batch.content, self._offsets.topic_ids)
        # The commit contains all offsets that the table is known to contain: earlier commits may be expired.
        offsets = {**self._tables.required(name), **partitions_of(batch.offsets)}
        commit = Commit(batch.id, self._connector, self._group, offsets, self._watermarks.reached(batch))
        omitted: list[OmittedChange] = []
        waiting = self._portions(batch)
        while waiting:
            if await self._in_thread(pipeline.prepare) and not await self._still_ours(batch):
                return None
            content = waiting.pop(0)
            part = replace(commit, offsets=_reached(content), watermark=-1) if waiting else commit
            try:
                omitted += await self._in_thread(pipeline.write, content, part)
            except EngineOutOfMemory:
                self._expect_smaller(batch)
                raise
            except TooLarge as error:
                if not isinstance(content, Changes):
                    raise
                log.info("%s: %s: %s", self._connector, batch.table, error)
                waiting[:0] = divide(content, error.parts)
        self._pass_on_notes(pipeline)
        if self._group:
            self._offsets.note(self._tables.written(name, await self._in_thread(lake.reached, self._group)))
        self._parts.pop(batch.table, None)
        self._observer.written(batch, time.monotonic() - started, time.time())
        return omitted

    def _pass_on_notes(self, pipeline: Pipeline) -> None:
        notes = pipeline.notes if isinstance(pipeline, TablePipeline) else []
        while notes:
            topic, note = notes.pop(0)
            log.warning("%s: %s: %s", self._connector, note.subject(topic), note.text)
            self._observer.noted(note.text, note.subject(topic))

    def _portions(self, batch: Batch) -> list[Content]:
        """Return the content of a batch, in parts if it ran out of memory before."""
        identity, parts = self._parts.get(batch.table, (batch.id, 1))
        if identity != batch.id or parts == 1 or not isinstance(batch.content, Changes):
            return [batch.content]
        return [*divide(batch.content, parts)]

    def _expect_smaller(self, batch: Batch) -> None:
        """Write a batch that ran out of memory in twice as many parts. Tables that were written beside it as well.

        Their rows go into the same heap, so that nobody knows which of them were too many.
        """
        identity, parts = self._parts.get(batch.table, (batch.id, 1))
        parts = min(2 * parts, _MOST_PARTS) if identity == batch.id else 2
        self._parts[batch.table] = batch.id, parts
        log.warning(
            "%s: %s: the batch ran out of memory and is written in %d parts", self._connector, batch.table, parts
        )

    def failed(self, reopen: bool, table: str) -> None:
        """Count a retriable failure of a write; ``reopen`` discards the handle of the table."""
        self._observer.retried()
        if reopen:
            self._pipelines.discard(table)

    async def _still_ours(self, batch: Batch) -> bool:
        try:
            await self._offsets.confirm(partitions_of(batch.offsets))
        except Fenced as error:
            log.warning("%s: %s is left to another worker: %s", self._connector, batch.table, error)
            return False
        return True


def partitions_of(offsets: Mapping[object, int]) -> dict[TopicPartition, int]:
    """Return the offsets of Kafka's partitions; batches accept any key."""
    return {partition: offset for partition, offset in offsets.items() if isinstance(partition, TopicPartition)}


def _reached(content: Content) -> dict[TopicPartition, int]:
    """Return the next offsets after a part of a batch."""
    reached = next_offsets(content.version) if isinstance(content, Changes) else {}
    return {TopicPartition(*partition): offset for partition, offset in reached.items()}
