"""Runs scenarios, reduces one that fails as far as possible, and reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from properties.source_database.judge import hollow_keys
from properties.source_database.scenario import Pace, Scenario, Simulation
from properties.source_database.world import World, played


@dataclass(frozen=True)
class AllowedStop:
    """An error that may stop a task, by a part of its message.

    ``where`` is its documentation, and ``when`` the condition for it.
    """

    message: str
    where: str
    when: Callable[[Scenario, Simulation], bool]


ALLOWED_STOPS = (
    AllowedStop(
        "omits column(s)",
        'docs/guarantees.md, "Key changes that omit a value, when a worker resumes" and "Key changes that follow a '
        'newer snapshot read"',
        lambda scenario, truth: not scenario.sink.database and bool(hollow_keys(scenario, truth)),
    ),
    AllowedStop(
        "binary log position of another change of its row",
        'docs/guarantees.md, "Compressed transactions of MySQL"',
        lambda scenario, truth: scenario.setup.dialect == "mysql, compressed",
    ),
    AllowedStop(
        "the table in the database has no such column",
        'docs/guarantees.md, "Key changes whose omitted column has been dropped since"',
        lambda scenario, truth: scenario.features.drops and bool(hollow_keys(scenario, truth)),
    ),
)


def problem(scenario: Scenario) -> str:
    """The problem of a scenario's tables; empty if there is none."""
    return judged(played(scenario))


def judged(world: World) -> str:
    """The same for a scenario that has run."""
    found = list(world.wrong)
    for stop in world.stops:
        allowed = any(each.message in str(stop) and each.when(world.scenario, world.truth) for each in ALLOWED_STOPS)
        allowed |= "omits column(s)" in str(stop) and _are_halves_apart(world)
        found += [] if allowed else [f"the task stopped: {type(stop).__name__}: {stop}"]
    return "\n".join(found)


def _are_halves_apart(world: World) -> bool:
    """Whether a half was written alone (docs/guarantees.md, "Halves of a key change that are applied alone")."""
    return (
        world.judge.halves_apart
        and not world.scenario.sink.database
        and bool(hollow_keys(world.scenario, world.truth, apart=True))
    )


def check(scenario: Scenario) -> None:
    """Fail with the smallest scenario that still has a problem."""
    if problem(scenario):
        raise AssertionError(report(smallest(scenario)))


def report(scenario: Scenario) -> str:
    """A scenario with its problem, and the call that runs it again."""
    return "\n".join(
        (
            f"seed {scenario.seed}: play it again with check(of_seed({scenario.seed})) in "
            "tests/properties/source_database/search.py and seeds.py, or:",
            f"    scenario = {scenario!r}",
            *story(scenario),
            problem(scenario),
        )
    )


def story(scenario: Scenario) -> Iterator[str]:
    """The statements, the records in the order in which they arrive, and the faults."""
    world = World(scenario)
    yield from (f"  {statement}" for statement in scenario.statements)
    for record in world.truth.arrivals:
        coordinate = f"{record.topic}-{record.partition}:{record.offset}"
        yield f"  {coordinate} {record.text}"
    yield f"  {scenario.setup}"
    yield f"  {scenario.sink}"
    yield f"  {scenario.pace}"
    yield f"  deaths {list(scenario.deaths)}, moves {list(scenario.moves)}, overtaking {scenario.overtaking}"


def smallest(scenario: Scenario) -> Scenario:
    """The scenario without the faults, options and statements that its problem does not need."""
    wanted = _kind(problem(scenario))

    def fails(smaller: Scenario) -> bool:
        starts = any(statement.what == "start connector" for statement in smaller.statements)
        return starts and _kind(problem(smaller)) == wanted

    scenario = _simplest(scenario, fails)
    size = max(1, len(scenario.statements) // 2)
    while size:
        begin = 0
        while begin < len(scenario.statements):
            rest = [*scenario.statements[:begin], *scenario.statements[begin + size :]]
            if fails(replace(scenario, statements=rest)):
                scenario = replace(scenario, statements=rest)
            else:
                begin += size
        size //= 2
    return _simplest(scenario, fails)


def _kind(text: str) -> str:
    """The class of a problem, so that the reduction does not change to a scenario with another problem."""
    return text[:16]


def _simplest(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    for simpler in _without_faults(scenario):
        scenario = simpler(scenario) if fails(simpler(scenario)) else scenario
    return scenario


def _without_faults(scenario: Scenario) -> Sequence[Callable[[Scenario], Scenario]]:
    """Ways to make a scenario simpler."""
    simpler: list[Callable[[Scenario], Scenario]] = [
        lambda each: replace(each, overtaking=None),
        lambda each: replace(each, deaths=()),
        *(_without(death) for death in scenario.deaths),
        lambda each: replace(each, moves=()),
        lambda each: replace(each, pace=Pace(chunk=each.pace.chunk)),
        *(_pace(**{name: 0}) for name in ("stall", "slow", "pauses", "lag", "unread")),
        _pace(live=False),
        _pace(chunk=1),
        _sink(cache=False),
        _sink(null_values=False),
        _sink(max_records=500_000),
        _sink(linger_ms=100),
        lambda each: replace(each, setup=replace(each.setup, arrays=False)),
        lambda each: replace(each, setup=replace(each.setup, key_kind="int")),
        lambda each: replace(each, setup=replace(each.setup, partitions=1)),
        lambda each: replace(each, setup=replace(each.setup, partitions=2)),
    ]
    return simpler


def _without(death: Any) -> Callable[[Scenario], Scenario]:
    return lambda each: replace(each, deaths=[other for other in each.deaths if other != death])


def _pace(**values: Any) -> Callable[[Scenario], Scenario]:
    return lambda each: replace(each, pace=replace(each.pace, **values))


def _sink(**values: Any) -> Callable[[Scenario], Scenario]:
    return lambda each: replace(each, sink=replace(each.sink, **values))
