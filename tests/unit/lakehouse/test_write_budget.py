"""The budget of a table's upkeep."""

from __future__ import annotations

import math

from support.clock import Clock

from headrace_connectors.lakehouse.compaction_plan import RATIO, HourlyBytes, WriteBudget


def test_upkeep_writes_in_proportion_to_merges() -> None:
    """What merges write earns three times as much, and what upkeep writes is taken out of it."""
    budget = WriteBudget(HourlyBytes(0), HourlyBytes(0))
    assert budget.available == 0
    budget.earn(1000)
    budget.spend(2500)
    assert budget.available == RATIO * 1000 - 2500
    budget.spend(2500)
    assert budget.available == 0
    budget.earn(None)
    assert budget.available == math.inf


def test_the_allowance_of_an_hour_refills_evenly() -> None:
    """A full allowance pays for more than an hour's bytes, which are missing afterwards."""
    clock = Clock()
    hourly = HourlyBytes(3600, clock)
    assert hourly.available == math.inf
    hourly.spend(5400)
    assert hourly.available == -1800
    clock.now = 1900
    assert hourly.available == 100
    clock.now = 7200
    assert hourly.available == math.inf


def test_tables_of_a_worker_share_its_allowance() -> None:
    """One table's upkeep leaves less to another, besides its own allowance."""
    clock = Clock()
    worker = HourlyBytes(1000, clock)
    first, second = (WriteBudget(HourlyBytes(10_000, clock), worker) for _ in range(2))
    for each in (first, second):
        each.earn(1_000_000)
    first.spend(600)
    assert second.available == 400
