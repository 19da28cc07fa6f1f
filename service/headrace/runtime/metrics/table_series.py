"""Which tables have series of their own in ``/metrics`` (``metrics.tables``), so that its size has a bound.

The other tables of a task share the series with the label value ``*``, which no table or topic can be named. Sums over
all tables stay right, because a table keeps its series: it never leaves a shared counter, and takes nothing with it
when it gets series of its own.

Tests: ``tests/unit/runtime/metrics/test_table_series.py``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection
from threading import Lock

log = logging.getLogger(__name__)
SHARED = "*"
"""The label value of series that several tables share."""
Task = tuple[str, str]
"""Connector and number of a task, as labels."""


class TableSeries:
    """Assigns series to tables, in the order in which they appear. May be called in any thread.

    ``limit`` tables of the worker have series of their own, None is all of them. A task that has any table has one with
    series of its own, unless ``limit`` is 0: a shared series of one table would be no shorter. A table that has left
    keeps its series until another one needs their place; ``discard`` removes them then.
    """

    def __init__(self, limit: int | None, discard: Callable[[Task, str], None] = lambda task, table: None) -> None:
        self.limit = limit
        self._discard = discard
        self._lock = Lock()
        self._own: defaultdict[Task, set[str]] = defaultdict(set)
        self._shared: defaultdict[Task, set[str]] = defaultdict(set)
        self._owners = 0
        self._left: dict[tuple[Task, str], None] = {}
        self._logged = False

    def label(self, task: Task, table: str) -> str:
        """Return the label value of a table: its name, or ``*`` if it shares series."""
        with self._lock:
            if table in self._own[task]:
                self._left.pop((task, table), None)
                return table
            if table in self._shared[task]:
                return SHARED
            if self._has_place(task):
                self._own[task].add(table)
                self._owners += 1
                return table
            self._shared[task].add(table)
            self._log_once()
            return SHARED

    def leave(self, task: Task, tables: Collection[str]) -> None:
        """Record that tables are not this task's any more."""
        with self._lock:
            self._shared[task].difference_update(tables)
            self._left.update(((task, table), None) for table in tables if table in self._own[task])

    def remove(self, connector: str) -> None:
        """Remove the tables of a deleted connector, whose series are removed."""
        with self._lock:
            for tables in (self._own, self._shared):
                for task in [task for task in tables if task[0] == connector]:
                    del tables[task]
            self._owners = sum(map(len, self._own.values()))
            self._left = {left: None for left in self._left if left[0][0] != connector}

    def counts(self) -> tuple[int, int]:
        """Return how many tables have series of their own, and how many share series."""
        with self._lock:
            return self._owners - len(self._left), sum(map(len, self._shared.values()))

    def _has_place(self, task: Task) -> bool:
        if self.limit is None or self._owners < self.limit:
            return True
        if self._left:
            left_task, table = next(iter(self._left))
            del self._left[left_task, table]
            self._own[left_task].remove(table)
            self._owners -= 1
            self._discard(left_task, table)
            return True
        return self.limit > 0 and not self._own[task]

    def _log_once(self) -> None:
        if self.limit and not self._logged:
            self._logged = True
            log.info(
                "Metrics: the worker writes more than %d tables: the others share the series with the label value '%s' "
                "(metrics.tables; GET /tables lists all tables)",
                self.limit,
                SHARED,
            )
