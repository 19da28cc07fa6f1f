"""Tests of ``ChunkDecoder`` alone: what a second attempt and a turn of its thread leave behind."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.records.envelopes import change, key

from headrace.core.decode.decoded import RoutedEvents, TableEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import Retriable
from headrace.core.model.events import Changes
from headrace.core.tables.field_selection import FieldSelection
from headrace.ports import Chunk, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.source_database import SourceCatalog
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.transforms.registry import chain
from headrace_dev.memory.feed import MemoryRecord

pytestmark = pytest.mark.anyio

PARTITION = TopicPartition("shop.public.items", 0)


class FailsOnce(FieldSelection):
    """Raises an error that passes for the first events."""

    failed: bool = False

    def apply(self, changes: TableEvents) -> TableEvents:
        if not FailsOnce.failed:
            FailsOnce.failed = True
            raise Retriable("for the first time")
        return super().apply(changes)


def chunk(sequence: int, offset: int, *, gone: bool = False) -> Chunk:
    record = MemoryRecord(*PARTITION, offset, 0, key({"id": offset}), change("c", {"id": offset}, offset), ())
    return Chunk(1, sequence, PARTITION, [record], offset, offset + 1, gone=gone)


async def test_lost_records_count_once_if_a_chunk_is_decoded_again() -> None:
    """Kafka has removed records before the first event: one loss precedes it and the next one, after two attempts."""
    turns: list[tuple[float, float]] = []
    FailsOnce.failed = False
    with ThreadPoolExecutor(1) as thread:
        decoder = ChunkDecoder(
            *("shop", EnvelopeOptions(), chain({}), FailsOnce(), None, {}),
            *(SourceCatalog(None, 0, time.monotonic), Observer(), thread, lambda *turn: turns.append(turn)),
        )
        losses: list[Sequence[int]] = []
        for each in (chunk(0, 5, gone=True), chunk(1, 6)):
            [decoded] = await decoder.decode([each])
            for message in decoded.of(RoutedEvents):
                assert isinstance(message.events, Changes)
                losses.append(message.events.losses().tolist())
    assert FailsOnce.failed
    assert losses == [[1], [1]]
    assert len(turns) == 2, "an attempt that fails is not reported"
    assert all(0 < cpu <= seconds * 1.5 for seconds, cpu in turns)
