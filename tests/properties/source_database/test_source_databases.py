"""The main property: for any history and any faults, the tables in the lake equal those of the database.

Simulated databases run random statements. A simulated Debezium sends their changes as JSON to topics of several
partitions. The real task reads these in virtual time, is killed, rebalanced, fenced, stalled and paused. At every
commit each row equals a state of its source row, and at the end the tables equal the database's. A failed test prints
the smallest scenario that it found, and the seed to run it again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest
from properties.source_database.search import check
from properties.source_database.seeds import of_seed
from properties.source_database.virtual_time import virtual_time


@pytest.fixture(autouse=True)
def _quiet_and_fast() -> Iterator[None]:
    """Time is virtual, and the thousands of warnings of fenced workers are not recorded."""
    logger = logging.getLogger("headrace")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with virtual_time():
        yield
    logger.setLevel(level)


@pytest.mark.parametrize(
    "seeds", [range(600), pytest.param(range(600, 2_000), marks=pytest.mark.long)], ids=["first", "others"]
)
@pytest.mark.timeout(900)
def test_two_thousand_databases(seeds: range) -> None:
    """The tables of all scenarios equal their databases."""
    for seed in seeds:
        check(of_seed(seed))


@pytest.mark.parametrize("seed", [1_000_699, 1_000_758, 1_001_267, 3_000_066])
def test_a_column_that_is_dropped_before_its_first_streamed_change_may_become_null(seed: int) -> None:
    """Without a database it looks like a generated column (docs/guarantees.md, "Generated columns of PostgreSQL")."""
    check(of_seed(seed))


@pytest.mark.parametrize("seed", [1_007_903, 1_009_684, 1_017_906])
def test_halves_of_a_key_change_find_each_other(seed: int) -> None:
    """The other half waits undecoded in another lane, is being decoded, or waits behind a half that waits for this one.

    The last needs a stretch that was sent again, of which a part had been applied.
    """
    check(of_seed(seed))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_twenty_thousand_databases(capsys: pytest.CaptureFixture[str]) -> None:
    """The same with other seeds."""
    began = time.monotonic()
    for number in range(1, 20_001):
        check(of_seed(1_000_000 + number))
        if number % 1_000 == 0:
            with capsys.disabled():
                print(f"\n{number} databases, {time.monotonic() - began:.0f} s", end="", flush=True)
