"""The source time up to which all partitions of a table are in: its commits tell readers (``merge.md`` section 9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from headrace.core.batch.batch import Batch, Piece
from headrace.core.model.events import Changes, Operation, Truncate

_TIMED = (Operation.CREATE, Operation.UPDATE, Operation.DELETE)
"""Of a snapshot's read and of a tombstone the time is that at which it was read or sent: older changes follow it."""


class Watermarks:
    """Per table, the newest source time of each partition that has brought changes within this assignment."""

    def __init__(self) -> None:
        self._partitions: Counter[str] = Counter()
        self._newest: dict[str, dict[tuple[str, int], int]] = {}

    def begin(self, topics: Iterable[str]) -> None:
        """Another assignment; ``topics`` has each topic once for each of its partitions."""
        self._partitions = Counter(topics)
        self._newest.clear()

    def reached(self, batch: Batch) -> int:
        """The watermark that a table has with this batch, in microseconds.

        -1 while it is not known: a partition of a topic that feeds the table has brought no change yet.
        """
        newest = self._newest.setdefault(batch.table, {})
        for place, time in _times(batch.content):
            newest[place] = max(time, newest.get(place, time))
        feeding = sum(self._partitions[topic] for topic in {topic for topic, _ in newest})
        return min(newest.values()) if newest and len(newest) >= feeding else -1


def _times(content: Piece) -> Iterator[tuple[tuple[str, int], int]]:
    """The newest source time of each partition; of Cassandra's writes, which come in no order, it says nothing."""
    if isinstance(content, Truncate):
        yield (content.version.topic, content.version.partition), content.version.source_time
    if isinstance(content, Changes):
        version, timed = content.version, np.isin(content.operation, _TIMED)
        for number in np.flatnonzero(np.bincount(version.partition[timed])).tolist():
            times = version.source_time[timed & (version.partition == number)]
            yield (version.topic, number), int(times.max())
