"""The queue of one lake table: changes wait here until the table's lane takes them as a batch.

It works like SynchDB's batch manager, with more checks (``docs/design/merge.md`` section 10): the queue is bounded, and
every batch has an id. Only ``complete`` ends a batch; it raises an error for an unknown or repeated id. The lane calls
the queue from one thread and passes the time (seconds, monotonic).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace.core.batch.batch import Batch, BatchPolicy, Trigger, Unwritten
from headrace.core.batch.combine import Run
from headrace.core.batch.event_pairs import LastDeletes
from headrace.core.batch.held_halves import HeldHalves, Part, Progress
from headrace.core.batch.offsets import Origin
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, Content, TopicPartition

FAR_BEHIND = 10_000
"""Records that wait in Kafka for a connector that is catching up, not just a moment late."""

CATCH_UP_LINGERS = 10
"""The factor of a batch's linger while more records wait in Kafka. A connector that is far behind gains more from a few
large merges than from an early one: eight times the rows cost three times the CPU (``docs/design/spark.md``
section 3)."""

_FEW_HELD = 10_000
"""The number of events that may be held, even if batches are smaller."""


@dataclass(slots=True)
class Backlog:
    """How far a task has read: the records of each partition that wait in Kafka, and when the last chunk came.

    ``behind`` has only the partitions of which a chunk came; ``progress`` returns that of all assigned ones.
    """

    progress: Callable[[], Progress] = Progress
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    read_at: float = 0.0

    def read(self, partition: TopicPartition, behind: int, now: float) -> None:
        """Register a chunk, and the number of records after it that wait in its partition."""
        self.behind[partition] = behind
        self.read_at = now


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Content of a chunk. ``joined``: in one batch with the next item. ``arrival`` numbers the calls of ``put``."""

    content: Content
    origin: Origin
    arrival: int
    size: int
    source_time: int
    joined: bool = False


class TableQueue:
    """The changes of one table that are not durable yet, in order of arrival.

    ``holds_halves`` is False where both halves of a key change need not be in one batch: in histories.
    """

    def __init__(self, table: str, policy: BatchPolicy, backlog: Backlog, *, holds_halves: bool = True) -> None:
        self._table = table
        self._policy = policy
        self._backlog = backlog
        self._holds_halves = holds_halves
        self._next_id = 0
        self.clear()

    def clear(self) -> None:
        """Discard everything that is not complete: it is read again."""
        self._waiting: deque[_Waiting] = deque()
        self._held = HeldHalves()
        self._last_deletes = LastDeletes()
        self._open: Batch | None = None
        self._arrivals = 0
        self._released: dict[str, int] = {}  # by key, the arrival that counts for later events of the key
        self.records = 0
        self.size = 0

    def put(self, content: Content, origin: Origin) -> None:
        """Add content of a chunk. It is a part of its origin until its batch is complete."""
        self._arrivals += 1
        if isinstance(content, Changes):
            changes = self._last_deletes.without_tombstone(origin.partition, content)
            if changes is not None and self._holds_halves:
                for part in self._held.route(changes, origin, self._arrivals):
                    self._push(_waiting(part))
                # If more events are held than a batch may contain, all of them continue.
                limit = self._policy
                if self._held.size >= limit.max_bytes or len(self._held) >= max(limit.max_records, _FEW_HELD):
                    for part in self._held.release_all():
                        self._push(_waiting(part))
            elif changes is not None:
                origin.missing += 1
                self._push(_item(changes, origin, self._arrivals))
        else:
            origin.missing += 1
            self._push(_item(content, origin, self._arrivals))

    def next(self, now: float, *, flush: bool = False) -> Batch | None:
        """Close a batch and return it, or None while it is better to wait (see ``due``).

        With ``flush``, wait only for the other halves of key changes. The caller has completed the batch before it.
        """
        half = self._held.due()
        if half is not None and half <= now:
            self._push_released(self._held.expire(now, self._backlog.read_at, self._backlog.progress()))
        if not self._is_ready:
            return None
        if flush:
            trigger = Trigger.FLUSH
        elif self.records >= self._policy.max_records:
            trigger = Trigger.ROWS
        elif self.size >= self._policy.max_bytes:
            trigger = Trigger.BYTES
        elif any(item.content.is_barrier for item in self._waiting):
            trigger = Trigger.BARRIER
        elif now >= self._by_age():
            trigger = Trigger.AGE
        else:
            return None
        self._open = self._close(trigger)
        self._next_id += 1
        return self._open

    def due(self) -> float | None:
        """Return when (monotonic) a batch may be closed: a full one at once, others by age or when a half is released.

        None if there is nothing to wait for.
        """
        half = self._held.due()
        if not self._is_ready:
            return half
        if self.next_is_complete:
            return self._waiting[0].origin.since
        return min(self._by_age(), half) if half is not None else self._by_age()

    def resume(self, now: float) -> None:
        """Begin the waits of halves again: nothing was read during a pause."""
        self._held.wait_again(now)

    def complete(self, batch: Batch) -> Sequence[Origin]:
        """Register that the batch is durable. Return the chunks of its parts.

        Raises Fatal for a batch that is not open.
        """
        if self._open is None or self._open.id != batch.id:
            raise Fatal(
                f"{self._table}: batch {batch.id} was completed twice or never opened; this is a defect, report it"
            )
        self._open = None
        return batch.origins

    @property
    def is_full(self) -> bool:
        """Whether a full batch waits already: reading more for the table would only take memory."""
        return self.size >= self._policy.max_bytes or self.records >= self._policy.max_records

    @property
    def next_is_complete(self) -> bool:
        """Whether the next batch does not become larger: it is full, or content of the complete table is behind it."""
        return self._is_ready and (self.is_full or any(item.content.is_barrier for item in self._waiting))

    @property
    def is_idle(self) -> bool:
        """Whether no batch is open and nothing waits but for the other half of a key change."""
        return self._open is None and not self._is_ready

    @property
    def memory(self) -> int:
        """Bytes of all changes that are not durable: waiting, held, and in the open batch."""
        return self.size + self._held.size + (self._open.size if self._open is not None else 0)

    @property
    def oldest_unwritten(self) -> Unwritten | None:
        """What has waited longest: in the open batch, in the queue, or as half of a key change."""
        if self._open is not None:
            return Unwritten(self._open.opened_at, self._open.source_time)
        half = self._held.oldest()
        oldest = [self._waiting[0]] if self._waiting else []
        oldest += [_waiting(half)] if half is not None else []
        if not oldest:
            return None
        first = min(oldest, key=lambda item: item.origin.since)
        return Unwritten(first.origin.since, first.source_time)

    # -- halves of key changes ----------------------------------------------------------------------------------------

    @property
    def _is_ready(self) -> bool:
        """Whether a batch can be taken: content that concerns the complete table waits for the halves that are held."""
        # proven: truncate-waits
        return bool(self._waiting) and not (self._waiting[0].content.is_barrier and len(self._held))

    # -- waiting items -------------------------------------------------------------------------------------------------

    def _push(self, item: _Waiting, at: int | None = None) -> None:
        self._waiting.insert(len(self._waiting) if at is None else at, item)
        self.records += len(item.content)
        self.size += item.size

    def _push_released(self, parts: Sequence[Part]) -> None:
        """Add events that were held: those that came before a barrier, before it.

        Halves that are released together stay together, also if a barrier came between them: they go behind it, and so
        do the later events of their keys.
        """
        if not any(item.content.is_barrier for item in self._waiting):
            self._released.clear()
        begin = 0
        # d(1, to 2) | truncate | c(2, from 1): released together, both halves go behind the truncate, because one
        # commit must contain them, and later events of keys 1 and 2 follow them there.
        for end, part in enumerate(parts, 1):
            if part.joined:  # proven: joined-parts
                continue
            together, begin = parts[begin:end], end
            keys = [part.changes.key[0].as_py() for part in together]
            arrival = max(*(part.arrival for part in together), *(self._released.get(key, 0) for key in keys))
            self._released |= dict.fromkeys(keys, arrival)
            items = enumerate(self._waiting)
            at = next((index for index, item in items if item.content.is_barrier and item.arrival > arrival), None)
            for number, member in enumerate(together):
                self._push(_waiting(member), None if at is None else at + number)

    def _pop(self) -> _Waiting:
        item = self._waiting.popleft()
        self.records -= len(item.content)
        self.size -= item.size
        return item

    # -- closing ------------------------------------------------------------------------------------------------------

    def _by_age(self) -> float:
        """When the oldest event has waited long enough."""
        behind = self._backlog.behind
        catching_up = any(item.origin.behind >= FAR_BEHIND for item in self._waiting) and any(
            behind.get(item.origin.partition) for item in self._waiting
        )
        return self._waiting[0].origin.since + self._policy.linger * (CATCH_UP_LINGERS if catching_up else 1)

    def _close(self, trigger: Trigger) -> Batch:
        # As many items as fit together and into a batch; parts that are joined fit in any case.
        first = self._pop()
        items, run = [first], Run(first.content)
        records, size = len(first.content), first.size
        while self._waiting and (
            # proven: joined-in-batch
            items[-1].joined or (records < self._policy.max_records and size < self._policy.max_bytes)
        ):
            if not run.add(self._waiting[0].content):
                break
            items.append(self._pop())
            records, size = records + len(items[-1].content), size + items[-1].size
        offsets: dict[TopicPartition, int] = {}
        for origin in (item.origin for item in items):
            offsets[origin.partition] = max(origin.end, offsets.get(origin.partition, 0))
        for partition in offsets:
            if (offset := self._held.first_offset(partition)) is not None:
                offsets[partition] = min(offset, offsets[partition])  # proven: offset-of-held
        return Batch(
            self._next_id,
            self._table,
            run.content(),
            offsets,
            trigger,
            first.origin.since,
            tuple(item.origin for item in items),
            size,
            first.source_time,
        )


def _item(content: Content, origin: Origin, arrival: int, *, joined: bool = False) -> _Waiting:
    return _Waiting(content, origin, arrival, content.size, content.newest_source_time, joined)


def _waiting(part: Part) -> _Waiting:
    return _item(part.changes, part.origin, part.arrival, joined=part.joined)
