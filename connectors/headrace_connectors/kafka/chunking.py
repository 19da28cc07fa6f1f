"""The numbering of chunks, and the number of records per poll."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.ports import Chunk, Record, TopicPartition

CHUNK_BYTES = 8 * 1024 * 1024
_FIRST_POLL = 500
_SAMPLE = 16


class ChunkNumbering:
    """Numbers the chunks of one group member (``kafka-client.md`` section 2.3).

    ``epoch`` counts assignments from 1; within one, ``sequence`` counts chunks from 0 and each chunk of a partition
    begins where the one before it ended. The first one begins at its first record.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._sequence = 0
        self._ends: dict[TopicPartition, int] = {}

    def next_epoch(self) -> None:
        """Begin a new assignment, to which all later chunks belong."""
        self.epoch += 1
        self._sequence = 0
        self._ends.clear()

    def chunk(self, partition: TopicPartition, records: Sequence[Record], end: int, behind: int = 0) -> Chunk:
        """Return the next chunk. ``end`` is the fetch position after ``records``, gaps and transaction markers."""
        begin = self._ends.get(partition, records[0].offset)
        self._ends[partition] = end
        sequence, self._sequence = self._sequence, self._sequence + 1
        return Chunk(self.epoch, sequence, partition, records, begin, end, behind)


class PollSize:
    """The number of records to poll, so that a chunk has about ``CHUNK_BYTES`` for any size of rows.

    The client limits only compressed bytes, and JSON with schemas is compressed to a tenth. The limit decreases at once
    for larger records, and increases gradually for smaller ones.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._record_bytes = CHUNK_BYTES / _FIRST_POLL

    @property
    def records(self) -> int:
        """The maximum number of records of the next poll, at least 1."""
        return max(1, min(self._most, int(CHUNK_BYTES / self._record_bytes)))

    def observe(self, records: Sequence[Record]) -> None:
        """Adapt to the size of the records of a poll."""
        sample = records[::_SAMPLE]
        seen = 1 + sum(len(record.value or b"") + len(record.key or b"") for record in sample) / len(sample)
        self._record_bytes = max(seen, (self._record_bytes + seen) / 2)
