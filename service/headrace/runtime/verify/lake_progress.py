"""Whether the lake reflects everything that a read of the source saw.

The source connector says up to where its events are in Kafka; what the topics hold by then has to be committed by the
sink's group, whose offsets follow the table commits. All three are asked in that order, so that the answer is a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.ports import LogPosition, TableSource, TopicPartition

POLL_SECONDS = 0.5


class Offsets(Protocol):
    """What Kafka says of a connector's topics and of its group. Raises Retriable when it does not answer."""

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the topic."""

    def committed(self) -> Mapping[TopicPartition, int]:
        """The next offsets that the connector's group has committed."""


class LakeProgress:
    """Waits for one table's topic. Once a wait was in vain the next ones only look: nothing moves there."""

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
        """Whether the lake has passed ``position`` before ``deadline``, a time of the clock."""
        ends: Mapping[TopicPartition, int] | None = None
        while True:
            if ends is None and self._published(position):
                ends = self._offsets.ends(self._topic)
            if ends is not None and self._committed(ends):
                return True
            if self._stalled or self._clock() >= deadline:
                self._stalled = True
                return False
            self._sleep(POLL_SECONDS)

    def _published(self, position: LogPosition) -> bool:
        published = self._source.log_position().published
        return published is not None and published >= position.end

    def _committed(self, ends: Mapping[TopicPartition, int]) -> bool:
        committed = self._offsets.committed()
        return all(committed.get(partition, 0) >= end for partition, end in ends.items())
