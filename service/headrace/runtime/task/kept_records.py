"""The records of batches that are not durable yet, for those that may still have to go to the dead letter queue."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from headrace.core.model.errors import Fatal
from headrace.ports import Chunk, Record, TopicPartition


class KeptRecords:
    """What was read and not committed, by partition. Keeps nothing if it is not ``wanted``."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._records: dict[TopicPartition, deque[tuple[int, Sequence[Record]]]] = {}

    def keep(self, chunk: Chunk) -> None:
        """Remember a chunk's records until ``forget``."""
        if self._wanted:
            self._records.setdefault(chunk.partition, deque()).append((chunk.end, chunk.records))

    def forget(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Everything below these next offsets is durable."""
        for partition, offset in offsets.items():
            chunks = self._records.get(partition)
            while chunks and chunks[0][0] <= offset:
                chunks.popleft()

    def clear(self) -> None:
        """What was read is read again by whoever has the partitions now."""
        self._records.clear()

    def record(self, partition: TopicPartition, offset: int) -> Record:
        """One record that has not been forgotten."""
        for _, records in self._records.get(partition, ()):
            for record in records:
                if record.offset == offset:
                    return record
        raise Fatal(f"{partition.topic}-{partition.partition}: the record at offset {offset} is not kept any more")
