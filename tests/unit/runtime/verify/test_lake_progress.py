"""Tests of the wait for the lake's progress, which ends with a proof or at its deadline."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ports import LogPosition, TopicPartition
from headrace.runtime.verify.lake_progress import LakeProgress
from headrace_dev.memory import MemoryRowSource

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class AdvancingConnector:
    """A source connector and a sink group whose positions increase by one with each sleep."""

    def __init__(self, published: int | None, group: int) -> None:
        self.source = MemoryRowSource()
        self.time = 0.0
        self.group = group
        self.queried_topics: list[str] = []
        self._publish(published)

    def _publish(self, published: int | None) -> None:
        self.source.position = LogPosition("postgresql", (100,), None if published is None else (published,))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.group += 1
        known = self.source.position.published
        self._publish(None if known is None else known[0] + 1)

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        self.queried_topics.append(topic)
        return {ONE: 10, TWO: 0}

    def committed(self) -> Mapping[TopicPartition, int]:
        return {ONE: self.group}

    def wait(self, end: int, deadline: float = 60.0) -> bool:
        position = LogPosition("postgresql", (end,))
        return LakeProgress(self.source, self, "t", lambda: self.time, self.sleep).wait(position, deadline)


def test_source_connector_and_group_have_to_pass() -> None:
    """The source connector has published the position, then the group has committed the end of the topic."""
    connector = AdvancingConnector(published=5, group=0)
    assert connector.wait(7)
    assert (connector.group, connector.queried_topics) == (10, ["t"])


def test_the_group_counts_only_after_the_source_connector() -> None:
    """The group's offset proves nothing before the source connector has published, as the events are not in Kafka."""
    connector = AdvancingConnector(published=5, group=99)
    assert connector.wait(8)
    assert connector.source.position.published == (8,)


def test_a_source_without_published_positions_is_waited_for_once() -> None:
    """If the source reports no published position, the first wait ends at its deadline and the second one at once."""
    connector = AdvancingConnector(published=None, group=99)
    progress = LakeProgress(connector.source, connector, "t", lambda: connector.time, connector.sleep)
    assert not progress.wait(LogPosition("postgresql", (1,)), 5.0)
    assert connector.time == 5.0
    assert not progress.wait(LogPosition("postgresql", (1,)), 60.0)
    assert connector.time == 5.0
