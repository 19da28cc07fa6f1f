"""Tests of the memory budget that all tables of a worker share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.task.flow_control import MemoryBudget, unlimited


def test_one_table_is_limited_to_half() -> None:
    """One table exceeds the budget above half of the limit. The other half is reserved for other tables."""
    budget = MemoryBudget(100)
    budget.hold("a", 50)
    assert not budget.is_exceeded_by("a")
    budget.hold("a", 51)
    assert budget.is_exceeded_by("a")


def test_a_large_table_does_not_stop_small_ones() -> None:
    """A table that exceeds its share does not prevent other tables from using theirs."""
    budget = MemoryBudget(100)
    budget.hold("large", 60)
    budget.hold("small", 10)
    assert budget.is_exceeded_by("large")
    assert not budget.is_exceeded_by("small")
    budget.hold("small", 26)
    assert budget.is_exceeded_by("small")


def test_subscribers_are_notified_when_memory_is_free() -> None:
    """The budget notifies a subscriber once, when the held memory falls below the limit."""
    budget, totals = MemoryBudget(100), []
    budget.subscribe(lambda: totals.append(budget.total))
    budget.hold("a", 80)
    budget.hold("a", 60)
    assert totals == []
    budget.hold("a", 10)
    assert totals == [10]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=60))
def test_reads_below_the_limit_stay_within_the_budget(reads: list[tuple[int, int]]) -> None:
    """Ten tables read in any order while the budget allows it: the sum exceeds the limit by at most one chunk each."""
    budget, held = MemoryBudget(10_000), dict.fromkeys(range(10), 0)
    for table, size in reads * 20:
        if not budget.is_exceeded_by(table):
            held[table] += size
            budget.hold(table, held[table])
    assert budget.total == sum(held.values()) <= 10_000 + 10 * 400


def test_without_a_limit_nothing_is_exceeded() -> None:
    """A one-off run uses a budget without a limit, which no table exceeds."""
    budget = unlimited()
    budget.hold("a", 2**60)
    assert not budget.is_exceeded_by("a")
