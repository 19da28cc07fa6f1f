"""The records of batches that are not durable yet, which may have to be sent to the dead letter queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from headrace.core.model.errors import Fatal
from headrace.ports import Chunk, Record, TopicPartition


class UncommittedRecords:
    """The records that were read but not committed, by partition. Stores none if not ``wanted``."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._records: dict[TopicPartition, deque[tuple[int, Sequence[Record]]]] = {}

    def keep(self, chunk: Chunk) -> None:
        """Store the records of a chunk."""
        if self._wanted:
            self._records.setdefault(chunk.partition, deque()).append((chunk.end, chunk.records))

    def discard(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Discard the chunks below these next offsets, which are durable."""
        for partition, offset in offsets.items():
            chunks = self._records.get(partition)
            while chunks and chunks[0][0] <= offset:
                chunks.popleft()

    def clear(self) -> None:
        """Discard all records, because the member that owns the partitions now reads them again."""
        self._records.clear()

    def record(self, partition: TopicPartition, offset: int) -> Record:
        """Return a stored record. Raises Fatal if it is not stored."""
        for _, records in self._records.get(partition, ()):
            for record in records:
                if record.offset == offset:
                    return record
        raise Fatal(f"{partition.topic}-{partition.partition}: the record at offset {offset} is not stored any more")
