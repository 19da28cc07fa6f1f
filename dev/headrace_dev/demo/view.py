"""The live view of the demo: the worker's ``/metrics`` and the newest snapshots of its tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace_dev.demo.compare import lake_table
from headrace_dev.worker import Worker

# The figures of the view on /metrics: sample name, and the labels that the sample must have.
Metric = tuple[str, Mapping[str, str]]
EVENTS: Metric = ("kafka_connect_sink_task_sink_record_read_total", {})
WRITTEN: Metric = ("headrace_events_total", {})
LAG: Metric = ("headrace_lag_records", {})
RESELECTS: Metric = ("reselect_queries_total", {})
RESELECTED: Metric = ("reselect_resolved_total", {"step": "source"})
FRESHNESS = "headrace_freshness_last_seconds"
CACHE_HITS: Metric = ("reselect_cache_requests_total", {"result": "hit"})


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures at one moment; ``rows`` and ``freshness`` (seconds behind the source) by table."""

    time: float
    transactions: int
    events: int
    written: int
    lag: int
    reselects: int
    reselected: int
    cache_hits: int
    rows: Mapping[str, int]
    freshness: Mapping[str, float]

    def per_second(self, before: Sample) -> float:
        """Events a second since ``before``."""
        return (self.events - before.events) / max(self.time - before.time, 1e-9)


def take_sample(worker: Worker, folders: Mapping[str, Path], transactions: int) -> Sample:
    """Read the worker's metrics and the tables' snapshots."""
    metrics = worker.metrics()

    def total(metric: Metric) -> int:
        name, labels = metric
        return round(sum(value for (found, of), value in metrics.items() if found == name and labels.items() <= of))

    return Sample(
        time.monotonic(),
        transactions,
        events=total(EVENTS),
        written=total(WRITTEN),
        lag=total(LAG),
        reselects=total(RESELECTS),
        reselected=total(RESELECTED),
        cache_hits=total(CACHE_HITS),
        rows={table: row_count(folder) for table, folder in folders.items()},
        freshness={table: total((FRESHNESS, {"table": folder.name})) for table, folder in folders.items()},
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
        f"lag {sample.lag}, {sample.reselects} reselects, {sample.cache_hits} cache hits, rows: "
        + ", ".join(f"{table} {count}" for table, count in sample.rows.items())
    )


def panel(sample: Sample, before: Sample, help_text: str) -> RenderableType:
    """The view for a terminal."""
    figures = Table(title="Headrace", title_justify="left", show_header=False, box=None, padding=(0, 2))
    figures.add_row("transactions of the shop", f"{sample.transactions:,}")
    figures.add_row("events", f"{sample.events:,}", f"{sample.per_second(before):,.0f}/s")
    figures.add_row("lag", f"{sample.lag:,}", f"events not committed; {sample.events - sample.written:,} on their way")
    figures.add_row("reselects", f"{sample.reselects:,}", f"SELECTs, {sample.reselected:,} cells read again")
    figures.add_row("cache hits", f"{sample.cache_hits:,}", "cells that needed no SELECT")
    tables = Table(title="Rows in the lake", title_justify="left", show_header=False, box=None, padding=(0, 2))
    for table, rows in sample.rows.items():
        tables.add_row(table, f"{rows:,}", f"{sample.freshness[table]:.0f} s behind the database at the last commit")
    return Group(figures, Text(), tables, Text(), Text(help_text, style="dim"))


@contextmanager
def display(help_text: str) -> Iterator[Show]:
    """Show a live panel on a terminal; elsewhere print the help once, then a line every five seconds."""
    if sys.stdout.isatty():
        with Live(refresh_per_second=2) as live:
            yield Show(lambda now, before: live.update(panel(now, before, help_text)), every=1)
    else:
        print(help_text, flush=True)
        yield Show(lambda now, before: print(line(now, before), flush=True), every=5)


class Show:
    """Show every ``every``-th sample with the previous one, from which the rates are computed."""

    def __init__(self, show: Callable[[Sample, Sample], None], every: int) -> None:
        self._show = show
        self._every = every
        self._count = 0
        self._before: Sample | None = None

    def __call__(self, sample: Sample) -> None:
        """Show the next sample."""
        if self._count % self._every == 0:
            self._show(sample, self._before or sample)
            self._before = sample
        self._count += 1
