"""The sequence numbers of chunks and the number of records per poll."""

from headrace.core.batch.offsets import ChunkSequence
from headrace.ports import TopicPartition
from headrace_connectors.kafka.chunking import CHUNK_BYTES, ChunkNumbering, PollSize
from headrace_dev.memory import MemoryRecord

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def records(offset: int, size: int = 10) -> list[MemoryRecord]:
    """Return one record of topic a at ``offset``."""
    return [MemoryRecord("a", 0, offset, 0, None, b"x" * size)]


def test_chunks_pass_the_sink_task_s_check() -> None:
    """Chunks are numbered over all partitions from 0 in every epoch, and their offsets have no gap per partition."""
    numbering = ChunkNumbering()
    for epoch in (1, 2):
        numbering.next_epoch()
        check = ChunkSequence()
        made = [
            numbering.chunk(A, records(5), 6),
            numbering.chunk(B, records(0), 1),
            numbering.chunk(A, records(9), 12),  # behind a gap, with a marker at its end
        ]
        assert [chunk.sequence for chunk in made] == [0, 1, 2]
        assert [(chunk.begin, chunk.end) for chunk in made] == [(5, 6), (0, 1), (6, 12)]
        assert {chunk.epoch for chunk in made} == {epoch}
        for chunk in made:
            check.admit(chunk.sequence, chunk.partition, chunk.begin, chunk.end)


def test_wide_records_make_small_polls() -> None:
    """A poll fetches about the bytes of one chunk: at least one record, at most the configured number."""
    size = PollSize(4_000)
    size.observe(records(0, 100_000))
    assert size.records * 100_000 <= CHUNK_BYTES
    size.observe(records(0, 2 * CHUNK_BYTES))
    assert size.records == 1
    for _ in range(40):
        size.observe(records(0, 100))
    assert size.records == 4_000
