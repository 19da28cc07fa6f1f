"""Writes one recorded topic into a memory table with the steps of a task: decode, batch, fold, reselect, merge.

The order of the steps is the sink task's. The test chooses chunks, batches and repeated deliveries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pyarrow as pa
from recordings.avro import as_avro, conversion
from recordings.records import AVRO, DumpedTable, RecordedRecord, Variant, topic_of
from support.task.task_queues import TaskQueues

from headrace.config import reselect
from headrace.converters.conversion import converting_decoder
from headrace.core.batch.batch import BatchPolicy
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.record_decoder import Decoder
from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, RowSource, TableOptions, TopicPartition
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse

_NOW = 1_800_000_000_000_000  # microseconds; no tombstone of a test expires
_TABLE = "table"
_LATE = 1000.0  # seconds after the last chunk: no half waits for another any more


class Killed(Exception):
    """The worker is killed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that are decoded together; ``flush`` makes the table's writer free after them.

    ``wait`` is the number of seconds until the next chunk, in which the writer is free.
    """

    records: Sequence[RecordedRecord]
    flush: bool = True
    wait: float = 0.0


@dataclass(slots=True)
class Replay:
    """One topic and the memory table that it is written to.

    With ``dies_at`` the worker is killed once, before its n-th merge, after it has written the ledger. ``refused`` are
    the offsets of records that could not be used, ``durable`` is the offset that may be committed, and ``written`` the
    next one after the last event in the table. A topic of several partitions has its ``ends``: the offset behind the
    last record of each. ``committed`` are their offsets that may be committed.
    """

    of: Variant
    table: DumpedTable
    source: RowSource | None = None
    cached: bool = False
    dies_at: int = 0
    max_records: int = 500_000
    ends: Mapping[int, int] = field(default_factory=dict)
    lakehouse: MemoryLakehouse = field(default_factory=MemoryLakehouse)
    refused: set[int] = field(default_factory=set)
    durable: int = 0
    written: int = 0
    committed: dict[int, int] = field(default_factory=dict)
    now: float = 0.0
    _alive: bool = False
    _decoder: Decoder = field(init=False)
    _batches: TaskQueues = field(init=False)
    _pipeline: TablePipeline = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, committed: Mapping[int, int] | None = None) -> None:
        """Restart a killed worker with only the state of the table, at these offsets. It is not killed again.

        The end of each partition is unknown until its last record is read, or it has none.
        """
        self.dies_at = 0 if self._alive else self.dies_at
        self._alive = True
        options = reselect_options(
            self.of, {"reselect.cache.enabled": str(self.cached).lower(), "reselect.cache.admission": "always"}
        )
        reselect = Reselect(options, self.source)
        envelopes = EnvelopeOptions(
            key_schemas=self.of.key_schemas,
            value_schemas=not self.of.bare,
            placeholder=Placeholder(self.of.placeholder),
            modes=options.modes,
        )
        topic = topic_of(self.table, self.of)
        reselect.cache.assign([(topic, number) for number in self.ends or (0,)])
        avro = conversion(self.of.recording_file.parent) if self.of.name == AVRO else None
        self._decoder = converting_decoder(topic, envelopes, reselect.catalog, avro)
        self.committed = dict(committed or {})
        self._batches = TaskQueues(BatchPolicy(self.max_records, linger=0))
        self._batches.assign((topic, number) for number in self.ends)
        for number, end in self.ends.items():
            if self.committed.get(number, 0) >= end:
                self._batches.caught_up((topic, number), inf)
        self._pipeline = TablePipeline(
            self.table.name,
            self.lakehouse.table("recordings", _TABLE, TableOptions()),
            reselect,
            PipelineOptions(unresolved_insert_mode="null"),
            lambda: _NOW,
            self._stage,
        )

    def deliver(self, chunks: Sequence[Chunk]) -> None:
        """Handle chunks in order; changes that are not flushed stay in the queue."""
        for chunk in chunks:
            self._take(chunk.records)
            if chunk.flush:
                self._flush()
            if chunk.wait:
                self._pass(chunk.wait)

    def add_columns(self, added: ColumnDefaults) -> None:
        """Apply the table's schema changes in a separate batch."""
        self._pipeline.write(added, Commit(0, "recordings"))

    def finish(self) -> None:
        """Write all queued changes: advance the time until no batch is due."""
        self._pass(_LATE)

    def content(self) -> pa.Table:
        """The content of the table."""
        return self.lakehouse.table("recordings", _TABLE, TableOptions()).to_arrow()

    def _pass(self, seconds: float) -> None:
        """Let time pass. The writer is free, and writes each batch when it is due."""
        end = self.now + seconds
        while (due := self._batches.due(_TABLE)) is not None and due <= end:
            self.now = max(self.now, due)
            self._flush()
        self.now = end

    def _flush(self) -> None:
        while (batch := self._batches.next(_TABLE, self.now)) is not None:
            offsets = {TopicPartition(*key): offset for key, offset in batch.offsets.items()}  # type: ignore[misc]  # tuples
            self._pipeline.write(batch.content, Commit(batch.id, "recordings", "connect-recordings", offsets))
            self.written = int(np.max(batch.content.version.offset)) + 1
            completed = self._batches.complete(batch)
            self.durable = max(self.durable, *completed.values(), 0)
            for (_, partition), offset in completed.items():
                self.committed[partition] = max(self.committed.get(partition, 0), offset)

    def _stage(self, stage: str) -> AbstractContextManager[None]:
        self.dies_at -= stage == "merge"
        if stage == "merge" and self.dies_at == 0:
            raise Killed
        return nullcontext()

    def _take(self, records: Sequence[RecordedRecord]) -> None:
        taken = [as_avro(each) for each in records] if self.of.name == AVRO else records
        decoded = self._decoder.decode(taken)
        self.refused |= {records[errant.index].offset for errant in decoded.errant}
        pieces = [(_TABLE, piece) for piece in decoded.events]
        number, end = records[0].partition, records[-1].offset + 1
        behind = self.ends.get(number, end) - end
        self._batches.add((records[0].topic, number), end, pieces, self.now, behind)


def reselect_options(of: Variant, more: Mapping[str, str]) -> ReselectOptions:
    """The reselect options of a connector that reads ``of``."""
    return reselect.reselect_options(connector_properties(of) | dict(more))


def connector_properties(of: Variant) -> dict[str, str]:
    """The options of the source connector that an operator repeats for the sink."""
    return {
        "binary.handling.mode": of.binary,
        "decimal.handling.mode": of.decimals,
        "lob.enabled": str(of.lob_enabled).lower(),
        "hstore.handling.mode": of.hstore,
        "interval.handling.mode": of.intervals,
        "time.precision.mode": of.times,
        "unavailable.value.placeholder": of.placeholder,
        "reselect.null.values": "false",
        "reselect.visibility.check": "off",
        "reselect.unresolved.insert.mode": "null",
    }
