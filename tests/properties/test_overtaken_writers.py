"""Writes of a worker that has lost its partition and does not know it yet, while its successor writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties.counterexamples import differing_cells, story
from properties.deliveries import Delivery, Trouble, delivered, delivery, smallest
from properties.histories import VALUE, Size
from properties.overtaking import written_by_two
from properties.reference_model import Event
from properties.searching import deliveries
from properties.workers import NO_OPTIONS, Fate, Mortal, Warehouse, Worker, expected, written
from support.records.change_events import version

from headrace.core.model.actions import Actions
from headrace.core.model.events import Operation
from headrace.ports import Commit, LakeTable, MergeCounts, TableOptions
from headrace_dev.memory import MemoryLakehouse

NEVER = 10**6
AFTER_THE_LEDGER = 2
CALLS = 19
RANDOMS = st.randoms(use_true_random=False)
TWO_OWNERS = Trouble(repeats=1, moves=1)
CELLS = {"a": (VALUE, 1), "b": (VALUE, 1)}
INSERT = Event(Operation.CREATE, 1, version(10, 0), CELLS)
UPDATE = Event(Operation.UPDATE, 1, version(20, 1), {"a": (VALUE, 2), "b": (VALUE, 2)})
TOMBSTONE = Event(Operation.TOMBSTONE, 1, replace(version(30, 2), position=b""))
DELETE = Event(Operation.DELETE, 1, version(30, 2))


class Overtaken(Mortal):
    """A table whose writer pauses before its first merge, while something else happens."""

    def __init__(self, table: LakeTable, interruption: Callable[[], object]) -> None:
        super().__init__(table, Fate([]))
        self._interruptions = [interruption]

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions after the interruption."""
        while self._interruptions:
            self._interruptions.pop()()
        return super().merge(actions, commit)


class SlowWarehouse(Warehouse):
    """Opens such tables."""

    def __init__(self, lakehouse: MemoryLakehouse, delivery: Delivery) -> None:
        super().__init__(lakehouse, "law", delivery, NO_OPTIONS)
        self._successor = lambda: written(delivery, lakehouse)

    def open(self, table: int) -> Mortal:
        """Open a table for which the successor writes all records before the first merge."""
        return Overtaken(self.table(table), self._successor)


def cells_after(delivery: Delivery) -> list[tuple[int, int]]:
    """The rows after a worker wrote the first record when its successor had written all of them."""
    lakehouse = MemoryLakehouse()
    slow = Worker(SlowWarehouse(lakehouse, delivery))
    slow.read(delivery.arrivals[:1], behind=1, closed=1)
    table = lakehouse.table("laws", "law_0", NO_OPTIONS)
    return [(row["a"], row["b"]) for row in table.rows().values()]


def test_a_late_merge_leaves_newer_rows_as_they_are() -> None:
    """Rows above the position of the late merge do not change (merge.md section 11)."""
    assert cells_after(delivered([[INSERT]], [[UPDATE]])) == [(2, 2)]


def test_a_late_merge_brings_no_deleted_row_back() -> None:
    """The worker reads its successor's tombstone after its merge, and deletes the row again."""
    assert cells_after(delivered([[INSERT]], [[DELETE]])) == []


def test_what_was_deleted_while_a_worker_waited_is_not_even_written() -> None:
    """The worker also reads a changed ledger before it begins a batch."""
    lakehouse = MemoryLakehouse()
    tables = written_by_two(delivered([[INSERT]], [[DELETE]]), lakehouse, NO_OPTIONS, AFTER_THE_LEDGER, NEVER)
    assert tables == {0: {}}
    assert [commit.batch_id for commit in lakehouse.table("laws", "law_0", NO_OPTIONS).commits] == [0, 1]


@pytest.mark.parametrize("last", [DELETE, TOMBSTONE])
def test_a_deleted_row_stays_deleted_for_any_order_of_two_workers(last: Event) -> None:
    """Each call of the first worker is combined with each call of the second: a deleted row stays deleted."""
    found = delivered([[INSERT]], [[last]])
    for still, again in product(range(1, CALLS), range(1, CALLS)):
        tables = written_by_two(found, MemoryLakehouse(), NO_OPTIONS, still, again)
        assert tables == {0: {}}, (still, again)


@deliveries(100)
@given(RANDOMS)
def test_any_writes_of_a_fenced_worker_give_the_model(choose: Random) -> None:
    """The first worker pauses before any call of a table, and resumes at any call of its successor or after it."""
    found = replace(delivery(choose, Size(tables=choose.randint(1, 2)), TWO_OWNERS), moves=frozenset())
    still, again = choose.randint(1, 60), choose.randint(1, 60)
    options = TableOptions(soft_delete=choose.randint(0, 3) == 0)

    def differs(delivery: Delivery) -> bool:
        return written_by_two(delivery, MemoryLakehouse(), options, still, again) != expected(delivery)

    if differs(found):
        found = smallest(found, differs)
        difference = differing_cells(written_by_two(found, MemoryLakehouse(), options, still, again), expected(found))
        raise AssertionError(f"stands still {still}, goes on {again}\n{story(found)}\n{difference}")
