"""Which offsets may be committed, given what is durable (``merge.md`` sections 9 and 10).

A partition's offset moves over a chunk only when every table that got records of it is durable, and only in order.
Partitions are any hashable value here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(slots=True)
class _Chunk:
    partition: Hashable
    end: int
    missing: int


class OffsetTracker:
    """Chunks in order per partition, each with the number of pieces that are not durable yet."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}
        self._order: dict[Hashable, deque[int]] = {}
        self._next = 0

    def begin(self, partition: Hashable, end: int, pieces: int) -> int:
        """A chunk that reaches up to offset ``end`` was taken in ``pieces`` parts. Returns its ticket."""
        ticket, self._next = self._next, self._next + 1
        self._chunks[ticket] = _Chunk(partition, end, pieces)
        self._order.setdefault(partition, deque()).append(ticket)
        return ticket

    def done(self, tickets: Iterable[int]) -> Mapping[Hashable, int]:
        """One part of each chunk in ``tickets`` is durable (a chunk may be named several times)."""
        for ticket in tickets:
            self._chunks[ticket].missing -= 1
        return self.advance()

    def advance(self) -> Mapping[Hashable, int]:
        """The partitions whose offset moves now, each to the end of its last chunk in an unbroken row."""
        moved: dict[Hashable, int] = {}
        for partition, order in self._order.items():
            while order and self._chunks[order[0]].missing == 0:
                moved[partition] = self._chunks.pop(order.popleft()).end
        return moved
