"""The batch manager: pieces of changes become batches per table, and only a completed batch moves offsets.

What SynchDB's runner does, done safely (``merge.md`` section 10): a bounded queue per table, an id for every batch,
``complete(batch_id)`` the only way forward, completion contiguous per partition, an unknown or repeated id an error.
A plain object: the sink task asks it from one thread and passes the time in (seconds, monotonic).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.cassandra.batch import CassandraBatch
from headrace.core.cassandra.batch import joined as joined_writes
from headrace.core.column_defaults import ColumnDefaults
from headrace.core.combine import combine, joined, split
from headrace.core.echoes import Echoes, resumable
from headrace.core.errors import Fatal
from headrace.core.events import Barrier, Changes, Truncate
from headrace.core.offsets import OffsetTracker

Piece = Changes | Truncate | ColumnDefaults | CassandraBatch

KEY_CHANGE_PATIENCE = 5.0
"""Seconds for which the first half of a key change waits for the second, which may come in another partition."""

FAR_BEHIND = 10_000
"""Records that wait in Kafka for a connector that is catching up, not just a moment late."""

CATCH_UP_LINGERS = 10
"""So many times its linger a batch may fill while more records wait in Kafka. Whoever is far behind gains more from a
few large merges than from an early one: eight times the rows cost three times the CPU (``spark.md``)."""


class Trigger(StrEnum):
    """Why a batch was closed (a metric label)."""

    ROWS = "rows"
    BYTES = "bytes"
    AGE = "age"
    BARRIER = "barrier"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """When a batch closes: at so many events or bytes, or when its oldest event has waited so long (seconds)."""

    max_records: int = 500_000
    max_bytes: int = 64 * 1024 * 1024
    linger: float = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """What a table's writer gets: the changes of many chunks as one, or a single truncate or new column.

    ``offsets`` are the next offsets by partition that this batch reaches; ``tickets`` the chunks it belongs to.
    """

    id: int
    table: str
    content: Piece
    offsets: Mapping[Hashable, int]
    trigger: Trigger
    opened_at: float
    tickets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """``held_until`` is set for the first half of a key change that ended its chunk; ``behind`` as in the chunk."""

    piece: Piece
    partition: Hashable
    end: int
    ticket: int
    size: int
    since: float
    held_until: float = 0.0
    behind: int = 0


@dataclass(slots=True)
class _Queue:
    """The pieces of one table that wait for its writer, in order of arrival."""

    waiting: deque[_Waiting] = field(default_factory=deque)
    records: int = 0
    size: int = 0

    def push(self, item: _Waiting) -> None:
        self.waiting.append(item)
        self.records += _records(item.piece)
        self.size += item.size

    def give_back(self, item: _Waiting) -> None:
        self.waiting.appendleft(item)
        self.records += _records(item.piece)
        self.size += item.size

    def pop(self) -> _Waiting:
        item = self.waiting.popleft()
        self.records -= _records(item.piece)
        self.size -= item.size
        return item


class BatchManager:
    """Queues per table, open batches, and the offsets that may be committed."""

    def __init__(self, policy: BatchPolicy) -> None:
        self._policy = policy
        self._queues: dict[str, _Queue] = {}
        self._open: dict[int, Batch] = {}
        self._offsets = OffsetTracker()
        self._behind: dict[Hashable, int] = {}
        self._echoes = Echoes()
        self._next_id = 0

    def add(
        self, partition: Hashable, end: int, pieces: Sequence[tuple[str, Piece]], now: float, behind: int = 0
    ) -> None:
        """Take what one chunk holds for its tables. A chunk without pieces is complete at once.

        ``behind`` is how many more records of the partition wait in Kafka.
        """
        self._behind[partition] = behind
        end = resumable(end, pieces, behind)
        parts = [(table, *part) for table, piece in pieces for part in self._parts(table, partition, piece)]
        ticket = self._offsets.begin(partition, end, len(parts))
        for table, part, held in parts:
            held_until = now + KEY_CHANGE_PATIENCE if held else 0.0
            waiting = _Waiting(part, partition, end, ticket, piece_size(part), now, held_until, behind)
            self._queues.setdefault(table, _Queue()).push(waiting)

    def next(self, table: str, now: float, *, flush: bool = False) -> Batch | None:
        """The next batch of a table whose writer is free, or None while it is better to wait (see ``due``).

        With ``flush`` nothing is waited for.
        """
        queue = self._queues.get(table)
        if queue is None or not queue.waiting:
            return None
        trigger = Trigger.FLUSH if flush else self._trigger(queue, now)
        if trigger is None:
            return None
        return self._close(table, queue, trigger, now)

    def due(self, table: str) -> float | None:
        """When (monotonic) the table's queue closes by age; None if it is empty.

        Where the next batch would be nothing but first halves that are held, this is when the first of them is let go.
        """
        queue = self._queues.get(table)
        if queue is None or not queue.waiting:
            return None
        by_age, let_go = self._by_age(queue), math.inf
        for item in _going_together(queue):
            if not item.held_until:
                return by_age
            let_go = min(let_go, item.held_until)
        return max(by_age, let_go)

    def complete(self, batch_id: int) -> Mapping[Hashable, int]:
        """The batch is durable. Returns the partitions whose offset moves, with the offset to commit.

        Raises Fatal for an id that is unknown or was completed before.
        """
        batch = self._open.pop(batch_id, None)
        if batch is None:
            raise Fatal(f"batch {batch_id} was completed twice or never opened; this is a defect, please report it")
        return self._offsets.done(batch.tickets)

    def settled(self) -> Mapping[Hashable, int]:
        """Offsets that moved without a batch: chunks that held no change of a row."""
        return self._offsets.advance()

    def crowded(self) -> frozenset[str]:
        """The tables whose queue holds a full batch already: their topics should not be fetched for now."""
        limit = self._policy
        return frozenset(
            name
            for name, queue in self._queues.items()
            if queue.size >= limit.max_bytes or queue.records >= limit.max_records
        )

    def tables(self) -> Iterable[str]:
        """Every table that has had a change."""
        return tuple(self._queues)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and no batch is open."""
        return not self._open and not any(queue.waiting for queue in self._queues.values())

    def waiting(self, table: str) -> tuple[int, int]:
        """Events and bytes that wait for a table's writer."""
        queue = self._queues.get(table)
        return (queue.records, queue.size) if queue is not None else (0, 0)

    def reset(self) -> None:
        """Forget everything that is not complete: a new assignment reads it again."""
        self._queues.clear()
        self._open.clear()
        self._behind.clear()
        self._echoes = Echoes()
        self._offsets = OffsetTracker()

    def _parts(self, table: str, partition: Hashable, piece: Piece) -> Iterator[tuple[Piece, bool]]:
        """What a piece adds to its table; True marks what waits for the second half of a key change."""
        told = self._echoes.without(table, partition, piece) if isinstance(piece, Changes) else piece
        return iter(()) if told is None else _parts(told)

    # -- closing ------------------------------------------------------------------------------------------------------

    def _trigger(self, queue: _Queue, now: float) -> Trigger | None:
        if queue.records >= self._policy.max_records:
            return Trigger.ROWS
        if queue.size >= self._policy.max_bytes:
            return Trigger.BYTES
        if any(isinstance(item.piece, Barrier) for item in queue.waiting):
            return Trigger.BARRIER
        return Trigger.AGE if now >= self._by_age(queue) else None

    def _by_age(self, queue: _Queue) -> float:
        """When the oldest event has waited long enough."""
        catching_up = any(item.behind >= FAR_BEHIND for item in queue.waiting) and any(
            self._behind.get(item.partition) for item in queue.waiting
        )
        return queue.waiting[0].since + self._policy.linger * (CATCH_UP_LINGERS if catching_up else 1)

    def _close(self, table: str, queue: _Queue, trigger: Trigger, now: float) -> Batch | None:
        items = self._take(queue, now)
        if not items:
            return None
        offsets: dict[Hashable, int] = {}
        for item in items:
            offsets[item.partition] = max(item.end, offsets.get(item.partition, 0))
        first = items[0]
        content = first.piece if len(items) == 1 else _whole([item.piece for item in items])
        tickets = tuple(item.ticket for item in items)
        batch = Batch(self._next_id, table, content, offsets, trigger, first.since, tickets)
        self._next_id += 1
        self._open[batch.id] = batch
        return batch

    def _take(self, queue: _Queue, now: float) -> list[_Waiting]:
        """The pieces of the next batch: a barrier stands alone, and types that do not go together are kept apart."""
        items = [queue.pop()]
        if isinstance(items[0].piece, Barrier):
            return items
        if isinstance(items[0].piece, CassandraBatch):
            return [*items, *self._writes_that_follow(queue, items[0].piece)]
        shape = joined(None, _changes(items[0]))
        records, size = _records(items[0].piece), items[0].size
        while queue.waiting and records < self._policy.max_records and size < self._policy.max_bytes:
            head = queue.waiting[0].piece
            shape = joined(shape, head) if isinstance(head, Changes) else None
            if shape is None:
                break
            items.append(queue.pop())
            records, size = records + _records(head), size + items[-1].size
        return _without_held(queue, items, now)

    def _writes_that_follow(self, queue: _Queue, first: CassandraBatch) -> Iterator[_Waiting]:
        """Cassandra's writes that go into one batch with ``first``."""
        whole = [first]
        while queue.waiting and len(whole[0]) < self._policy.max_records and whole[0].size < self._policy.max_bytes:
            head = queue.waiting[0].piece
            if not isinstance(head, CassandraBatch) or len(whole := joined_writes([whole[0], head])) > 1:
                return
            yield queue.pop()


def _whole(pieces: Sequence[Piece]) -> Piece:
    """Pieces that were taken together, as one."""
    writes = [piece for piece in pieces if isinstance(piece, CassandraBatch)]
    return joined_writes(writes)[0] if writes else combine([piece for piece in pieces if isinstance(piece, Changes)])


def _going_together(queue: _Queue) -> Iterator[_Waiting]:
    """The pieces at the head that can be one batch: what follows cannot join them, however long they are held."""
    shape = None
    for item in queue.waiting:
        first = item is queue.waiting[0]
        shape = joined(shape, item.piece) if isinstance(item.piece, Changes) and (first or shape) else None
        if shape is None and not first:
            return
        yield item


def _changes(item: _Waiting) -> Changes:
    assert isinstance(item.piece, Changes)  # noqa: S101 - narrows the type; a truncate never gets here
    return item.piece


def _records(piece: Piece) -> int:
    return 1 if isinstance(piece, Barrier) else len(piece)


def piece_size(piece: Piece) -> int:
    """Bytes that a piece holds in memory, near enough for a bound."""
    if isinstance(piece, Barrier):
        return 0
    if isinstance(piece, CassandraBatch):
        return piece.size
    return int(sum(column.values.nbytes for column in piece.columns)) + 64 * len(piece)


def _parts(piece: Piece) -> Iterator[tuple[Piece, bool]]:
    """A piece, cut before a key change that it leaves open; True marks that rest, which waits for its second half."""
    open_events = _open_events(piece) if isinstance(piece, Changes) else 0
    if not isinstance(piece, Changes) or not open_events:
        yield piece, False
        return
    body, rest = split(piece, len(piece) - open_events)
    if len(body):
        yield body, False
    yield rest, True


def _open_events(changes: Changes) -> int:
    """How many events at the end are first halves (a delete, and the tombstone that follows it)."""
    count = 0
    while count < len(changes) and len(changes) - 1 - count in changes.moved:
        count += 1
    return count


def _without_held(queue: _Queue, items: list[_Waiting], now: float) -> list[_Waiting]:
    """Both halves of a key change belong into one commit: first halves that end their partition go back, for a while.

    ``merge.md`` section 6: within a partition a batch is not closed between them.
    """
    taken: deque[_Waiting] = deque()
    followed: set[Hashable] = set()
    for item in reversed(items):
        if item.held_until > now and item.partition not in followed:
            queue.give_back(item)
        else:
            followed.add(item.partition)
            taken.appendleft(item)
    return list(taken)
