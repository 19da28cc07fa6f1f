"""The partitions whose cells a column cache may serve (``reselect.md`` sections 5.3 and 5.4).

Each assignment of a partition is a generation. A cell is valid only in the generation that it was written in. The rows
of a store that outlives the process are not dropped when a partition is revoked: they are parked, and valid again for
an assignment that resumes at their end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.core.reselect.cache.codec import ParkedPartition
from headrace.core.reselect.cache.rows import Partition


@dataclass(slots=True)
class _Held:
    """An assigned partition. ``following`` is the offset before which all events are durable, None if unknown."""

    generation: int
    lost: int = -1
    following: int | None = None


class CacheAssignments:
    """The assigned partitions and the parked ones; ``last_generation`` and ``parked`` are those of the last run."""

    def __init__(self, last_generation: int = 0, parked: Iterable[ParkedPartition] = ()) -> None:
        self._last_generation = last_generation
        self._parked = {partition.partition: partition for partition in parked}
        self._held: dict[Partition, _Held] = {}

    def generation(self, partition: Partition) -> int | None:
        held = self._held.get(partition)
        return None if held is None else held.generation

    def lost(self, partition: Partition) -> int:
        """Return the offset of the last event that was not applied, -1 for none; cells from before it are invalid."""
        held = self._held.get(partition)
        return -1 if held is None else held.lost

    def of_topic(self, topic: str) -> list[Partition]:
        return [partition for partition in {*self._held, *self._parked} if partition.topic == topic]

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Begin a new assignment with a new generation."""
        self._last_generation += 1
        for partition in partitions:
            self._held[partition] = _Held(self._last_generation)

    def resume(self, partition: Partition, position: int) -> None:
        """Resume at ``position``, the first event: the generation that ended exactly there continues."""
        parked = self._parked.pop(partition, None)
        if parked is not None and parked.next_offset == position and partition in self._held:
            self._held[partition] = _Held(parked.generation, parked.lost, position)

    def mark_durable(self, offsets: Mapping[Partition, int]) -> None:
        for partition, offset in offsets.items():
            if partition in self._held:
                self._held[partition].following = offset

    def lose(self, partition: Partition, offset: int) -> None:
        """Register that the event at ``offset`` was not applied."""
        held = self._held.get(partition)
        if held is not None:
            held.lost = max(offset, held.lost)

    def renew(self, partition: Partition) -> None:
        """Invalidate all earlier cells of a partition, also parked ones."""
        self._parked.pop(partition, None)
        if partition in self._held:
            self._last_generation += 1
            self._held[partition].generation = self._last_generation

    def end(self, partition: Partition, park: bool) -> None:
        """End an assignment. With ``park``, the rows are kept for a later one, if their end is known."""
        held = self._held.pop(partition, None)
        if park and held is not None and held.following is not None:
            self._parked[partition] = ParkedPartition(
                partition.topic, partition.number, held.generation, held.following, held.lost
            )

    def park_all(self) -> tuple[int, list[ParkedPartition]]:
        """Park all partitions; return the last generation, and the parked partitions for the next run."""
        for partition in list(self._held):
            self.end(partition, park=True)
        return self._last_generation, list(self._parked.values())
