"""The batch manager: pieces of changes become batches per table, and only a completed batch moves offsets.

What SynchDB's runner does, done safely (``merge.md`` section 10): a bounded queue per table, an id for every batch,
``complete(batch_id)`` the only way forward, completion contiguous per partition, an unknown or repeated id an error.
A plain object: the sink task asks it from one thread and passes the time in (seconds, monotonic).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.batch.combine import combine, joined
from headrace.core.batch.event_pairs import LastDeletes, resumable
from headrace.core.batch.held_halves import PATIENCE, HeldHalves, Origin, Part, changes_size
from headrace.core.batch.offsets import OffsetTracker
from headrace.core.model.cell_batch import CassandraBatch
from headrace.core.model.cell_batch import joined as joined_writes
from headrace.core.model.column_defaults import ColumnDefaults
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Barrier, Changes, Truncate

Piece = Changes | Truncate | ColumnDefaults | CassandraBatch

KEY_CHANGE_PATIENCE = PATIENCE
"""Seconds for which a half of a key change waits for the other, which may come in another partition."""

FAR_BEHIND = 10_000
"""Records that wait in Kafka for a connector that is catching up, not just a moment late."""

CATCH_UP_LINGERS = 10
"""So many times its linger a batch may fill while more records wait in Kafka. Whoever is far behind gains more from a
few large merges than from an early one: eight times the rows cost three times the CPU (``spark.md`` section 3)."""


_FEW_HELD = 10_000
"""So many events may be held, however small batches are."""


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
    ``source_time`` is that of its oldest piece, as in ``Unwritten``.
    """

    id: int
    table: str
    content: Piece
    offsets: Mapping[Hashable, int]
    trigger: Trigger
    opened_at: float
    tickets: tuple[int, ...]
    source_time: int = 0


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The oldest piece of a table that is not durable.

    ``since`` is when it was read (seconds, monotonic), ``source_time`` the newest commit time at the source of its
    events (microseconds since the epoch, 0: unknown).
    """

    since: float
    source_time: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A piece of a chunk. ``joined``: in one batch with the next piece."""

    piece: Piece
    origin: Origin
    size: int
    joined: bool = False


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

    def push_held(self, item: _Waiting) -> None:
        """Add what came before others, behind its own key's events: before what concerns the whole table."""
        place = len(self.waiting)
        for index, other in enumerate(self.waiting):
            if isinstance(other.piece, Barrier) and other.origin.ticket > item.origin.ticket:
                place = index
                break
        self.waiting.insert(place, item)
        self.records += _records(item.piece)
        self.size += item.size

    def pop(self) -> _Waiting:
        item = self.waiting.popleft()
        self.records -= _records(item.piece)
        self.size -= item.size
        return item


class BatchManager:
    """Queues per table, open batches, and the offsets that may be committed.

    ``holds_halves`` is False where both halves of a key change need not be in one batch: in histories.
    """

    def __init__(self, policy: BatchPolicy, *, holds_halves: bool = True) -> None:
        self._policy = policy
        self._holds_halves = holds_halves
        self._held: dict[str, HeldHalves] = {}
        self._read_at = 0.0
        self._queues: dict[str, _Queue] = {}
        self._open: dict[int, Batch] = {}
        self._offsets = OffsetTracker()
        self._behind: dict[Hashable, int] = {}
        self._last_deletes = LastDeletes()
        self._failed: set[str] = set()
        self._next_id = 0

    def add(
        self, partition: Hashable, end: int, pieces: Sequence[tuple[str, Piece]], now: float, behind: int = 0
    ) -> None:
        """Take what one chunk holds for its tables. A chunk without pieces is complete at once.

        ``behind`` is how many more records of the partition wait in Kafka.
        """
        self._behind[partition] = behind
        self._read_at = now
        end = resumable(end, pieces, behind)
        origin = Origin(partition, end, now, behind)
        items = [(table, item) for table, piece in pieces for item in self._items(table, origin, piece)]
        origin.ticket = self._offsets.begin(partition, end, origin.parts)
        for table, item in items:
            self._queues.setdefault(table, _Queue()).push(item)
        for table in {table for table, _ in pieces} - self._failed:
            self._queues.setdefault(table, _Queue())
            self._bound(table)

    def block(self, partition: Hashable, end: int) -> None:
        """Note a chunk whose changes nobody can write: no offset of its partition passes it in this assignment."""
        self._offsets.begin(partition, end, 1)

    def fail(self, table: str) -> None:
        """Discard what waits for a table, and what comes for it from now on: no offset passes any of it."""
        self._failed.add(table)
        self._queues.pop(table, None)
        self._held.pop(table, None)
        self._open = {number: batch for number, batch in self._open.items() if batch.table != table}

    def next(self, table: str, now: float, *, flush: bool = False) -> Batch | None:
        """The next batch of a table whose writer is free, or None while it is better to wait (see ``due``).

        With ``flush`` nothing is waited for but the other halves of key changes.
        """
        self._expire(table, now)
        queue = self._queues.get(table)
        if queue is None or not self._ready(table, queue):
            return None
        trigger = Trigger.FLUSH if flush else self._trigger(queue, now)
        if trigger is None:
            return None
        return self._close(table, queue, trigger)

    def due(self, table: str) -> float | None:
        """When (monotonic) the table's queue closes by age, or a half of a key change has waited long enough.

        None if there is nothing to wait for.
        """
        queue, held = self._queues.get(table), self._held.get(table)
        by_age = self._by_age(queue) if queue is not None and self._ready(table, queue) else None
        let_go = held.due() if held is not None else None
        return min((time for time in (by_age, let_go) if time is not None), default=None)

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
        """Whether no batch is open and nothing waits but for the other half of a key change."""
        return self.is_idle()

    def is_idle(self, without: Collection[str] = ()) -> bool:
        """The same of all tables but those ``without``."""
        return not any(batch.table not in without for batch in self._open.values()) and not any(
            table not in without and self._ready(table, queue) for table, queue in self._queues.items()
        )

    def waiting(self, table: str) -> tuple[int, int]:
        """Events and bytes that wait for a table's writer."""
        queue = self._queues.get(table)
        return (queue.records, queue.size) if queue is not None else (0, 0)

    def unwritten(self) -> Mapping[str, Unwritten]:
        """Return what has waited longest by table: with its writer, in a queue, or as half of a key change."""
        waiting = {name: queue.waiting[0] for name, queue in self._queues.items() if queue.waiting}
        for name, held in self._held.items():
            half = held.oldest()
            if half is not None and (name not in waiting or half.origin.since < waiting[name].origin.since):
                waiting[name] = _waiting(half)
        found = {name: Unwritten(each.origin.since, newest_source_time(each.piece)) for name, each in waiting.items()}
        return found | {each.table: Unwritten(each.opened_at, each.source_time) for each in self._open.values()}

    def reset(self) -> None:
        """Discard everything that is not complete: a new assignment reads it again. Failed tables stay failed."""
        self._queues.clear()
        self._open.clear()
        self._behind.clear()
        self._held.clear()
        self._last_deletes = LastDeletes()
        self._offsets = OffsetTracker()

    # -- halves of key changes ----------------------------------------------------------------------------------------

    def _items(self, table: str, origin: Origin, piece: Piece) -> Iterator[_Waiting]:
        """What a piece of a chunk adds to its table's queue."""
        if table in self._failed:
            origin.parts += 1
            return
        if not isinstance(piece, Changes):
            origin.parts += 1
            yield _Waiting(piece, origin, piece_size(piece))
            return
        changes = self._last_deletes.without_tombstone(table, origin.partition, piece)
        if changes is None:
            return
        if self._holds_halves:
            yield from map(_waiting, self._held.setdefault(table, HeldHalves()).route(changes, origin))
        else:
            origin.parts += 1
            yield _Waiting(changes, origin, piece_size(changes))

    def _expire(self, table: str, now: float) -> None:
        """Queue the halves that have waited long enough."""
        if held := self._held.get(table):
            for part in held.expire(now, self._read_at, self._behind):
                self._queues.setdefault(table, _Queue()).push_held(_waiting(part))

    def _bound(self, table: str) -> None:
        """Queue everything that is held once it is more than a batch."""
        held, limit = self._held.get(table), self._policy
        if held and (held.size >= limit.max_bytes or len(held) >= max(limit.max_records, _FEW_HELD)):
            for part in held.release_all():
                self._queues.setdefault(table, _Queue()).push(_waiting(part))

    def _ready(self, table: str, queue: _Queue) -> bool:
        """Whether a batch can be taken: what concerns the whole table waits for the halves that are held."""
        return bool(queue.waiting) and not (isinstance(queue.waiting[0].piece, Barrier) and self._held.get(table))

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
        catching_up = any(item.origin.behind >= FAR_BEHIND for item in queue.waiting) and any(
            self._behind.get(item.origin.partition) for item in queue.waiting
        )
        return queue.waiting[0].origin.since + self._policy.linger * (CATCH_UP_LINGERS if catching_up else 1)

    def _close(self, table: str, queue: _Queue, trigger: Trigger) -> Batch:
        items = self._take(queue)
        offsets: dict[Hashable, int] = {}
        for origin in (item.origin for item in items):
            offsets[origin.partition] = max(origin.end, offsets.get(origin.partition, 0))
        if held := self._held.get(table):
            for partition in offsets:
                if (offset := held.first_offset(partition)) is not None:
                    offsets[partition] = min(offset, offsets[partition])
        first = items[0]
        content = first.piece if len(items) == 1 else _whole([item.piece for item in items])
        tickets = tuple(item.origin.ticket for item in items)
        source_time = newest_source_time(first.piece)
        batch = Batch(self._next_id, table, content, offsets, trigger, first.origin.since, tickets, source_time)
        self._next_id += 1
        self._open[batch.id] = batch
        return batch

    def _take(self, queue: _Queue) -> list[_Waiting]:
        """The pieces of the next batch: a barrier stands alone, and types that do not go together are kept apart."""
        items = [queue.pop()]
        if isinstance(items[0].piece, Barrier):
            return items
        if isinstance(items[0].piece, CassandraBatch):
            return [*items, *self._writes_that_follow(queue, items[0].piece)]
        shape = joined(None, _changes(items[0]))
        records, size = _records(items[0].piece), items[0].size
        while queue.waiting and (
            items[-1].joined or (records < self._policy.max_records and size < self._policy.max_bytes)
        ):
            head = queue.waiting[0].piece
            shape = joined(shape, head) if isinstance(head, Changes) else None
            if shape is None:
                break
            items.append(queue.pop())
            records, size = records + _records(head), size + items[-1].size
        return items

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


def _changes(item: _Waiting) -> Changes:
    assert isinstance(item.piece, Changes)  # noqa: S101 - narrows the type; a truncate never gets here
    return item.piece


def _records(piece: Piece) -> int:
    return 1 if isinstance(piece, Barrier) else len(piece)


def newest_source_time(piece: Piece) -> int:
    """The newest commit time at the source among the events, in microseconds since the epoch; 0 if there is none."""
    return int(piece.version.source_time.max(initial=0) if isinstance(piece, Changes) else piece.version.source_time)


def piece_size(piece: Piece) -> int:
    """Bytes that a piece holds in memory, near enough for a bound."""
    if isinstance(piece, Barrier):
        return 0
    if isinstance(piece, CassandraBatch):
        return piece.size
    return changes_size(piece)


def _waiting(part: Part) -> _Waiting:
    return _Waiting(part.changes, part.origin, changes_size(part.changes), part.joined)
