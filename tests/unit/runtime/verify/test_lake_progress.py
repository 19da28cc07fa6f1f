"""A wait ends with a proof or at its deadline."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.ports import LogPosition, TopicPartition
from headrace.runtime.verify.lake_progress import LakeProgress
from headrace_connectors.memory import MemoryRowSource

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)


class Moving:
    """A connector that comes forward by one whenever time passes."""

    def __init__(self, published: int | None, group: int) -> None:
        self.source = MemoryRowSource()
        self.time = 0.0
        self.group = group
        self.asked: list[str] = []
        self._publish(published)

    def _publish(self, published: int | None) -> None:
        self.source.position = LogPosition("postgresql", (100,), None if published is None else (published,))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.group += 1
        known = self.source.position.published
        self._publish(None if known is None else known[0] + 1)

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        self.asked.append(topic)
        return {ONE: 10, TWO: 0}

    def committed(self) -> Mapping[TopicPartition, int]:
        return {ONE: self.group}

    def wait(self, end: int, deadline: float = 60.0) -> bool:
        position = LogPosition("postgresql", (end,))
        return LakeProgress(self.source, self, "t", lambda: self.time, self.sleep).wait(position, deadline)


def test_both_have_to_pass() -> None:
    """The source connector has published the position, then the group has committed what the topic held."""
    moving = Moving(published=5, group=0)
    assert moving.wait(7)
    assert (moving.group, moving.asked) == (10, ["t"])


def test_a_group_that_is_far_enough_proves_nothing_before_the_source_connector_is() -> None:
    """What is not in Kafka yet is not among the ends either."""
    moving = Moving(published=5, group=99)
    assert moving.wait(8)
    assert moving.source.position.published == (8,)


def test_a_source_that_cannot_tell_is_waited_for_once() -> None:
    """The second wait only looks."""
    moving = Moving(published=None, group=99)
    progress = LakeProgress(moving.source, moving, "t", lambda: moving.time, moving.sleep)
    assert not progress.wait(LogPosition("postgresql", (1,)), 5.0)
    assert moving.time == 5.0
    assert not progress.wait(LogPosition("postgresql", (1,)), 60.0)
    assert moving.time == 5.0
