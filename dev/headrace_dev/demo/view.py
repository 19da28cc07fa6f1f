"""The live view: what the worker says about itself (``/metrics``) and what its tables say (their newest snapshots)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace_dev.demo.compare import lake_table
from headrace_dev.demo.load import TABLES
from headrace_dev.worker import Worker

# How the figures of the view are called on /metrics: sample name, and the labels that it must have.
Metric = tuple[str, Mapping[str, str]]
EVENTS: Metric = ("kafka_connect_sink_task_sink_record_read_total", {})
LAG: Metric = ("kafka_connect_sink_task_sink_record_lag_max", {})
RESELECTS: Metric = ("reselect_queries_total", {})
RESELECTED: Metric = ("reselect_resolved_total", {"step": "source"})
CACHE_HITS: Metric = ("reselect_cache_requests_total", {"result": "hit"})


@dataclass(frozen=True, slots=True)
class Sample:
    """What stands there at one moment; ``rows`` by table."""

    time: float
    transactions: int
    events: int
    lag: int
    reselects: int
    reselected: int
    cache_hits: int
    rows: Mapping[str, int]

    def per_second(self, before: Sample) -> float:
        """Events a second since ``before``."""
        return (self.events - before.events) / max(self.time - before.time, 1e-9)


def take_sample(worker: Worker, folders: Mapping[str, Path], transactions: int) -> Sample:
    """Ask the worker and look at the tables."""
    metrics = worker.metrics()

    def total(metric: Metric) -> int:
        name, labels = metric
        return int(sum(value for (found, of), value in metrics.items() if found == name and labels.items() <= set(of)))

    return Sample(
        time.monotonic(),
        transactions,
        events=total(EVENTS),
        lag=total(LAG),
        reselects=total(RESELECTS),
        reselected=total(RESELECTED),
        cache_hits=total(CACHE_HITS),
        rows={table: row_count(folder) for table, folder in folders.items()},
    )


def row_count(folder: Path) -> int:
    """Rows of an Iceberg table from its newest snapshot alone; 0 before its first commit."""
    table = lake_table(folder)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0) - int(snapshot.summary["total-position-deletes"] or 0)


def line(sample: Sample, before: Sample) -> str:
    """The view in one line, for a log."""
    return (
        f"{sample.transactions} transactions, {sample.events} events ({sample.per_second(before):.0f}/s), "
        f"lag {sample.lag}, {sample.reselects} reselects, {sample.cache_hits} cache hits, "
        f"{sum(sample.rows.values())} rows"
    )


def panel(sample: Sample, before: Sample, help_text: str) -> RenderableType:
    """The view for a terminal."""
    figures = Table(title="Headrace", title_justify="left", show_header=False, box=None, padding=(0, 2))
    figures.add_row("transactions of the shop", f"{sample.transactions:,}")
    figures.add_row("events read", f"{sample.events:,}", f"{sample.per_second(before):,.0f}/s")
    figures.add_row("lag", f"{sample.lag:,}", "events that wait in Kafka")
    figures.add_row("reselects", f"{sample.reselects:,}", f"SELECTs, {sample.reselected:,} cells read again")
    figures.add_row("cache hits", f"{sample.cache_hits:,}", "cells that needed no SELECT")
    tables = Table(title="Rows in the lake", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for table in TABLES:
        tables.add_row(table, f"{sample.rows[table]:,}")
    return Group(figures, Text(), tables, Text(), Text(help_text, style="dim"))
