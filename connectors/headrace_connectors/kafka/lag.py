"""How far a group's offsets are behind the ends of its partitions."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ports import TopicPartition

Offsets = Mapping[TopicPartition, int]


class GroupLag:
    """Records that are not committed, by partition, for one assignment at a time.

    Written on the consumer thread; ``now`` may be called on any. What was read but not committed counts: the writer may
    hang. Where all of it is committed, the fetch position counts, which passes what is no record (markers of
    transactions, records that compaction has removed).
    """

    def __init__(self) -> None:
        self._ends: Offsets = {}
        self._positions: Offsets = {}
        self._committed: dict[TopicPartition, int] = {}
        self._read: dict[TopicPartition, int] = {}

    def begin(self, committed: Offsets) -> None:
        """An assignment begins, with the group's offsets where it has some."""
        self._committed, self._read = dict(committed), {}

    def end(self) -> None:
        """It ends; nothing is known until the ends of the next one are."""
        self._ends, self._positions = {}, {}

    def read(self, partition: TopicPartition, begin: int, end: int) -> None:
        """Records from offset ``begin`` to before ``end`` are the task's."""
        self._committed.setdefault(partition, begin)
        self._read[partition] = end

    def committed(self, offsets: Offsets) -> None:
        """The group has these offsets now."""
        self._committed.update(offsets)

    def measured(self, ends: Offsets, positions: Offsets) -> None:
        """The ends of the partitions and the fetch positions, as they were seen together."""
        self._positions, self._ends = positions, ends

    def now(self) -> Offsets:
        """The lag of each assigned partition whose end was seen."""
        lag = {}
        for partition, end in self._ends.items():
            position = self._positions.get(partition, 0)
            reached = self._committed.get(partition, position)
            if self._read.get(partition, 0) <= reached:
                reached = max(reached, position)
            lag[partition] = max(0, end - reached)
        return lag
