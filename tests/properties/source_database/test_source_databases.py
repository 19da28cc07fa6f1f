"""The law of laws: whatever a database does and whatever happens on the way, its tables in the lake become its rows.

Simulated databases do random things; a simulated Debezium sends them as JSON to topics of several partitions; the real
task reads these in virtual time, is killed, rebalanced, overtaken, stalled and paused. At every commit each row is a
state that it once had, and at rest the tables equal the database's. A red test prints the smallest scenario that it
found, and the seed to play it again.
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
    """Time is virtual, and the thousands of warnings of overtaken workers are not kept."""
    logger = logging.getLogger("headrace")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with virtual_time():
        yield
    logger.setLevel(level)


@pytest.mark.timeout(900)
def test_two_thousand_databases() -> None:
    """None of them differs from its tables."""
    for seed in range(2_000):
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
