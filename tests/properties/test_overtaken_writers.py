"""What a worker writes that has lost its partition without knowing it: its successor has gone on meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from change_events import version
from properties.deliveries import Delivery, delivered
from properties.histories import VALUE
from properties.reference_model import Event
from properties.workers import NO_OPTIONS, Fate, Mortal, Warehouse, Worker, written

from headrace.core.events import Actions, Operation
from headrace.ports import Commit, LakeTable, MergeCounts
from headrace_connectors.memory import MemoryLakehouse

CELLS = {"a": (VALUE, 1), "b": (VALUE, 1)}
INSERT = Event(Operation.CREATE, 1, version(10, 0), CELLS)
UPDATE = Event(Operation.UPDATE, 1, version(20, 1), {"a": (VALUE, 2), "b": (VALUE, 2)})
DELETE = Event(Operation.DELETE, 1, version(30, 2))


class Overtaken(Mortal):
    """A table whose writer stands still before its first merge, while something else happens."""

    def __init__(self, table: LakeTable, meanwhile: Callable[[], object]) -> None:
        super().__init__(table, Fate([]))
        self._meanwhile = [meanwhile]

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions, late."""
        while self._meanwhile:
            self._meanwhile.pop()()
        return super().merge(actions, commit)


class SlowWarehouse(Warehouse):
    """Hands out such tables."""

    def __init__(self, lakehouse: MemoryLakehouse, delivery: Delivery) -> None:
        super().__init__(lakehouse, "law", delivery, NO_OPTIONS)
        self._successor = lambda: written(delivery, lakehouse)

    def open(self, table: int) -> Mortal:
        """The successor writes everything before the first merge."""
        return Overtaken(self.table(table), self._successor)


def cells_after(delivery: Delivery) -> list[tuple[int, int]]:
    """What stands after a worker has written the first record when its successor had written all of them."""
    lakehouse = MemoryLakehouse()
    slow = Worker(SlowWarehouse(lakehouse, delivery))
    slow.read(delivery.arrivals[:1], behind=1, closed=1)
    table = lakehouse.table("laws", "law_0", NO_OPTIONS)
    return [(row["a"], row["b"]) for row in table.rows().values()]


def test_a_late_merge_leaves_newer_rows_as_they_are() -> None:
    """They are above its position (merge.md section 11)."""
    assert cells_after(delivered([[INSERT]], [[UPDATE]])) == [(2, 2)]


@pytest.mark.xfail(strict=True, reason="a limit, which docs/guarantees.md names")
def test_a_late_merge_brings_no_deleted_row_back() -> None:
    """Its worker does not know of the tombstone that its successor has written."""
    assert cells_after(delivered([[INSERT]], [[DELETE]])) == []
