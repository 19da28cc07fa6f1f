"""What a sink task says about its work; metrics listen (``runtime/metrics.py``). Calls come from loop and threads."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from headrace.core.batch import Batch
from headrace.ports import TopicPartition


class Observer(Protocol):
    """Hears of every step that a task takes."""

    def stage(self, table: str, stage: str) -> AbstractContextManager[None]:
        """Measures a stage of a table's (for decode: a topic's) work: decode, fold, reselect, ledger, merge, …

        A stage begins and ends in one thread, so that its CPU time can be told as well.
        """

    def decoded(self, partition: TopicPartition, records: int, skipped: int, errant: int) -> None:
        """A chunk was decoded."""

    def noted(self, text: str, place: str) -> None:
        """Something is not guaranteed for a topic, or a column of it; said once."""

    def lost(self, topic: str, losses: Mapping[str, int]) -> None:
        """Values of which the source's connector does not tell all, by what is lost."""

    def written(self, batch: Batch, seconds: float, now: float) -> None:
        """A batch is durable. ``now`` is the wall clock in seconds, for the freshness of its rows."""

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group's offsets have moved."""

    def lag(self, lag: Mapping[TopicPartition, int]) -> None:
        """Records between the fetch positions and the ends of the partitions."""


class _Silent:
    def stage(self, table: str, stage: str) -> AbstractContextManager[None]:
        return nullcontext()

    def decoded(self, partition: TopicPartition, records: int, skipped: int, errant: int) -> None:
        pass

    def noted(self, text: str, place: str) -> None:
        pass

    def lost(self, topic: str, losses: Mapping[str, int]) -> None:
        pass

    def written(self, batch: Batch, seconds: float, now: float) -> None:
        pass

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass

    def lag(self, lag: Mapping[TopicPartition, int]) -> None:
        pass


NO_OBSERVER: Observer = _Silent()
"""Hears nothing."""
