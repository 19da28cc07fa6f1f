"""The queues of several tables and the offsets of one task, combined as a sink task does."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from math import inf

from headrace.core.batch.batch import Batch, BatchPolicy, Unwritten
from headrace.core.batch.event_pairs import resumable
from headrace.core.batch.held_halves import Progress
from headrace.core.batch.offsets import OffsetTracker
from headrace.core.batch.table_queue import Backlog, TableQueue
from headrace.core.model.events import Content


class TaskQueues:
    """Accept chunks, and return batches of tables and the offsets of completed batches."""

    def __init__(self, policy: BatchPolicy, *, holds_halves: bool = True) -> None:
        self._policy = policy
        self._holds_halves = holds_halves
        self._caught_up: dict[Hashable, float] = {}
        self.stopped: Set[Hashable] = frozenset()
        self._backlog = Backlog(lambda: Progress(self._caught_up, self.stopped))
        self._offsets = OffsetTracker()
        self._queues: dict[str, TableQueue] = {}

    def assign(self, partitions: Iterable[Hashable]) -> None:
        """Assign partitions, of which nothing is known yet."""
        self._caught_up |= dict.fromkeys(partitions, -inf)

    def caught_up(self, partition: Hashable, at: float) -> None:
        """Note that a partition was at its end."""
        self._caught_up[partition] = at

    def add(
        self, partition: Hashable, end: int, contents: Sequence[tuple[str, Content]], now: float, behind: int = 0
    ) -> None:
        """Add the contents of one chunk to the queues of its tables.

        Its partition stays at its end if no records are ``behind`` the chunk.
        """
        end = resumable(end, [content for _, content in contents], behind)
        origin = self._offsets.begin(partition, end, now, behind)
        self._backlog.read(partition, behind, now)
        self._caught_up[partition] = -inf if behind else inf
        for table, content in contents:
            self._queue(table).put(content, origin)
        origin.missing -= 1

    def _queue(self, table: str) -> TableQueue:
        if table not in self._queues:
            self._queues[table] = TableQueue(table, self._policy, self._backlog, holds_halves=self._holds_halves)
        return self._queues[table]

    def next(self, table: str, now: float, *, flush: bool = False) -> Batch | None:
        """Return the next batch of a table, or None if it should wait."""
        return self._queue(table).next(now, flush=flush)

    def due(self, table: str) -> float | None:
        """Return the time at which a batch of the table may be closed."""
        return self._queue(table).due()

    def resume(self, table: str, now: float) -> None:
        """End a pause."""
        self._queue(table).resume(now)

    def complete(self, batch: Batch) -> Mapping[Hashable, int]:
        """Return the offsets that a completed batch releases."""
        for origin in self._queues[batch.table].complete(batch):
            origin.missing -= 1
        return self._offsets.durable()

    def settled(self) -> Mapping[Hashable, int]:
        """Return the offsets that are released without a batch."""
        return self._offsets.durable()

    def crowded(self) -> set[str]:
        """Return the tables with a full batch that waits."""
        return {name for name, queue in self._queues.items() if queue.is_full}

    def tables(self) -> Sequence[str]:
        """Return every table that has had a change."""
        return tuple(self._queues)

    @property
    def idle(self) -> bool:
        """Whether no batch is open and no event waits."""
        return all(queue.is_idle for queue in self._queues.values())

    def waiting(self, table: str) -> tuple[int, int]:
        """Return the number of events and bytes that wait for a table."""
        return self._queue(table).records, self._queue(table).size

    def unwritten(self) -> Mapping[str, Unwritten]:
        """Return the oldest unwritten changes, by table."""
        return {name: found for name, queue in self._queues.items() if (found := queue.oldest_unwritten) is not None}

    def reset(self) -> None:
        """Discard all events that are not complete."""
        self._offsets = OffsetTracker()
        self._backlog.behind.clear()
        self._caught_up.clear()
        for queue in self._queues.values():
            queue.clear()
