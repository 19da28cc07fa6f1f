"""The lag of a consumer group: committed offsets compared with the ends of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ports import TopicPartition

Offsets = Mapping[TopicPartition, int]


class GroupLag:
    """The number of records that are not committed, by partition, for one assignment at a time.

    It is written on the consumer thread. ``now`` may be called on any thread. Records that are read but not committed
    are included, because the writer may hang. If all of them are committed, the fetch position is used, which also
    passes offsets without records (transaction markers, compacted records).
    """

    def __init__(self) -> None:
        self._ends: Offsets = {}
        self._positions: Offsets = {}
        self._committed: dict[TopicPartition, int] = {}
        self._read: dict[TopicPartition, int] = {}

    def begin(self, committed: Offsets) -> None:
        self._committed, self._read = dict(committed), {}

    def end(self) -> None:
        """End the assignment. The lag is empty until the ends of the next one are measured."""
        self._ends, self._positions = {}, {}

    def read(self, partition: TopicPartition, begin: int, end: int) -> None:
        """Record that records from offset ``begin`` to before ``end`` were read."""
        self._committed.setdefault(partition, begin)
        self._read[partition] = end

    def on_commit(self, offsets: Offsets) -> None:
        self._committed.update(offsets)

    def set_ends(self, ends: Offsets, positions: Offsets) -> None:
        """Set the ends of the partitions and the fetch positions, measured together."""
        self._positions, self._ends = positions, ends

    def now(self) -> Offsets:
        """Return the lag of each assigned partition whose end is known."""
        lag = {}
        for partition, end in self._ends.items():
            position = self._positions.get(partition, 0)
            reached = self._committed.get(partition, position)
            if self._read.get(partition, 0) <= reached:
                reached = max(reached, position)
            lag[partition] = max(0, end - reached)
        return lag
