"""Records of a chunk that are not decoded yet: the next batch of their table decodes them, all at once.

Tests: ``tests/unit/runtime/task/test_undecoded_records.py``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from headrace.core.batch.offsets import Origin
from headrace.ports import Chunk, Record

SMALL_RECORDS, SMALL_BYTES = 256, 256 * 1024
"""Records of a partition that may wait undecoded: decoding them delays the batch that needs them by a few ms."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records that are not decoded. ``origin`` waits for their distribution to tables. ``size`` is in bytes.

    ``waited`` is whether they have waited for a batch.
    """

    chunk: Chunk
    origin: Origin
    size: int
    waited: bool = False

    @staticmethod
    def of(chunk: Chunk, origin: Origin) -> Arrived:
        return Arrived(chunk, origin, _bytes_of(chunk.records))

    @property
    def is_small(self) -> bool:
        return len(self.chunk.records) <= SMALL_RECORDS and self.size <= SMALL_BYTES

    def with_later(self, later: Chunk) -> Arrived:
        """Return these records and the next ones of their partition."""
        self.origin.behind = later.behind
        records = [*self.chunk.records, *later.records]
        chunk = replace(self.chunk, records=records, end=later.end, behind=later.behind)
        return replace(self, chunk=chunk, size=self.size + _bytes_of(later.records))


def _bytes_of(records: Sequence[Record]) -> int:
    return sum(len(record.value or b"") + len(record.key or b"") for record in records)


Decode = Callable[[Sequence[Arrived]], Awaitable[None]]
"""Decodes records and sends their changes to the lanes. Raises nothing."""
