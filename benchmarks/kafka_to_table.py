"""``make bench``: Kafka to table, Headrace and then a hand-written stream with the same load.

300,000 events of 100,000 keys go into a table that holds 1,000,000 rows (``workload.py``); both contestants write the
same format with the same Spark settings, both start with warm JVMs, and both results are compared with the expected
rows. ``QUICK=1`` is a short run that only checks that the benchmark works.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks import report
from benchmarks.contestants import Course, Effort, run_headrace, run_stream
from benchmarks.lake import HEADRACE, STREAM, Lake
from benchmarks.report import Score
from benchmarks.topic import produce
from benchmarks.workload import SCHEMA, Source, Workload
from headrace_dev.stack import Stack

FULL = Workload()
QUICK = Workload(events=6_000, keys=2_000, rows=20_000)
WARM_UP_MERGES = 10
SMALL_TRIGGER = 50_000
BEST_TRIGGERS = (150_000, 300_000)
"""Records a trigger. Which size above 50,000 is best for the stream depends on the machine."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and print the results. Return 1 if a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the load, one run of the stream")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        with Stack("kafka", logs=chosen.logs, sustained=not chosen.quick) as stack:
            if chosen.quick:
                scores = Benchmark(stack, root, QUICK, merges=1).run(())
            else:
                scores = Benchmark(stack, root, FULL, WARM_UP_MERGES).run(BEST_TRIGGERS)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    _print(scores)
    return 1 if any(score.wrong_rows for score in scores) else 0


class Benchmark:
    """One load, and the results of the contestants after ``merges`` merges to warm up.

    ``root`` is a folder for the warehouse and all else. ``properties`` are more properties of the worker.
    """

    def __init__(
        self, stack: Stack, root: Path, workload: Workload, merges: int, properties: Mapping[str, str] | None = None
    ) -> None:
        self._stack = stack
        self._workload = workload
        self.lake = Lake(root)
        self._source = Source(workload)
        self.course = Course(stack.kafka, root, self.lake.warehouse, workload.events, merges, properties or {})
        self.expected = SCHEMA.empty_table()

    def run(self, best_triggers: Sequence[int]) -> list[Score]:
        """Return all scores: Headrace's, the stream's with small triggers, and the stream's with each larger size."""
        self.prepare((HEADRACE, STREAM))
        scores = [self.measure("Headrace", HEADRACE, partial(run_headrace, self.course))]
        for size in (SMALL_TRIGGER, *best_triggers):
            stream = partial(run_stream, self.course, size)
            scores.append(self.measure(f"stream, {size:,} a trigger", STREAM, stream))
        return scores

    def prepare(self, namespaces: Sequence[str]) -> None:
        """Write the topic, and the tables of these contestants."""
        load = self._workload
        with _step(f"producing {load.events:,} events of {load.keys:,} keys"):
            size = produce(self._stack.kafka, self._source)
            self.expected = self._source.expected()
        print(f"  {size / load.events:,.0f} bytes an event; {len(self.expected):,} rows must result")
        with _step(f"filling the tables with {load.rows:,} rows each"):
            prefill_in_process(self.lake, load, namespaces)

    def measure(
        self,
        name: str,
        namespace: str,
        contestant: Callable[[], Effort],
        wrong_rows: Callable[[str, pa.Table], int] | None = None,
    ) -> Score:
        """Return a contestant's result. ``wrong_rows`` replaces the comparison of the rows that PyIceberg reads."""
        self.lake.restore()
        with _step(f"{name}: twice to warm up, once measured"):
            effort = contestant()
        wrong = (wrong_rows or self.lake.wrong_rows)(namespace, self.expected)
        return Score(name, self._workload.events, effort, wrong)


def prefill_in_process(lake: Lake, workload: Workload, namespaces: Sequence[str]) -> None:
    """Fill the tables of these contestants in a process of its own, and keep them as the state before each run."""
    amounts = map(str, (workload.events, workload.keys, workload.rows))
    command = [sys.executable, "-m", "benchmarks.lake", str(lake.warehouse), *amounts, *namespaces]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the tables cannot be filled:\n{done.stderr[-4000:]}")
    lake.keep()


def _print(scores: Sequence[Score]) -> None:
    headrace, small, *larger = scores
    best = max(larger, key=lambda score: score.per_cpu_second, default=None)
    print(f"\n{report.table(scores)}\n")
    print(report.breakdown(headrace))
    print(f"\n{report.ratios(headrace, [small] if best is None else [small, best])}")
    wrong = sum(score.wrong_rows for score in scores)
    print(f"bench: {wrong} wrong rows" if wrong else "bench: every table holds the expected rows")


@contextmanager
def _step(what: str) -> Iterator[None]:
    begin = time.monotonic()
    print(f"{what} …", flush=True)
    yield
    print(f"  done in {time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
