"""From a chunk of records to pieces of tables: decoded on a thread, patiently, and noted what it lacks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from tenacity import stop_after_delay

from headrace.cassandra.decoder import RecordDecoder
from headrace.converters.conversion import Conversion
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.events import Changes
from headrace.core.model.notes import Note
from headrace.core.tables.field_selection import FieldSelection
from headrace.ports import Chunk, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.retry import retrying
from headrace.runtime.task.committed_offsets import InThread
from headrace.transforms.chain import Chain
from headrace.transforms.decoder import TransformingDecoder

log = logging.getLogger(__name__)

PATIENCE = 15.0
"""Seconds for which a chunk is decoded again where a converter's schema registry does not answer."""


class ChunkDecoder:
    """The decoders of one task's topics, which remember schemas from chunk to chunk."""

    def __init__(
        self,
        connector: str,
        envelope: EnvelopeOptions,
        transforms: Chain,
        fields: FieldSelection,
        conversion: Conversion | None,
        reselect: Reselect,
        observer: Observer,
        in_thread: InThread,
    ) -> None:
        self._connector = connector
        self._envelope = envelope
        self._transforms = transforms
        self._fields = fields
        self._conversion = conversion
        self._reselect = reselect
        self._observer = observer
        self._in_thread = in_thread
        self._lost: Counter[TopicPartition] = Counter()
        self._decoders: dict[str, RecordDecoder | TransformingDecoder] = {}

    async def decode(self, chunk: Chunk) -> Decoded:
        """The chunk's pieces, in order. Raises Retriable when it has been tried for long enough."""
        retry = retrying(PATIENCE / 3, partial(self._failed, chunk.partition)).copy(stop=stop_after_delay(PATIENCE))
        decoded: Decoded = await retry(self._in_thread, self._decode, chunk)
        self._observer.decoded(chunk.partition, len(chunk.records), decoded.skipped)
        return decoded

    def heed(self, chunk: Chunk, decoded: Decoded) -> None:
        """Void what is remembered of rows of which the chunk does not tell all, and note what it lacks."""
        topic, partition = chunk.partition
        lost = [chunk.records[0].offset - 1] if chunk.gone else []
        lost += [chunk.records[index].offset for index in decoded.lost]
        decoded.pieces = [
            self._behind(piece, chunk.partition, lost) if isinstance(piece, Changes) else piece
            for piece in decoded.pieces
        ]
        if lost:
            last = lost[-1]
            self._lost[chunk.partition] += len(lost)
            self._reselect.cache.lose(topic, partition, last)
        for snapshot in decoded.snapshots:
            self._reselect.cache.begin_snapshot(snapshot)
        for altered, _ in decoded.altered:
            self._reselect.catalog.discard(altered.table)
            self._reselect.cache.alter(altered.table)
        if decoded.tells_too_little:
            self._reselect.exclude_topic(topic)
        for note in decoded.notes:
            self.note(topic, note)
        self._observer.lost(topic, decoded.losses)

    def _behind(self, changes: Changes, partition: TopicPartition, lost: Sequence[int]) -> Changes:
        """The changes, which now know how many records of their partition were not applied before them."""
        before = self._lost[partition]
        if not (before or lost):
            return changes
        return replace(changes, lost=before + np.searchsorted(np.array(lost, np.int64), changes.version.offset))

    def note(self, topic: str, note: Note) -> None:
        """Into the log once, into the task's status for as long as it holds."""
        place = note.subject(topic)
        log.warning("%s: %s: %s", self._connector, place, note.text)
        self._observer.noted(note.text, place)

    def _failed(self, partition: TopicPartition, error: BaseException, pause: float) -> None:
        self._observer.retried()
        log.warning("%s: decoding %s-%d failed and is repeated: %s", self._connector, *partition, error)

    def _decode(self, chunk: Chunk) -> Decoded:
        topic = chunk.partition.topic
        self._reselect.catalog.begin_chunk()
        with self._observer.stage(topic, "decode"):
            decoded = self._decoder(topic).decode(chunk.records)
            decoded.pieces = [self._fields.apply(piece) for piece in decoded.pieces]
        return decoded

    def _decoder(self, topic: str) -> RecordDecoder | TransformingDecoder:
        if topic not in self._decoders:
            conversion = self._conversion and self._conversion.of_topic(topic)
            self._decoders[topic] = (
                TransformingDecoder(topic, self._envelope, self._transforms, self._reselect.catalog, conversion)
                if self._transforms
                else RecordDecoder(topic, self._envelope, self._reselect.catalog, conversion)
            )
        return self._decoders[topic]
