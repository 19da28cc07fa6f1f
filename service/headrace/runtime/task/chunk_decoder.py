"""Decode the chunks of a task in a thread, and fetch the schemas that this needs from registries.

Decoding does no I/O. It raises SchemaMissing at the first document whose schema no converter has read before; the task
fetches the schema and decodes the chunk again. This is rare, because converters cache the decoders that they compile
from a schema.

Tests: ``tests/unit/runtime/task/test_sink_task_errors.py``, ``test_conversions.py``, ``test_chunk_decoder.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from tenacity import stop_after_delay

from headrace.converters.conversion import Conversion, converting_decoder
from headrace.converters.registered import RegisteredSchema, SchemaId
from headrace.core.decode.decoded import Decoded, Message, RecordsLost, RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.record_decoder import Decoder, Sources
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import Changes
from headrace.core.tables.field_selection import FieldSelection
from headrace.ports import Chunk, SchemaRegistry, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.source_database import SourceCatalog
from headrace.runtime.retry import retrying
from headrace.runtime.threads import run_in
from headrace.transforms.chain import Chain
from headrace.transforms.decoder import TransformingDecoder

log = logging.getLogger(__name__)


class SchemaMissing(Exception):
    """Decoding needs a schema: call ``fetch``, and decode the same records again. Call ``schemas.clear`` afterwards."""

    def __init__(self, schemas: FetchedSchemas, schema_id: SchemaId) -> None:
        super().__init__(f"the schema with {schema_id} is not fetched yet")
        self.schemas = schemas
        self.schema_id = schema_id

    def fetch(self) -> None:
        """Fetch the schema from its registry. Blocks; raises Retriable or ConfigError."""
        self.schemas.fetch(self.schema_id)


class FetchedSchemas:
    """The schemas that one converter's registry has, and the ids that it does not have, for the current chunk."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._answers: dict[SchemaId, RegisteredSchema | BadRecord] = {}

    def get(self, schema_id: SchemaId) -> RegisteredSchema:
        """Return a schema. Raises BadRecord if the registry does not have it, and SchemaMissing before ``fetch``."""
        answer = self._answers.get(schema_id)
        if answer is None:
            raise SchemaMissing(self, schema_id)
        if isinstance(answer, BadRecord):
            raise BadRecord(str(answer))
        return answer

    def fetch(self, schema_id: SchemaId) -> None:
        """Fetch a schema, or register that the registry does not have it. Blocks; raises Retriable or ConfigError."""
        try:
            self._answers[schema_id] = self._registry.fetch(schema_id)
        except BadRecord as error:
            self._answers[schema_id] = error

    def clear(self) -> None:
        """Discard all: converters have compiled their decoders, and a missing id may be registered later."""
        self._answers.clear()


RETRY_SECONDS = 15.0
"""Seconds for which decoding, or the fetch of a schema, is repeated while the server does not answer."""

TURN_BYTES = 8 * 1024 * 1024
"""How much is decoded before a lane gets it, and so before it counts in the worker's memory."""


class _Turn(NamedTuple):
    """What a thread has decoded in one turn, the seconds that it took, and those in which it had a core."""

    decoded: Sequence[Decoded]
    seconds: float
    cpu_seconds: float


@dataclass(slots=True, eq=False)
class ChunkDecoder:
    """The decoders of one task's topics. They keep compiled schemas from chunk to chunk.

    ``_on_turn`` is called with the seconds of each turn, and with those in which it had a core. ``_lost`` counts the
    records of each partition that were lost so far, for ``Changes.lost``.
    """

    _connector: str
    _envelope: EnvelopeOptions
    _transforms: Chain
    _fields: FieldSelection
    _conversion: Conversion | None
    _sources: Sources
    _catalog: SourceCatalog
    _observer: Observer
    _executor: Executor
    _on_turn: Callable[[float, float], None]
    _lost: Counter[TopicPartition] = field(default_factory=Counter)
    _decoders: dict[str, Decoder] = field(default_factory=dict)

    async def decode(self, chunks: Sequence[Chunk]) -> Sequence[Decoded]:
        """Decode the first chunk, and as many others as one turn of a thread may. Return the results in their order.

        A turn costs more than decoding the few records that a table has in a poll. It ends before a chunk that fails,
        behind one that may change how others are decoded (an altered table), and with ``TURN_BYTES``. Raises the errors
        of the first chunk: Retriable when all attempts within ``RETRY_SECONDS`` have failed.
        """
        partition = chunks[0].partition  # tenacity holds ``on_retry`` in a cycle, which must not contain the records

        def on_retry(error: BaseException, pause: float) -> None:
            self._observer.on_retry()
            log.warning("%s: decoding %s-%d failed and is repeated: %s", self._connector, *partition, error)

        # Pauses of at most a third leave time for several attempts.
        retry = retrying(RETRY_SECONDS / 3, on_retry).copy(stop=stop_after_delay(RETRY_SECONDS))
        fetched: set[FetchedSchemas] = set()
        turn: _Turn | None = None
        try:
            while turn is None:
                try:
                    turn = await retry(run_in, self._executor, self._decode, chunks)
                except SchemaMissing as missing:
                    fetched.add(missing.schemas)
                    await retry(asyncio.to_thread, missing.fetch)
        finally:
            for schemas in fetched:
                schemas.clear()
        self._on_turn(turn.seconds, turn.cpu_seconds)
        for chunk, result in zip(chunks, turn.decoded, strict=False):
            self._observer.on_chunk_decoded(chunk.partition, len(chunk.records), result.skipped)
            self._observer.on_losses(chunk.partition.topic, result.losses)
        return turn.decoded

    def _decode(self, chunks: Sequence[Chunk]) -> _Turn:
        """Decode chunks until the turn ends, at least the first one."""
        decoded: list[Decoded] = []
        size, began, began_cpu = 0, time.perf_counter(), time.thread_time()
        for chunk in chunks:
            topic = chunk.partition.topic
            self._catalog.begin_chunk()
            try:
                with self._observer.stage(topic, "decode"):
                    result = self._decoder(topic).decode(chunk.records)
                    self._select_and_count(chunk, result)
            except Exception:
                if not decoded:
                    raise
                break  # the next call begins with this chunk
            decoded.append(result)
            routed = result.of(RoutedEvents)
            size += sum(message.events.size for message in routed)
            if size > TURN_BYTES or len(routed) < len(result.messages):
                break
        return _Turn(decoded, time.perf_counter() - began, time.thread_time() - began_cpu)

    def _decoder(self, topic: str) -> Decoder:
        if topic not in self._decoders:
            conversion = self._conversion and self._conversion.of_topic(topic)
            self._decoders[topic] = (
                TransformingDecoder(topic, self._envelope, self._transforms, self._catalog, conversion, self._sources)
                if self._transforms
                else converting_decoder(topic, self._envelope, self._catalog, conversion, self._sources)
            )
        return self._decoders[topic]

    def _select_and_count(self, chunk: Chunk, decoded: Decoded) -> None:
        """Select fields, and count the records that were lost before each event."""
        lost_offsets = [chunk.records[0].offset - 1] if chunk.gone else []  # removed records count as one
        lost_offsets += [chunk.records[index].offset for index in decoded.lost]
        lost_before = self._lost[chunk.partition]
        # RecordsLost comes first, although it may concern later records: a row that is invalidated too early is only
        # read again.
        messages: list[Message] = [RecordsLost(*chunk.partition, lost_offsets[-1])] if lost_offsets else []
        for message in decoded.messages:
            if isinstance(message, RoutedEvents):
                events = self._fields.apply(message.events)
                if isinstance(events, Changes) and (lost_before or lost_offsets):
                    # With lost offsets 3 and 7, an event at offset 5 has one lost record before it in this chunk.
                    preceding = np.searchsorted(np.array(lost_offsets, np.int64), events.version.offset)
                    events = replace(events, lost=lost_before + preceding)
                message = RoutedEvents(message.topic, events)
            messages.append(message)
        decoded.messages = messages
        self._lost[chunk.partition] += len(lost_offsets)
