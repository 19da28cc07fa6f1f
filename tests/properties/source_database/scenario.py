"""A scenario: a source database's history, the arrival of its records at a sink task, and the faults of that task.

Everything that is not listed in a ``Scenario`` follows from its seed and from the names of statements and records. So a
scenario stays the same when statements or faults are removed from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from properties.source_database.connector import Connector, SentRecord, Setup
from properties.source_database.database import Database
from properties.source_database.dialects import DIALECTS
from properties.source_database.statements import Features, Statement

Place = tuple[str, int]

POINTS = ("schema", "ledger", "table", "offsets")
"""What a worker makes durable."""


@dataclass(frozen=True)
class Death:
    """The worker is killed ``before`` or after it does what ``point`` names for the ``count``-th time."""

    point: str
    count: int
    before: bool


@dataclass(frozen=True)
class Overtaking:
    """The first worker pauses before its ``still``-th call of a table, and its successor gets the partitions.

    It resumes before the ``again``-th call of its successor, or when that has finished.
    """

    still: int
    again: int


@dataclass(frozen=True)
class Pace:
    """The arrival of records.

    ``lag``: by how much partitions differ in progress. One in ``chunk`` records ends a chunk.

    ``stall`` and ``slow`` are per cent of the chunks that are followed by a stall, and of the calls that take long.
    ``live``: a partition has no records behind the statement that is read. ``unread``: one partition brings its first
    record so many records later, and the feed waits before the first chunk of each partition.
    """

    lag: int = 0
    chunk: int = 2
    stall: int = 0
    slow: int = 0
    pauses: int = 0
    live: bool = False
    unread: int = 0


@dataclass(frozen=True)
class Sink:
    """The connector's options. ``database``: cells are reselected. ``unresolved``: reselect.unresolved.insert.mode."""

    database: bool = False
    unresolved: str = "auto"
    max_records: int = 500_000
    linger_ms: int = 100
    null_values: bool = False
    cache: bool = False


@dataclass(frozen=True)
class Scenario:
    """See the module. ``moves`` are indexes of chunks after which the assignment is revoked and assigned again."""

    seed: int
    setup: Setup
    features: Features
    statements: Sequence[Statement]
    sink: Sink = field(default_factory=Sink)
    pace: Pace = field(default_factory=Pace)
    deaths: Sequence[Death] = ()
    moves: Sequence[int] = ()
    overtaking: Overtaking | None = None


@dataclass(frozen=True)
class Simulation:
    """A scenario's database after all statements, and its records in the order of their arrival."""

    database: Database
    records: Sequence[SentRecord]
    arrivals: Sequence[SentRecord]
    ends: Mapping[Place, int]


def simulate(scenario: Scenario) -> Simulation:
    """Run the statements and send the connector's records."""
    setup = scenario.setup
    together = DIALECTS[setup.dialect].together
    database = Database(
        setup.tables, setup.key_kind, setup.arrays, together, gtids=setup.gtids, null_arrays=setup.null_arrays
    )
    database.run(scenario.statements)
    records = Connector(setup, database).records()
    ends = {(record.topic, record.partition): record.offset + 1 for record in records}
    return Simulation(database, records, _arrivals(scenario, records), ends)


def chance(scenario: Scenario, *what: int) -> int:
    """A number that depends only on the scenario's seed and ``what``."""
    return hash((scenario.seed, *what, 7)) % 1_000_003


def _arrivals(scenario: Scenario, records: Sequence[SentRecord]) -> Sequence[SentRecord]:
    """Each partition in its order, at different speeds."""
    lag, latest = scenario.pace.lag + 1, dict[Place, int]()
    late = chance(scenario, 13) % (scenario.setup.first_partitions or scenario.setup.partitions)
    timed = []
    for index, record in enumerate(records):
        partition = record.topic, record.partition
        own = chance(scenario, record.partition, len(record.topic)) % lag
        own += scenario.pace.unread if record.partition == late else 0
        due = index + own + chance(scenario, *record.uid) % lag
        latest[partition] = max(due, latest.get(partition, 0))
        timed.append((latest[partition], index))
    return [records[index] for _, index in sorted(timed)]
