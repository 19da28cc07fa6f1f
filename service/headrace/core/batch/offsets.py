"""Which offsets may be committed, given what is durable (``docs/design/merge.md`` sections 9 and 10).

A partition's offset moves over a chunk only when every table that got changes of it is durable, and only in order.
Partitions are any hashable value here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Origin:
    """The chunk that changes came with.

    It reaches up to offset ``end``. ``since`` is when it was read (monotonic seconds), ``behind`` the number of records
    of the partition that were still in Kafka then. ``number`` counts the chunks of a task. ``missing`` is the number of
    parts that are not durable yet.
    """

    partition: Hashable
    end: int
    since: float
    behind: int = 0
    number: int = 0
    missing: int = 0

    def block(self) -> None:
        """Note that a part of the chunk cannot be written: its partition's offset stays before the chunk."""
        self.missing += 1


class OffsetTracker:
    """The chunks of one assignment, in order per partition."""

    def __init__(self) -> None:
        self._chunks: dict[Hashable, deque[Origin]] = {}
        self._read = 0

    def begin(self, partition: Hashable, end: int, since: float, behind: int = 0) -> Origin:
        """Take a chunk. Its distribution to tables counts as one part, which ends with ``done([origin])``."""
        origin = Origin(partition, end, since, behind, self._read, 1)
        self._read += 1
        self._chunks.setdefault(partition, deque()).append(origin)
        return origin

    def done(self, origins: Iterable[Origin]) -> Mapping[Hashable, int]:
        """Note that one part of each chunk is durable; a chunk may be named several times.

        Returns the partitions whose offset moves, each with the end of its last chunk in an unbroken row.
        """
        for origin in origins:
            origin.missing -= 1
        moved: dict[Hashable, int] = {}
        for partition, chunks in self._chunks.items():
            while chunks and chunks[0].missing == 0:
                moved[partition] = chunks.popleft().end
        return moved

    def clear(self) -> None:
        """Forget everything: a new assignment reads again what is not committed."""
        self._chunks.clear()
