"""What reselect has done for each source table in a run of a task, for the reports on tables.

Tests: ``tests/unit/runtime/pipeline/test_reselect_totals.py``.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence

from headrace.core.connect.table_activity import ReselectUse
from headrace.core.model.events import TableId
from headrace.core.reselect.cache.rows import CacheUse
from headrace.ports import Connections
from headrace.runtime.pipeline.source_database import Query, ReselectMetrics


class ReselectTotals:
    """A ``ReselectMetrics`` that keeps totals by table, and passes everything on to ``metrics``.

    Series of metrics may be shared by several tables (``metrics.tables``), and outlive the task. Called from several
    threads.
    """

    def __init__(self, metrics: ReselectMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._totals: dict[TableId, Counter[tuple[str, str]]] = {}

    def count(self, table: TableId, counter: str, labels: Sequence[str], count: int) -> None:
        """Add to a counter."""
        self._add(table, counter, labels[0] if labels else "", count)
        self._metrics.count(table, counter, labels, count)

    def query(self, table: TableId, query: Query) -> None:
        """Register a SELECT that has ended."""
        self._add(table, "queries", query.result, 1)
        self._add(table, "rows", "", query.keys)
        self._metrics.query(table, query)

    def cache(self, use: CacheUse) -> None:
        """Pass the use of the cache on."""
        self._metrics.cache(use)

    def connections(self, now: Connections) -> None:
        """Pass the connections on."""
        self._metrics.connections(now)

    def use_of(self, tables: Collection[TableId]) -> ReselectUse | None:
        """Return the sums of these tables, None if reselect has had nothing to do for them."""
        totals: Counter[tuple[str, str]] = Counter()
        with self._lock:
            for table in tables:
                totals.update(self._totals.get(table, ()))
        if not totals:
            return None

        def by_label(wanted: str) -> dict[str, int]:
            return {label: count for (counter, label), count in totals.items() if counter == wanted and count}

        missing = totals["rows_not_found", ""]
        return ReselectUse(by_label("resolved"), by_label("requests"), by_label("queries"), totals["rows", ""], missing)

    def _add(self, table: TableId, counter: str, label: str, count: int) -> None:
        with self._lock:
            self._totals.setdefault(table, Counter())[counter, label] += count
