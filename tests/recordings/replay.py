"""Drives one recorded topic into a memory table along the way of a record: decode, batch, fold, reselect, merge.

The order of things is the sink task's; the chunks, the batches and what is delivered again are the test's to choose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from headrace.core.batch import BatchManager, BatchPolicy
from headrace.core.catalog import HandlingModes
from headrace.core.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.reselect_options import ReselectOptions
from headrace.core.unavailable import Placeholder
from headrace.ports import Commit, RowSource, TableOptions, TopicPartition
from headrace.runtime.post_processor import ReselectColumnsPostProcessor
from headrace.runtime.table_pipeline import PipelineOptions, TablePipeline
from headrace_connectors.memory import MemoryLakehouse
from recordings.records import DumpedTable, RecordedRecord, Variant, topic_of

_NOW = 1_800_000_000_000_000  # microseconds; no tombstone of a test grows old
_TABLE = "table"


def _stages(stage: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records that are decoded together; ``flush`` says that the table's writer is free after them."""

    records: Sequence[RecordedRecord]
    flush: bool = True


@dataclass(slots=True)
class Replay:
    """One topic on its way into one memory table. ``refused`` are the offsets of records that could not be used."""

    of: Variant
    table: DumpedTable
    source: RowSource | None = None
    cached: bool = False
    lakehouse: MemoryLakehouse = field(default_factory=MemoryLakehouse)
    refused: set[int] = field(default_factory=set)
    _decoder: TopicDecoder = field(init=False)
    _batches: BatchManager = field(init=False)
    _pipeline: TablePipeline = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A worker that was killed and comes back: only what the table holds is left."""
        options = ReselectOptions.from_properties(_properties(self.of) | {"reselect.cache.enabled": str(self.cached)})
        post_processor = ReselectColumnsPostProcessor(options, self.source)
        envelopes = EnvelopeOptions(
            key_schemas=self.of.key_schemas,
            value_schemas=not self.of.bare,
            placeholder=Placeholder(self.of.placeholder),
            modes=HandlingModes.from_properties(_properties(self.of)),
        )
        partition = (topic_of(self.table, self.of), 0)
        post_processor.assigned([partition])
        self._decoder = TopicDecoder(partition[0], envelopes, post_processor)
        self._batches = BatchManager(BatchPolicy(linger=0))
        self._pipeline = TablePipeline(
            self.table.name,
            self.lakehouse.table("recordings", _TABLE, TableOptions()),
            post_processor,
            PipelineOptions(unresolved_insert_mode="null"),
            lambda: _NOW,
            _stages,
        )

    def deliver(self, chunks: Sequence[Chunk]) -> None:
        """Take chunks in order; the last one is always flushed."""
        for chunk in chunks:
            self._take(chunk.records)
            if chunk.flush:
                self.flush()
        self.flush()

    def flush(self) -> None:
        """Write all that waits."""
        while (batch := self._batches.next(_TABLE, 1.0)) is not None:
            offsets = {TopicPartition(*key): offset for key, offset in batch.offsets.items()}  # type: ignore[misc]  # tuples
            self._pipeline.write(batch.content, Commit(batch.id, "recordings", "connect-recordings", offsets))
            self._batches.complete(batch.id)

    def _take(self, records: Sequence[RecordedRecord]) -> None:
        decoded = self._decoder.decode(records)
        self.refused |= {records[errant.index].offset for errant in decoded.errant}
        pieces = [(_TABLE, piece) for piece in decoded.pieces]
        self._batches.add((records[0].topic, 0), records[-1].offset + 1, pieces, 0.0)


def _properties(of: Variant) -> Mapping[str, str]:
    """What an operator would repeat of the source connector's configuration."""
    return {
        "binary.handling.mode": of.binary,
        "decimal.handling.mode": of.decimals,
        "hstore.handling.mode": of.hstore,
        "interval.handling.mode": of.intervals,
        "time.precision.mode": of.times,
        "unavailable.value.placeholder": of.placeholder,
        "reselect.null.values": "false",
        "reselect.visibility.check": "off",
        "reselect.unresolved.insert.mode": "null",
    }
