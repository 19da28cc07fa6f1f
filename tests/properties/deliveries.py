"""How the events of a history reach a worker, and what happens to the worker.

Partitions advance at different speeds. Sequences of events are sent late, or again under higher offsets, and single
records arrive late. Fetches and batches end anywhere, an assignment is lost, and the worker is killed at a named point
of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

from properties.histories import Size, Unit, history
from properties.reference_model import Event

Place = tuple[str, int]

POINTS = ("schema", "ledger", "table", "offsets")
"""What a worker makes durable, in the order of a batch: each a point that it can die before or after."""

ALL_TABLES = 7
"""A set of tables, as bits."""


class Arrival(NamedTuple):
    """An event with the place and time of its fetch. ``unit`` is the index of events that belong together."""

    event: Event
    place: Place
    offset: int
    unit: int


@dataclass(frozen=True)
class Death:
    """The worker is killed ``before`` or after it does what ``point`` names for the ``count``-th time."""

    point: str
    count: int
    before: bool


@dataclass(frozen=True)
class Cut:
    """After an arrival: whether the fetch ends here, and which tables (as bits) then close their batches."""

    fetch: bool
    closed: int


@dataclass(frozen=True)
class Trouble:
    """The faults that may occur, and the maximum number of each."""

    repeats: int = 0
    late: int = 0
    deaths: int = 0
    moves: int = 0


@dataclass(frozen=True)
class Delivery:
    """Arrivals in order. The n-th life of a worker splits them by the n-th of ``cuts``, later lives by the last one.

    ``moves`` are arrivals after which the assignment moves to another worker, each once. ``lost`` are indexes of offset
    commits that do not reach the broker.
    """

    arrivals: Sequence[Arrival]
    cuts: Sequence[Sequence[Cut]]
    deaths: Sequence[Death] = ()
    moves: frozenset[int] = frozenset()
    lost: frozenset[int] = frozenset()

    def smaller(self, kept: Sequence[int]) -> Delivery:
        """Only the arrivals at these indexes."""
        return replace(
            self,
            arrivals=[self.arrivals[index] for index in kept],
            cuts=[[life[index] for index in kept] for life in self.cuts],
            moves=frozenset(new for new, old in enumerate(kept) if old in self.moves),
        )


def delivery(choose: Random, size: Size, trouble: Trouble, closing: int = 3) -> Delivery:
    """A delivery of a history. One in ``closing`` arrivals closes batches."""
    wandering, again = choose.randint(0, 1) == 1, bool(trouble.deaths or trouble.moves)
    stretches, late = choose.randint(0, trouble.repeats), choose.randint(0, trouble.late) if wandering else 0
    in_order = not (stretches or late)
    units = _overtaking(choose, history(choose, size, in_order=in_order, wandering=wandering, again=again))
    for _ in range(stretches):
        units = _with_a_stretch_later(choose, units)
    arrivals = _arrivals(_with_stragglers(choose, units, late))
    deaths = [_death(choose) for _ in range(choose.randint(0, trouble.deaths))]
    moves = {choose.randint(0, len(arrivals)) for _ in range(choose.randint(0, trouble.moves))}
    lost = {choose.randint(1, 10) for _ in range(choose.randint(0, 4) if deaths or moves else 0)}
    cuts = [[_cut(choose, closing) for _ in arrivals] for _ in range(1 + len(deaths) + len(moves))]
    return Delivery(arrivals, cuts, deaths, frozenset(moves), frozenset(lost))


def delivered(*batches: Sequence[Unit], deaths: Sequence[Death] = ()) -> Delivery:
    """These units in these batches; the batches have the same sizes when they are read again."""
    units = [unit for batch in batches for unit in batch]
    ends = {sum(len(batch) for batch in batches[: number + 1]) - 1 for number in range(len(batches))}
    arrivals = _arrivals(units)
    last = {arrival.unit: index for index, arrival in enumerate(arrivals)}
    closing = {last[end] for end in ends}
    return Delivery(arrivals, [[Cut(n in closing, ALL_TABLES * (n in closing)) for n in range(len(arrivals))]], deaths)


def cut_anywhere(choose: Random, units: Sequence[Unit]) -> Delivery:
    """These units in any batches, with a worker that is sometimes killed between the steps of a commit."""
    arrivals = _arrivals(units)
    deaths = [_death(choose) for _ in range(choose.randint(1, 3))]
    cuts = [[_cut(choose, choose.randint(1, 6)) for _ in arrivals] for _ in range(1 + len(deaths))]
    return Delivery(arrivals, cuts, deaths)


def untroubled(found: Delivery) -> Delivery:
    """The same arrivals in batches of one unit each, without faults."""
    ends = [after.unit != each.unit for each, after in pairwise(found.arrivals)] + [True] * bool(found.arrivals)
    return Delivery(found.arrivals, [[Cut(end, ALL_TABLES * end) for end in ends]])


def smallest(found: Delivery, differs: Callable[[Delivery], bool]) -> Delivery:
    """The delivery without the deaths, moves, lost commits and units that its difference does not need."""
    for death in found.deaths:
        fewer = [each for each in found.deaths if each is not death]
        found = _if_it_differs(replace(found, deaths=fewer), found, differs)
    for move in found.moves:
        found = _if_it_differs(replace(found, moves=found.moves - {move}), found, differs)
    for number in found.lost:
        found = _if_it_differs(replace(found, lost=found.lost - {number}), found, differs)
    again = True
    while again:
        before = len(found.arrivals)
        for unit in sorted({arrival.unit for arrival in found.arrivals}, reverse=True):
            kept = [index for index, arrival in enumerate(found.arrivals) if arrival.unit != unit]
            found = _if_it_differs(found.smaller(kept), found, differs)
        again = len(found.arrivals) < before
    return found


def _if_it_differs(smaller: Delivery, found: Delivery, differs: Callable[[Delivery], bool]) -> Delivery:
    return smaller if differs(smaller) else found


def _death(choose: Random) -> Death:
    return Death(choose.choice(POINTS), choose.randint(1, 6), choose.randint(0, 1) == 1)


def _cut(choose: Random, closing: int) -> Cut:
    closed = choose.randint(1, ALL_TABLES) if choose.randint(1, closing) == 1 else 0
    return Cut(bool(closed) or choose.randint(0, 2) == 0, closed)


def _place(unit: Unit) -> Place:
    return unit[0].version.topic, unit[0].version.partition


def _overtaking(choose: Random, units: Sequence[Unit]) -> list[Unit]:
    """Each partition is in order; partitions advance at different speeds."""
    places = [_place(unit) for unit in units]
    if choose.randint(0, 1):
        choose.shuffle(places)
    waiting = {place: [unit for unit in units if _place(unit) == place] for place in places}
    return [waiting[place].pop(0) for place in places]


def _with_a_stretch_later(choose: Random, units: list[Unit]) -> list[Unit]:
    """A sequence of events is sent again, or only later."""
    begin = choose.randint(0, len(units))
    end = choose.randint(begin, min(len(units), begin + 40))
    at = choose.randint(end, len(units))
    first = end if choose.randint(0, 2) else begin
    return [*units[:first], *units[end:at], *units[begin:end], *units[at:]]


def _with_stragglers(choose: Random, units: list[Unit], count: int) -> list[Unit]:
    """Records that could not be used are sent again by an operator, later and through another topic."""
    single = [place for place, unit in enumerate(units) if len(unit) == 1 and unit[0].old_key is None]
    late = {choose.choice(single) for _ in range(count)} if single else set()
    rest = [unit for place, unit in enumerate(units) if place not in late]
    for place in sorted(late):
        event = units[place][0]
        resent = replace(event, version=replace(event.version, topic="late", partition=0))
        rest.insert(choose.randint(min(place, len(rest)), len(rest)), [resent])
    return rest


def _arrivals(units: Sequence[Unit]) -> list[Arrival]:
    """Every event with the next offset of its partition."""
    offsets: dict[Place, int] = {}
    found = []
    for number, unit in enumerate(units):
        for event in unit:
            offset = offsets.get(_place([event]), 0)
            offsets[_place([event])] = offset + 1
            numbered = replace(event, version=replace(event.version, offset=offset))
            found.append(Arrival(numbered, _place([event]), offset, number))
    return found
