"""Halves of key changes that wait for each other, so that one commit contains both (``docs/guarantees.md``).

The keys of a key change may lie in different partitions, and a fetch may end between its halves. A half without its
other half is held, and so is every later event of its key: the row under the old key stays unchanged until its cells
are in the row under the new key. Other keys continue. Offsets do not pass a held event, so that it is read again after
a restart.

Some halves never arrive: a filter at the source dropped one, compaction removed it, or it was written before a restart.
So a half is released alone after a time. Only a partition that was read to its end is certain not to contain the other
half: a partition that was assigned, but of which nothing was read yet, may contain it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import inf
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.batch.event_pairs import is_tombstone_of, paired_halves
from headrace.core.batch.offsets import Origin
from headrace.core.model.events import NO_POSITION, CellState, Changes, Operation, TopicPartition

HALF_TIMEOUT = 5.0
"""Seconds for which a half waits for the other one. A partition that may contain it has to be at its end after them."""

HALF_TIMEOUT_BEHIND = 60.0
"""The same while a partition that may contain the other half has not been at its end: another one of the task, or that
of a first half that no record follows."""

LATE = 30.0
"""A wait that was not checked for so many seconds restarts: the worker was suspended, and may have been replaced."""

RECHECK = 1.0
"""Seconds between checks of a wait for records that are still to be read."""

_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the assigned partitions were read.

    ``caught_up`` is when (monotonic) each partition last had no record that was not read. ``stopped`` are
    those that are not read until a table is restarted or resumed.
    """

    caught_up: Mapping[TopicPartition, float] = field(default_factory=dict)
    stopped: Set[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Part:
    """Changes for a table's queue. ``joined``: in one batch with the next part.

    ``arrival`` numbers what was put into the queue.
    """

    changes: Changes
    origin: Origin
    arrival: int
    joined: bool = False


KeyChange = tuple[str, str, bytes]
"""Old key, new key and source position."""


@dataclass(slots=True, eq=False)
class _Held:
    """One event. ``change`` is the key change that it is a half of, if any; ``last`` if no event followed it yet.

    It waits from ``since`` on, and at least ``until`` then.
    """

    part: Part
    key: str
    change: KeyChange | None
    second: bool
    since: float
    until: float
    size: int = 0
    last: bool = False
    late: bool = False

    def position(self) -> bytes:
        return bytes(self.part.changes.version.position[0])

    def wait_from(self, now: float) -> None:
        self.since, self.until = now, now + HALF_TIMEOUT


class HeldHalves:
    """The held events of one table."""

    def __init__(self) -> None:
        self._by_key: dict[str, deque[_Held]] = {}
        self._halves: dict[KeyChange, list[_Held]] = {}
        self._alone: dict[KeyChange, None] = {}  # one half was released, so that the other need not wait
        self.size = 0

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def first_offset(self, partition: TopicPartition) -> int | None:
        parts = (held.part for waiting in self._by_key.values() for held in waiting)
        offsets = (part.changes.version.offset[0] for part in parts if part.origin.partition == partition)
        return min(map(int, offsets), default=None)

    def oldest(self) -> Part | None:
        parts = (held.part for waiting in self._by_key.values() for held in waiting)
        return min(parts, key=lambda part: part.origin.since, default=None)

    def due(self) -> float | None:
        """Return when (monotonic) the first half has waited long enough; None if none waits."""
        return min((waiting[0].until for waiting in self._by_key.values()), default=None)

    def route(self, changes: Changes, origin: Origin, arrival: int) -> list[Part]:
        """Return the events that continue to the queue when a chunk contains ``changes``, in order."""
        # One chunk of a partition ends with d(1, to 2), which is held; the next begins with c(2, from 1): both continue
        # in one batch.
        followed = self._release_followed_halves(changes, origin.partition)
        if not (self._by_key or followed or changes.key_changes):  # proven: halves-wait
            return [_part(changes, origin, arrival)]
        parts = _Router(self, changes, origin, arrival, begins_with_half=bool(followed)).parts()
        return [*(replace(held.part, joined=bool(parts)) for held in followed), *parts]

    def expire(self, now: float, read_at: float, progress: Progress) -> list[Part]:
        """Return the halves whose wait has ended, and the events that waited for them.

        ``read_at`` is when the last chunk was read.
        """
        released: list[Part] = []
        unread = _Unread(progress)
        for key in list(self._by_key):
            held = self._head(key)
            if held is None or held.until > now:
                continue
            # d(1, new key 2) of partition 0 waits for c(2, old key 1), which may be in partition 1. Once partition 1
            # has been read to its end after the timeout, c(2) does not exist (a filter dropped it): release d(1) alone.
            last_call = held.since + HALF_TIMEOUT_BEHIND
            # proven: release-of-pairs
            if held.part.origin.partition in progress.stopped or self._waits_for_another(held):
                held.until = now + RECHECK
            elif now >= max(held.until, read_at) + LATE and not held.late:
                held.late = True
                held.wait_from(now)
            elif now < last_call and unread.may_contain_other_half(held):
                held.until = min(now + RECHECK, last_call)
            else:
                released += [self._release_alone(held), *self.release_waiting(key)]
        return released

    def wait_again(self, now: float) -> None:
        """Begin all waits again: for a time nothing was read."""
        for waiting in self._by_key.values():
            for held in waiting:
                held.wait_from(now)

    def release_all(self) -> list[Part]:
        """Return all held events, because they need too much memory."""
        parts = [held.part for waiting in self._by_key.values() for held in waiting]
        self._by_key.clear()
        self._halves.clear()
        self.size = 0
        return parts

    def keys(self) -> list[str]:
        return list(self._by_key)

    def blocks(self, key: str) -> bool:
        return key in self._by_key

    def hold(self, held: _Held) -> None:
        """Keep an event until its key is free."""
        self._by_key.setdefault(held.key, deque()).append(held)
        self.size += held.size
        if held.change is not None:
            self._halves.setdefault(held.change, []).append(held)

    def release_waiting(self, key: str) -> list[Part]:
        """Release the events of a key up to the first half that has to wait, and their other halves with them."""
        # Key 1 has d(1, to 2) c(1) u(1) waiting, and c(2, from 1) arrives: the first half continues, joined with the
        # second, then c(1) and u(1). Then key 2 is free as well, so the events that wait for it continue.
        released: list[Part] = []
        while (held := self._head(key)) is not None:
            other = next((half for half in self._others(held) if half is self._head(half.key)), None)
            if other is not None:  # both are the first held events of their keys
                first, second = (other, held) if held.second else (held, other)
                released += [replace(self._remove(first), joined=True), self._remove(second)]
                released += self.release_waiting(other.key)
            elif held.change is None and not held.last:
                released.append(self._remove(held))
            elif held.change in self._alone or (held.second and not _has_open_cells(held.part.changes)):
                released.append(self._release_alone(held))
            else:
                break
        return released

    def _head(self, key: str) -> _Held | None:
        return self._by_key[key][0] if key in self._by_key else None

    def _others(self, half: _Held) -> list[_Held]:
        """The other half of a key change if it is held; several if it was sent again."""
        halves = self._halves.get(half.change, ()) if half.change is not None else ()
        return [held for held in halves if held.second != half.second]

    def _waits_for_another(self, half: _Held) -> bool:
        """Whether the other half is held behind an event that waits for something else, which ends its wait first.

        Key changes that wait for each other (a stretch that was sent again) end in a circle. There the first one at the
        source ends its wait first: if its other half was applied before, it has no row left.
        """
        # d(1, to 2) waits for c(2, from 1), which is held behind d(2, to 3): the wait of d(2) ends first.
        front, waiting = half, dict[int, _Held]()
        while (others := self._others(front)) and id(front) not in waiting:
            waiting[id(front)] = front
            front = self._by_key[others[0].key][0]
        first = min(waiting.values(), key=_Held.position, default=half)
        return front is not half or half is not first  # proven: first-of-circle

    def _remove(self, held: _Held) -> Part:
        waiting = self._by_key[held.key]
        waiting.remove(held)
        if not waiting:
            del self._by_key[held.key]
        self.size -= held.size
        if held.change is not None:
            self._halves[held.change].remove(held)
            if not self._halves[held.change]:
                del self._halves[held.change]
        return held.part

    def _release_alone(self, held: _Held) -> Part:
        """Release a half; the other one does not have to wait for it."""
        if held.change in self._alone:
            del self._alone[held.change]
        elif held.change is not None:
            self._alone[held.change] = None
            if len(self._alone) > _REMEMBERED:
                del self._alone[next(iter(self._alone))]
        return self._remove(held)

    def _release_followed_halves(self, changes: Changes, partition: TopicPartition) -> list[_Held]:
        """Remove and return the first halves at the end of a partition that ``changes`` follow, if these identify them.

        In one partition the second half directly follows the first one. If a first half does not contain the new key of
        its row, or has no position, nothing else shows that they belong together.
        """
        if not self._by_key or open_events(changes) == len(changes):
            return []
        waiting = [held for events in self._by_key.values() for held in events if held.last]
        followed = []
        for held in waiting:
            if held.part.origin.partition == partition:
                held.last = False
                second = held.change is not None and changes.key_changes.old_keys.get(0) == held.key
                is_other = held.change is None or (second and changes.key[0].as_py() == held.change[1])
                # A second half whose key is held also waits, and joins its first half when that key is free.
                waits = held.change is not None and self.blocks(held.change[1])
                if is_other and not waits and held is self._head(held.key):
                    followed.append(held)
        for held in followed:
            self._remove(held)
        return followed


class _Router:
    """Passes the events of one piece on, or holds them."""

    def __init__(
        self, held: HeldHalves, changes: Changes, origin: Origin, arrival: int, *, begins_with_half: bool
    ) -> None:
        self._held = held
        self._begins_with_half = begins_with_half
        self._changes = changes
        self._origin = origin
        self._arrival = arrival
        self._firsts = paired_halves(changes)
        self._seconds = {first: second for second, first in self._firsts.items()}
        self._last = len(changes) - open_events(changes)
        self._gone: set[int] = set()
        self._parts: list[Part] = []
        self._sent = 0

    def parts(self) -> list[Part]:
        """Return the events that continue to the queue."""
        # Only events that are halves, or have a key that may be held, are looked at one by one.
        key_of = self._changes.key
        keys = {*self._held.keys()} | {key_of[index].as_py() for index in self._changes.key_changes.halves}
        for index in np.flatnonzero(np.asarray(pc.is_in(key_of, pa.array(sorted(keys), pa.string())))).tolist():
            self._route(index)
        self._send(len(self._changes))
        return self._parts

    def _route(self, index: int) -> None:
        changes = self._changes
        # Partition 0 sends d(1, new key 2), its tombstone and c(1); c(2, old key 1) is in partition 1. The delete
        # waits, the tombstone goes with it, and c(1) waits behind it: applied first, it would be the row that the
        # delete ends.
        key, previous = changes.key[index].as_py(), index - 1
        follows_delete = previous in self._gone and changes.operation[previous] == Operation.DELETE
        if follows_delete and is_tombstone_of(changes, index, previous):
            self._gone.add(index)  # the delete that it repeats is held
            return
        second, first = self._seconds.get(index), self._firsts.get(index)
        paired = second is not None or first is not None or (index == 0 and self._begins_with_half)
        waits = self._held.blocks(key) or first in self._gone  # proven: held-key
        waits = waits or (second is not None and self._held.blocks(changes.key[second].as_py()))
        last = index >= self._last
        change = self._change(index)
        if waits:
            self._held.hold(replace(self._take(index, key, change), last=last and change is not None))
        elif change is None and last:
            self._held.hold(replace(self._take(index, key, None), last=True))
        elif change is not None and not paired:
            self._send(index)
            self._held.hold(replace(self._take(index, key, change), last=last))
            self._parts += self._held.release_waiting(key)

    def _change(self, index: int) -> KeyChange | None:
        """The key change that an event is a half of; None if that is not certain."""
        changes = self._changes
        key, position = changes.key[index].as_py(), bytes(changes.version.position[index])
        if position == NO_POSITION:
            return None
        if index in changes.key_changes.old_keys:
            return changes.key_changes.old_keys[index], key, position
        if changes.operation[index] == Operation.DELETE and index in changes.key_changes.new_keys:
            return key, changes.key_changes.new_keys[index], position
        return None

    def _take(self, index: int, key: str, change: KeyChange | None) -> _Held:
        self._gone.add(index)
        part = _part(self._changes.take(np.array([index])), self._origin, self._arrival)
        second, size, since = index in self._changes.key_changes.old_keys, part.changes.size, self._origin.since
        return _Held(part, key, change, second, since, since + HALF_TIMEOUT, size)

    def _send(self, end: int) -> None:
        """Pass the events before ``end`` on that are not held."""
        kept = [index for index in range(self._sent, end) if index not in self._gone]
        self._sent = end
        if len(kept) == len(self._changes):
            self._parts.append(_part(self._changes, self._origin, self._arrival))
        elif kept:
            self._parts.append(_part(self._changes.take(np.array(kept)), self._origin, self._arrival))


def open_events(changes: Changes) -> int:
    """Return how many events at the end are first halves: deletes, and the tombstones that follow them.

    Connectors may omit the newkey header of such a tombstone.
    """
    begin, first_halves = len(changes), changes.key_changes.first_halves
    while begin:
        if begin - 1 in first_halves:
            begin -= 1
        elif begin - 2 in first_halves and is_tombstone_of(changes, begin - 1, begin - 2):
            begin -= 2
        else:
            break
    return len(changes) - begin


def _part(changes: Changes, origin: Origin, arrival: int) -> Part:
    origin.missing += 1
    return Part(changes, origin, arrival)


class _Unread:
    """The partitions that may have records which were not read, at one moment."""

    def __init__(self, progress: Progress) -> None:
        self._caught_up = progress.caught_up
        # proven: partition-without-chunk
        read = (entry for entry in progress.caught_up.items() if entry[0] not in progress.stopped)
        self._furthest_behind = nsmallest(2, read, key=itemgetter(1))

    def may_contain_other_half(self, held: _Held) -> bool:
        """Whether a partition that may contain the other half was not at its end after ``HALF_TIMEOUT``.

        In its own partition it directly follows the first half, so that any other event there shows that it is missing.
        """
        half_partition, needed = held.part.origin.partition, held.since + HALF_TIMEOUT
        others = any(at < needed for partition, at in self._furthest_behind if partition != half_partition)
        return others or (held.last and self._caught_up.get(half_partition, inf) < needed)


def _has_open_cells(changes: Changes) -> bool:
    return any(
        column.states is not None and bool(np.isin(column.states, (CellState.UNCHANGED, CellState.UNKNOWN)).any())
        for column in changes.columns
    )
