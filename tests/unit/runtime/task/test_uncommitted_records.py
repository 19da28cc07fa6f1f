"""Tests of the records that a task keeps until they are durable."""

from __future__ import annotations

import pytest

from headrace.core.model.errors import Fatal
from headrace.ports import Chunk, TopicPartition
from headrace.runtime.task.errant_reporter import UncommittedRecords
from headrace_dev.memory.feed import MemoryRecord

PARTITION = TopicPartition("t", 0)


def chunk(begin: int, end: int) -> Chunk:
    records = [MemoryRecord("t", 0, offset, 0, b"k", b"%d" % offset) for offset in range(begin, end)]
    return Chunk(0, 0, PARTITION, records, begin, end)


def test_a_record_is_kept_until_its_chunk_is_durable() -> None:
    """The task keeps all records of a chunk until its last record is durable."""
    kept = UncommittedRecords(wanted=True)
    kept.keep(chunk(0, 3))
    kept.keep(chunk(3, 5))
    kept.discard({PARTITION: 4})
    assert kept.record(PARTITION, 4).value == b"4"
    with pytest.raises(Fatal, match="t-0: the record at offset 2"):
        kept.record(PARTITION, 2)
    kept.clear()
    with pytest.raises(Fatal):
        kept.record(PARTITION, 4)


def test_nothing_is_kept_if_no_reader_needs_it() -> None:
    """The task keeps no records if dead letters do not need them."""
    kept = UncommittedRecords(wanted=False)
    kept.keep(chunk(0, 3))
    with pytest.raises(Fatal):
        kept.record(PARTITION, 1)
