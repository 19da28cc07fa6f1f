"""What a database may do to a small table, and how its events may reach the table: strategies for the laws.

A history is a list of units, each a list of events of one partition that are delivered together (the halves of a key
change, a delete and its tombstone). Rows are spread over partitions by their key, and the topic may get more of them
on the way. A delivery lets partitions overtake each other, sends stretches again, and brings single records late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from properties.reference_model import Event

from headrace.core.events import CellState, Operation, RowVersion

COLUMNS = ("a", "b")
KEYS = 4

Cells = dict[str, tuple[CellState, int | None]]
Unit = list[Event]


def cells_strategy(*states: CellState) -> st.SearchStrategy[Cells]:
    cell = st.sampled_from(states).flatmap(
        lambda state: st.tuples(st.just(state), st.integers(0, 9) if state is CellState.VALUE else st.none())
    )
    return st.fixed_dictionaries(dict.fromkeys(COLUMNS, cell))


VALUE, NULL, UNCHANGED = CellState.VALUE, CellState.NULL, CellState.UNCHANGED
UNKNOWN, ABSENT = CellState.UNKNOWN, CellState.ABSENT

FULL = cells_strategy(VALUE, VALUE, NULL, ABSENT)
HOLLOW = cells_strategy(VALUE, NULL, UNCHANGED, UNKNOWN)
"""Inserts of sources that leave values out of those as well."""
PARTIAL = cells_strategy(VALUE, NULL, UNCHANGED, UNCHANGED, UNKNOWN, ABSENT)
MOVED = cells_strategy(VALUE, NULL, UNCHANGED, UNCHANGED, UNKNOWN, ABSENT)

CHANGES = ("insert", "insert", "update", "update", "update", "delete", "move", "move", "read", "truncate")


@dataclass
class Source:
    """A table at the database: which keys are live, and the events of its changes so far."""

    partitions: int
    grain: int
    live: set[int] = field(default_factory=set)
    units: list[Unit] = field(default_factory=list)
    place: int = 0

    def change(self, draw: st.DrawFn, what: str, key: int) -> None:
        """One statement, if it makes sense for the rows that stand."""
        self.place += 1
        if what == "insert" and key not in self.live:
            self._add(Event(Operation.CREATE, key, self._version(key), draw(st.one_of(FULL, FULL, HOLLOW))))
            self.live.add(key)
        elif what == "update":  # of an unknown row as well: its insert was before we began to read
            self._add(Event(Operation.UPDATE, key, self._version(key), draw(PARTIAL)))
            self.live.add(key)
        elif what == "read" and key in self.live:
            self._add(Event(Operation.READ, key, self._version(key, positioned=False), draw(FULL)))
        elif what == "delete":
            gone, tombstone = self._deleted(key)
            self._add(*draw(st.sampled_from([[gone, tombstone], [gone]])))
            self.live.discard(key)
        elif what == "remnant":  # compaction has removed the delete, and may have removed more
            self._add(self._deleted(key)[1])
            self.live.discard(key)
        elif what == "move" and key in self.live:
            self._move(draw, key, draw(st.integers(1, KEYS).filter(lambda other: other != key)))
        elif what == "truncate":
            stamp = replace(self._version(0), partition=draw(st.integers(0, self.partitions - 1)))
            self._add(Event(Operation.TRUNCATE, 0, stamp))
            self.live.clear()

    def _move(self, draw: st.DrawFn, key: int, target: int) -> None:
        """Onto a key that still stands as well: with deferred constraints rows can swap keys."""
        first = [replace(event, moved=True) for event in self._deleted(key)]
        stamp = self._version(target, second=1)
        together = stamp.partition == first[0].version.partition
        second = Event(Operation.CREATE, target, stamp, draw(MOVED if together else FULL), old_key=key)
        for unit in [[*first, second]] if together else [first, [second]]:
            self._add(*unit)
        self.live.discard(key)
        self.live.add(target)

    def _deleted(self, key: int) -> list[Event]:
        stamp = self._version(key)
        return [Event(Operation.DELETE, key, stamp), Event(Operation.TOMBSTONE, key, replace(stamp, position=b""))]

    def _version(self, key: int, second: int = 0, positioned: bool = True) -> RowVersion:
        position = b"00000.%020d" % (self.place * 10 + second) if positioned else b""
        return RowVersion(position, "t", key % self.partitions, 0, self.place // self.grain * 1000)

    def _add(self, *events: Event) -> None:
        self.units.append(list(events))


@st.composite
def histories(draw: st.DrawFn, *, in_order: bool) -> list[Unit]:
    """What a database did. Events have no offsets yet.

    A tombstone whose delete is lost knows no position, so it cannot tell what is late behind it: only where all is
    delivered ``in_order`` may there be any.
    """
    remnants = in_order and draw(st.booleans())
    source = Source(1 if remnants else draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from([1, 3])))
    steps = st.tuples(st.sampled_from((*CHANGES, *["remnant"] * remnants)), st.integers(1, KEYS))
    more_partitions_at = -1 if remnants else draw(st.integers(0, 30))
    for place, (what, key) in enumerate(draw(st.lists(steps, min_size=1, max_size=16))):
        source.partitions += place == more_partitions_at
        source.change(draw, what, key)
    return source.units


@dataclass(frozen=True)
class Delivery:
    """Units in order of arrival, and the places after which a batch ends."""

    units: list[Unit]
    cuts: frozenset[int]


@st.composite
def deliveries(draw: st.DrawFn, *, repeats: int = 0, late: bool = False) -> Delivery:
    """A history on its way: up to ``repeats`` stretches are sent again, and single records may come late."""
    stretches = draw(st.integers(0, repeats))
    units = _overtaking(draw, draw(histories(in_order=not (stretches or late))))
    for _ in range(stretches):
        begin = draw(st.integers(0, len(units) - 1)) if units else 0
        end = draw(st.integers(begin, len(units)))
        at = draw(st.integers(end, len(units)))
        units = [*units[:at], *units[begin:end], *units[at:]]
    units = _numbered(units)
    if late:
        units = _with_stragglers(draw, units)
    return Delivery(units, frozenset(draw(cuts(len(units)))))


def cuts(count: int) -> st.SearchStrategy[list[int]]:
    """Places where batches end."""
    flags = st.lists(st.booleans(), min_size=count, max_size=count)
    return flags.map(lambda chosen: [place for place, cut in enumerate(chosen) if cut])


def batches(delivery: Delivery) -> list[tuple[int, list[Event]]]:
    """The batches of a delivery: the place of the first unit, and the events."""
    found: list[tuple[int, list[Event]]] = []
    begin = 0
    for place in range(len(delivery.units)):
        if place in delivery.cuts or place == len(delivery.units) - 1:
            found.append((begin, [event for unit in delivery.units[begin : place + 1] for event in unit]))
            begin = place + 1
    return found


def _overtaking(draw: st.DrawFn, units: Sequence[Unit]) -> list[Unit]:
    """Each partition in its order, one at the expense of the other."""
    partitions = [unit[0].version.partition for unit in units]
    if len(set(partitions)) < 2:
        return list(units)
    waiting = {number: [unit for unit in units if unit[0].version.partition == number] for number in set(partitions)}
    return [waiting[number].pop(0) for number in draw(st.permutations(partitions))]


def _numbered(units: Sequence[Unit]) -> list[Unit]:
    """Every event with the next offset of its partition."""
    offsets: dict[int, int] = {}
    result = []
    for unit in units:
        events = []
        for event in unit:
            offset = offsets.get(event.version.partition, 0)
            offsets[event.version.partition] = offset + 1
            events.append(replace(event, version=replace(event.version, offset=offset)))
        result.append(events)
    return result


def _with_stragglers(draw: st.DrawFn, units: Sequence[Unit]) -> list[Unit]:
    """Records that were dead-lettered and are replayed with the coordinates that they had."""
    single = [place for place, unit in enumerate(units) if len(unit) == 1 and unit[0].old_key is None]
    late = draw(st.lists(st.sampled_from(single), unique=True, max_size=2)) if single else []
    rest = [unit for place, unit in enumerate(units) if place not in late]
    for place in late:
        rest.insert(draw(st.integers(min(place, len(rest)), len(rest))), units[place])
    return rest
