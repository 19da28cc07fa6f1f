"""Generates a scenario from a seed. ``NOT_YET_FIXED`` removes what triggers known defects of the product."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from random import Random

from properties.source_database.connector import Setup
from properties.source_database.dialects import DIALECTS
from properties.source_database.failovers import with_failovers
from properties.source_database.flattening import with_flattening
from properties.source_database.scenario import POINTS, Death, Overtaking, Pace, Scenario, Sink
from properties.source_database.statements import Features, statements

STATEMENTS = 14


def _without_other_lives(scenario: Scenario) -> Scenario:
    """Key changes omit no cell if events of another row with their old key may arrive at another time."""
    needed = scenario.sink.database or scenario.setup.partitions > 1 or scenario.features.snapshots
    return _with_whole_key_changes(scenario) if needed else scenario


def _without_lost_values(scenario: Scenario) -> Scenario:
    """Key changes omit no cell if no database supplies it."""
    return scenario if scenario.sink.database else _with_whole_key_changes(scenario)


def _with_whole_key_changes(scenario: Scenario) -> Scenario:
    changes = scenario.features.moves or scenario.features.deferred
    if not changes or not DIALECTS[scenario.setup.dialect].omits:
        return scenario
    return replace(scenario, setup=replace(scenario.setup, identity="full"))


def _without_early_truncates(scenario: Scenario) -> Scenario:
    truncated = scenario.features.truncates and scenario.setup.partitions > 1
    return replace(scenario, features=replace(scenario.features, truncates=False)) if truncated else scenario


def _without_deferred_keys(scenario: Scenario) -> Scenario:
    return replace(scenario, features=replace(scenario.features, deferred=False))


def _without_shared_topics(scenario: Scenario) -> Scenario:
    return replace(scenario, setup=replace(scenario.setup, shared_topic=False))


def _without_equal_positions(scenario: Scenario) -> Scenario:
    if not scenario.setup.dialect.startswith("mysql"):
        return scenario
    setup, features = replace(scenario.setup, dialect="mysql"), replace(scenario.features, restarts=False)
    return replace(scenario, setup=setup, features=features)


def _without_dropped_columns(scenario: Scenario) -> Scenario:
    dropped = scenario.features.drops and not scenario.setup.schemas
    return replace(scenario, features=replace(scenario.features, drops=False)) if dropped else scenario


def _without_simple_headers(scenario: Scenario) -> Scenario:
    return replace(scenario, setup=replace(scenario.setup, headers="json"))


def _without_widened_columns(scenario: Scenario) -> Scenario:
    widened = scenario.features.alters and scenario.sink.database and not scenario.setup.schemas
    return replace(scenario, features=replace(scenario.features, alters=False)) if widened else scenario


DEFECTS: Mapping[str, Callable[[Scenario], Scenario]] = {
    "key change takes cells from another life": _without_other_lives,
    "tombstone of another table of the topic": _without_shared_topics,
    "truncate before the table exists is lost": _without_early_truncates,
    "deferred keys": _without_deferred_keys,
    "equal positions of MySQL": _without_equal_positions,
    "dropped column of JSON without schemas": _without_dropped_columns,
    "old keys in simple headers": _without_simple_headers,
    "halves of a key change in two commits": _without_lost_values,
    "widened column of JSON without schemas": _without_widened_columns,
}
"""How a scenario avoids each known defect. It gets its statements afterwards."""

NOT_YET_FIXED: Collection[str] = ()
"""The defects that the product still has. Take one out to search for it."""

Choose = Callable[[int], bool]
"""Whether something of so many per cent is the case."""


def of_seed(seed: int, *, avoided: Collection[str] = NOT_YET_FIXED) -> Scenario:
    """A small scenario. Half of all seeds concentrate on one topic, by ``seed % 8``."""
    choose = Random(seed)
    scenario = _any(choose, seed)
    focus = _FOCUSES.get(seed % 8)
    scenario = scenario if focus is None else focus(choose, scenario)
    scenario = _with_unread_partitions(Random(~seed), scenario)
    for defect in avoided:
        scenario = DEFECTS[defect](scenario)
    scenario = with_flattening(with_failovers(scenario))
    scenario = _with_null_arrays(_with_added_partitions(scenario))
    if scenario.setup.dialect == "mysql, compressed":  # docs/guarantees.md, "Compressed transactions of MySQL"
        scenario = replace(scenario, deaths=(), moves=(), overtaking=None)
    if scenario.features.deferred:
        scenario = _within_limits_of_late_keys(scenario)
    found = statements(choose, scenario.features, scenario.setup.tables, STATEMENTS)
    return replace(scenario, statements=found)


def _with_unread_partitions(choose: Random, scenario: Scenario) -> Scenario:
    """In one of five scenarios an assigned partition brings its first chunk late."""
    if choose.randrange(5) or scenario.setup.partitions == 1:
        return scenario
    return replace(scenario, pace=replace(scenario.pace, unread=choose.choice((10, 40))))


def _with_null_arrays(scenario: Scenario) -> Scenario:
    """Arrays that are set to NULL, in half of the scenarios with a database, in large batches.

    An event shows such a NULL as it shows an unchanged value. Only the database distinguishes them, and cannot if the
    column has been dropped since (docs/guarantees.md, "Nulls of PostgreSQL's types that have no placeholder").
    """
    choose = Random(f"null arrays {scenario.seed}")
    if choose.randrange(2) or not scenario.sink.database or scenario.features.drops:
        return scenario
    return replace(
        scenario,
        setup=replace(scenario.setup, arrays=True, null_arrays=True),
        sink=replace(scenario.sink, max_records=500_000, linger_ms=1000),
    )


def _with_added_partitions(scenario: Scenario) -> Scenario:
    """Partitions that are added to the topics, in one of eight scenarios: events of a key are in two partitions.

    One of the first partitions brings its records late, and the partitions are assigned again and again. So an older
    event of a row may be read after the row's delete, which the worker has only in the ledger. There are no failovers
    and no later snapshots (docs/guarantees.md, "Sources whose positions start again" and "Keys in two partitions"). If
    no database supplies a value that an event omits, events contain all values.
    """
    choose = Random(f"added partitions {scenario.seed}")
    if choose.randrange(8) or scenario.features.failovers or scenario.setup.dialect == "mysql, compressed":
        return scenario
    partitions = choose.choice((2, 2, 3))
    setup = replace(scenario.setup, partitions=partitions, first_partitions=choose.randrange(1, partitions))
    features = Features(
        moves=choose.randrange(4) == 0,
        truncates=scenario.features.truncates,
        restarts=scenario.features.restarts,
        added_partitions=True,
    )
    pace = replace(
        scenario.pace, lag=choose.choice((0, 8)), chunk=choose.choice((1, 2)), stall=40, unread=choose.choice((10, 40))
    )
    return replace(
        scenario,
        setup=setup if scenario.sink.database else replace(setup, identity="full"),
        features=features,
        pace=pace,
        moves=sorted(choose.sample(range(2, 14), 4)),
    )


def _within_limits_of_late_keys(scenario: Scenario) -> Scenario:
    """Remove what docs/guarantees.md, "Keys that the database checks late", excludes.

    Values that the second of two moves omits are lost if a batch ends between the two moves, and may be another row's
    if a worker is fenced there.
    """
    if not scenario.sink.database:
        return _with_whole_key_changes(scenario)
    return scenario if scenario.setup.identity == "full" else replace(scenario, overtaking=None)


def _any(choose: Random, seed: int) -> Scenario:
    flag: Choose = lambda percent: choose.randrange(100) < percent  # noqa: E731 - short, and used only in this function
    features = Features(
        moves=flag(80),
        deferred=flag(15),
        truncates=flag(15),
        alters=flag(25),
        drops=flag(15),
        snapshots=flag(15),
        incremental=flag(15),
        restarts=flag(25),
    )
    setup = _setup(choose, flag, seed)
    sink = Sink(
        database=flag(40) and setup.key_kind != "decimal" and setup.dialect == "postgresql",
        unresolved=choose.choice(("auto", "null")),
        max_records=choose.choice((1, 2, 3, 500_000, 500_000, 500_000)),
        linger_ms=choose.choice((0, 100, 100, 1000)),
        null_values=flag(20),
        cache=flag(50),
    )
    pace = Pace(
        lag=choose.choice((0, 0, 2, 8, 30)),
        chunk=choose.choice((1, 2, 4, 8)),
        stall=choose.choice((0, 0, 10, 40)),
        slow=choose.choice((0, 0, 10, 40)),
        pauses=choose.choice((0, 0, 0, 8)),
        live=flag(30),
    )
    deaths = [_death(choose) for _ in range(choose.choice((0, 0, 1, 1, 2, 3)))]
    moves = [choose.randint(1, 8) for _ in range(choose.choice((0, 0, 0, 1, 2)))]
    overtaking = Overtaking(choose.randint(1, 30), choose.randint(1, 40)) if flag(15) else None
    return Scenario(seed, setup, features, (), sink, pace, deaths, moves, overtaking)


def _setup(choose: Random, flag: Choose, seed: int) -> Setup:
    dialect = choose.choice((*["postgresql"] * 4, "mysql", "mysql, compressed", "oracle", "sqlserver"))
    key_kind = choose.choice(("int", "int", "int", "text", "composite", "decimal"))
    tables = 2 if flag(25) else 1
    return Setup(
        dialect=dialect,
        tables=tables,
        shared_topic=tables > 1 and flag(50),
        partitions=choose.choice((1, 2, 2, 3)),
        key_kind=key_kind,
        identity="full" if dialect == "postgresql" and flag(15) else "default",
        arrays=dialect == "postgresql" and flag(15),
        schemas=key_kind == "decimal" or flag(70),
        headers=choose.choice(("json", "simple")),
        salt=seed,
    )


def _death(choose: Random) -> Death:
    return Death(choose.choice(POINTS), choose.randint(1, 6), choose.randrange(2) == 1)


def _other_lives(choose: Random, scenario: Scenario) -> Scenario:
    """Rows leave keys and other rows get them, in partitions of different progress; a database answers."""
    setup = replace(
        scenario.setup, dialect="postgresql", identity="default", partitions=2, key_kind="int", schemas=True
    )
    features = Features(snapshots=choose.randrange(3) == 0, restarts=choose.randrange(4) == 0)
    pace = replace(scenario.pace, lag=choose.choice((8, 30)), stall=0, slow=0, pauses=0, chunk=choose.choice((2, 6)))
    sink = replace(scenario.sink, database=True, max_records=500_000, linger_ms=choose.choice((100, 1000)))
    return replace(scenario, setup=setup, features=features, pace=pace, sink=sink)


def _split_halves(choose: Random, scenario: Scenario) -> Scenario:
    """Key changes in small batches, without a database."""
    setup = replace(scenario.setup, dialect="postgresql", identity="default", partitions=choose.choice((1, 1, 2)))
    sink = replace(scenario.sink, database=False)
    return replace(scenario, setup=setup, sink=sink, features=replace(scenario.features, moves=True))


def _truncates(choose: Random, scenario: Scenario) -> Scenario:
    """Truncates that are behind or ahead of other partitions."""
    setup = replace(scenario.setup, partitions=choose.choice((2, 3)))
    features = Features(moves=False, truncates=True, incremental=choose.randrange(3) == 0)
    pace = replace(scenario.pace, lag=choose.choice((8, 30)), chunk=choose.choice((1, 2)))
    deaths = [Death("offsets", choose.randint(1, 3), before=False), _death(choose)]
    return replace(scenario, setup=setup, features=features, pace=pace, deaths=deaths)


def _shared_topics(choose: Random, scenario: Scenario) -> Scenario:
    """Two tables in one topic."""
    setup = replace(scenario.setup, tables=2, shared_topic=True, partitions=choose.choice((1, 2, 2)))
    return replace(scenario, setup=setup)


_FOCUSES: Mapping[int, Callable[[Random, Scenario], Scenario]] = {
    1: _other_lives,
    3: _split_halves,
    5: _truncates,
    7: _shared_topics,
}
