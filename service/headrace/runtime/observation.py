"""What a sink task and its worker say about their work; metrics listen (``runtime/metrics/metrics.py``).

Calls come from the loop, those of ``stage`` from threads as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from headrace.core.batch.batch import Batch, Unwritten
from headrace.core.connect.lifecycle import State
from headrace.core.connect.table_status import TableStatus
from headrace.ports import TopicPartition


class Observer(Protocol):
    """Hears of every step that a task takes."""

    def stage(self, table: str, stage: str) -> AbstractContextManager[None]:
        """Measures a stage of a table's (for decode: a topic's) work: decode, fold, reselect, ledger, merge, …

        A stage begins and ends in one thread, so that its CPU time can be told as well.
        """

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """A new assignment; nothing of the old one is in memory any more."""

    def decoded(self, partition: TopicPartition, records: int, skipped: int) -> None:
        """A chunk was decoded."""

    def taken(self, partition: TopicPartition, end: int, records: int) -> None:
        """A chunk that ends before offset ``end`` waits to be written."""

    def errant(self, records: int, *, skipped: bool, logged: bool) -> None:
        """Records could not be used; they are left out, or the task ends."""

    def dead_letters(self, records: int, *, failed: bool) -> None:
        """Records were sent to the dead letter queue, which took them or did not."""

    def retried(self) -> None:
        """A step failed for a passing reason and is repeated."""

    def noted(self, text: str, place: str) -> None:
        """Something is not guaranteed for a topic, or a column of it; said once."""

    def lost(self, topic: str, losses: Mapping[str, int]) -> None:
        """Values of which the source's connector does not tell all, by what is lost."""

    def written(self, batch: Batch, seconds: float, now: float) -> None:
        """A batch is durable. ``now`` is the wall clock in seconds, for the freshness of its rows."""

    def committed(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        """The group's offsets have moved."""

    def uncommitted(self, *, refused: bool) -> None:
        """A commit failed for a passing reason, or came too late and was refused."""

    def lag(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Where the records that are not committed can be read from now on, by partition."""

    def unwritten(self, tables: Mapping[str, Unwritten]) -> None:
        """The oldest events that were read and are not durable, by table; the task's other tables have none."""

    def left(self, tables: Collection[str]) -> None:
        """The topics of these tables belong to another task now."""

    def tables(self, blocked: Sequence[TableStatus]) -> None:
        """These tables are retried or have failed; the task's other tables run."""


class StateObserver(Protocol):
    """Hears in which states connectors and tasks of this worker are."""

    def connector_state(self, connector: str, state: State) -> None:
        """A connector has come into a state; FAILED and RUNNING are what a start comes to."""

    def task_state(self, connector: str, task_number: int, state: State) -> None:
        """A task has come into a state; DESTROYED: it is gone."""


class _Silent:
    def stage(self, table: str, stage: str) -> AbstractContextManager[None]:
        return nullcontext()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        pass

    def decoded(self, partition: TopicPartition, records: int, skipped: int) -> None:
        pass

    def taken(self, partition: TopicPartition, end: int, records: int) -> None:
        pass

    def errant(self, records: int, *, skipped: bool, logged: bool) -> None:
        pass

    def dead_letters(self, records: int, *, failed: bool) -> None:
        pass

    def retried(self) -> None:
        pass

    def noted(self, text: str, place: str) -> None:
        pass

    def lost(self, topic: str, losses: Mapping[str, int]) -> None:
        pass

    def written(self, batch: Batch, seconds: float, now: float) -> None:
        pass

    def committed(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        pass

    def uncommitted(self, *, refused: bool) -> None:
        pass

    def lag(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        pass

    def unwritten(self, tables: Mapping[str, Unwritten]) -> None:
        pass

    def left(self, tables: Collection[str]) -> None:
        pass

    def tables(self, blocked: Sequence[TableStatus]) -> None:
        pass


NO_OBSERVER: Observer = _Silent()
"""Hears nothing."""


class _SilentStates:
    def connector_state(self, connector: str, state: State) -> None:
        pass

    def task_state(self, connector: str, task_number: int, state: State) -> None:
        pass


NO_STATE_OBSERVER: StateObserver = _SilentStates()
"""Hears nothing either."""
