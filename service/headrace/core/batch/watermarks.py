"""The source time up to which a table contains the changes of all partitions (``merge.md`` section 9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from headrace.core.batch.batch import Batch, Content
from headrace.core.model.events import Changes, Operation, Truncate
from headrace.core.model.topic_partition import TopicPartition

_TIMED = (Operation.CREATE, Operation.UPDATE, Operation.DELETE)
"""A snapshot's read and a tombstone have the time of the read or of sending: older changes follow them."""


class Watermarks:
    """The newest source time by table and partition in one assignment.

    ``topics`` contains each topic once for each of its assigned partitions.
    """

    def __init__(self, topics: Iterable[str]) -> None:
        self._partitions = Counter(topics)
        self._newest: dict[str, dict[TopicPartition, int]] = {}

    def reached(self, batch: Batch) -> int:
        """Return the watermark that a table has with this batch, in microseconds.

        -1 while it is unknown: a partition of a topic of the table has brought no change yet.
        """
        newest = self._newest.setdefault(batch.table, {})
        for partition, time in _times(batch.content):
            newest[partition] = max(time, newest.get(partition, time))
        feeding = sum(self._partitions[topic] for topic in {topic for topic, _ in newest})
        return min(newest.values()) if newest and len(newest) >= feeding else -1


def _times(content: Content) -> Iterator[tuple[TopicPartition, int]]:
    """The newest source time of each partition; none for ``VersionedWrites``, which arrive in no order."""
    if isinstance(content, Truncate):
        yield TopicPartition(content.version.topic, content.version.partition), content.version.source_time
    if isinstance(content, Changes):
        version, timed = content.version, np.isin(content.operation, _TIMED)
        for partition in np.flatnonzero(np.bincount(version.partition[timed])).tolist():
            times = version.source_time[timed & (version.partition == partition)]
            yield TopicPartition(version.topic, partition), int(times.max())
