"""The queues of several tables and the offsets of one task, as a sink task puts them together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from headrace.core.batch.batch import Batch, BatchPolicy, Content, Unwritten
from headrace.core.batch.event_pairs import resumable
from headrace.core.batch.offsets import OffsetTracker
from headrace.core.batch.table_queue import Backlog, TableQueue


class TaskQueues:
    """Chunks go in; batches per table come out, and the offsets that completed ones move."""

    def __init__(self, policy: BatchPolicy, *, holds_halves: bool = True) -> None:
        self._policy = policy
        self._holds_halves = holds_halves
        self._backlog = Backlog()
        self._offsets = OffsetTracker()
        self._queues: dict[str, TableQueue] = {}

    def add(
        self, partition: Hashable, end: int, contents: Sequence[tuple[str, Content]], now: float, behind: int = 0
    ) -> None:
        """Take what one chunk holds for its tables."""
        end = resumable(end, [content for _, content in contents], behind)
        origin = self._offsets.begin(partition, end, now, behind)
        self._backlog.read(partition, behind, now)
        for table, content in contents:
            self._queue(table).put(content, origin)
        origin.missing -= 1

    def _queue(self, table: str) -> TableQueue:
        if table not in self._queues:
            self._queues[table] = TableQueue(table, self._policy, self._backlog, holds_halves=self._holds_halves)
        return self._queues[table]

    def next(self, table: str, now: float, *, flush: bool = False) -> Batch | None:
        """The next batch of a table."""
        return self._queue(table).next(now, flush=flush)

    def due(self, table: str) -> float | None:
        """When a batch of the table may be closed."""
        return self._queue(table).due()

    def complete(self, batch: Batch) -> Mapping[Hashable, int]:
        """The offsets that move with a batch."""
        return self._offsets.done(self._queues[batch.table].complete(batch))

    def settled(self) -> Mapping[Hashable, int]:
        """Offsets that move without a batch."""
        return self._offsets.done([])

    def crowded(self) -> set[str]:
        """The tables with a full batch that waits."""
        return {name for name, queue in self._queues.items() if queue.is_full}

    def tables(self) -> Sequence[str]:
        """Every table that has had a change."""
        return tuple(self._queues)

    @property
    def idle(self) -> bool:
        """Whether nothing is open or waits."""
        return all(queue.is_idle for queue in self._queues.values())

    def waiting(self, table: str) -> tuple[int, int]:
        """Events and bytes that wait for a table."""
        return self._queue(table).records, self._queue(table).size

    def unwritten(self) -> Mapping[str, Unwritten]:
        """What has waited longest, by table."""
        return {name: found for name, queue in self._queues.items() if (found := queue.unwritten) is not None}

    def reset(self) -> None:
        """Drop what is not complete."""
        self._offsets.clear()
        self._backlog.clear()
        for queue in self._queues.values():
            queue.clear()
