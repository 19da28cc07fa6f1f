"""Whether the lake contains everything that a read of the source has seen.

The source connector reports the position up to which Kafka has its events. The sink's group must have committed what
the topics contain at that time; its offsets follow the table commits. The order of these three requests makes the
answer a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.ports import LogPosition, TableSource, TopicPartition

POLL_SECONDS = 0.5


class Offsets(Protocol):
    """The offsets of a connector's topics and of its group in Kafka. Raises Retriable if Kafka does not answer."""

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return the next offset of every partition of the topic."""

    def committed(self) -> Mapping[TopicPartition, int]:
        """Return the next offsets that the connector's group has committed."""


class LakeProgress:
    """Waits for one table's topic. After a wait without success the next calls only check, because nothing advances."""

    def __init__(
        self,
        source: TableSource,
        offsets: Offsets,
        topic: str,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._source = source
        self._offsets = offsets
        self._topic = topic
        self._clock = clock
        self._sleep = sleep
        self._stalled = False

    def wait(self, position: LogPosition, deadline: float) -> bool:
        """Return whether the lake has passed ``position`` before ``deadline``, a time of the clock."""
        ends: Mapping[TopicPartition, int] | None = None
        while True:
            published = self._source.log_position().published if ends is None else None
            if published is not None and published >= position.end:
                ends = self._offsets.ends(self._topic)
            if ends is not None:
                committed = self._offsets.committed()
                if all(committed.get(partition, 0) >= end for partition, end in ends.items()):
                    return True
            if self._stalled or self._clock() >= deadline:
                self._stalled = True
                return False
            self._sleep(POLL_SECONDS)
