"""``python -m benchmarks.upkeep``: what upkeep writes, how long merges wait for it, and how fast the table is read.

Tables of 2,000,000 and 3,000,000 rows get 60 merges of 5,000 random updates each, with upkeep beside them as in a
worker. Every few merges PyIceberg and Spark read the whole table; at the end the table is compacted completely, and
read again for comparison: as it is, and after one more merge, because PyIceberg needs more time for a file as soon as
it has one deleted row. ``--quick`` is a short run that only checks that the benchmark works.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.lake import HEADRACE, MEASURED, SPARK, fill, run, static_table
from benchmarks.workload import KEY, SCHEMA, TOPIC, stored_rows
from headrace.core.model.actions import Actions, Gates
from headrace.core.model.events import Column, TableId, Versions
from headrace.core.model.schema import Schema
from headrace.ports import Commit, LakeTable, TableOptions, TopicPartition
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve

READ_EVERY = 5
WARM_UP = 5
"""Merges that are not counted: the JVM compiles its code."""


@dataclass(frozen=True, slots=True)
class Load:
    """A table of ``rows`` rows, and ``merges`` merges of ``updates`` rows each."""

    rows: int
    merges: int = 60
    updates: int = 5_000


@dataclass(frozen=True, slots=True)
class Reads:
    """Seconds of PyIceberg and of Spark for all rows and columns."""

    pyiceberg: float
    spark: float


@dataclass(slots=True)
class Result:
    """Seconds of each merge, the reads in between and at the end, and the written bytes."""

    merges: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    reads: list[Reads] = field(default_factory=list)
    compacted: list[Reads] = field(default_factory=list)
    """Of the table that was compacted completely, and of that with one more merge."""
    merged: int = 0
    rewritten: int = 0

    @property
    def amplification(self) -> float:
        """Written bytes for each byte of the merges."""
        return 1 + self.rewritten / self.merged


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the loads. Return 1 if upkeep wrote more than three times the bytes of the merges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small table")
    loads = [Load(100_000, 20, 1_000)] if parser.parse_args(arguments).quick else [Load(2_000_000), Load(3_000_000)]
    results = []
    for load in loads:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            results.append(measure(load, root))
        finally:
            shutil.rmtree(root, ignore_errors=True)
        report(load, results[-1])
    return 1 if any(result.amplification > 4 for result in results) else 0


def measure(load: Load, root: Path) -> Result:
    """Fill a table, write the load, and read the table."""
    result, random, warehouse = Result(), np.random.default_rng(7), root / "warehouse"
    warehouse.mkdir()
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"))
    try:
        lakehouse.table(HEADRACE, MEASURED, TableOptions()).evolve(SCHEMA, [KEY])
        fill(root / "stored", stored_rows(np.arange(1, load.rows + 1), random))
        table = lakehouse.table(HEADRACE, MEASURED, TableOptions())
        table.schema()
        with ThreadPoolExecutor(1) as threads:
            upkeep: Future[None] | None = None
            for number in range(load.merges):
                actions = random_updates(load, random, number * load.updates)
                seconds = _timed(lambda: merge(table, actions, number))  # noqa: B023 - called at once
                running = upkeep is not None and not upkeep.done()
                if number >= WARM_UP:
                    (result.merges if running else result.alone).append(seconds)
                now = time.time_ns() // 1000
                if not running and table.maintenance_due(now):
                    upkeep = threads.submit(table.maintain, now, 7 * 86_400_000_000)
                if number % READ_EVERY == READ_EVERY - 1:
                    result.reads.append(read(warehouse))
                    print(f"  {number + 1} merges: {result.reads[-1]}", file=sys.stderr, flush=True)
        report = table.upkeep()
        result.merged, result.rewritten = report.merged_bytes, report.upkeep_bytes
        run(
            f"CALL lake.system.rewrite_data_files(table => '{HEADRACE}.{MEASURED}', "
            "options => map('rewrite-all', 'true'))"
        )
        result.compacted.append(read(warehouse))
        merge(table, random_updates(load, random, load.merges * load.updates), load.merges)
        result.compacted.append(read(warehouse))
    finally:
        lakehouse.close()
    return result


def random_updates(load: Load, random: np.random.Generator, first: int) -> Actions:
    """New values for rows chosen at random, without repetition; ``first`` is the offset of the first of them."""
    return updates_of(stored_rows(random.choice(load.rows, load.updates, replace=False) + 1, random), first)


def updates_of(rows: pa.Table, first: int) -> Actions:
    """Return the updates that write these rows; ``first`` is the offset of the first of them."""
    count = len(rows)
    offsets = np.arange(first, first + count, dtype=np.int64)
    positions = np.array([b"00001.%020d" % offset for offset in offsets])
    versions = Versions(TOPIC, positions, np.zeros(count, np.int32), offsets, offsets)
    no = np.zeros(count, np.bool_)
    return Actions(
        table=TableId("bench", "bench", "public", "acct"),
        key_fields=(KEY,),
        key=pa.array([f"={key}" for key in rows[KEY].to_pylist()]),
        delete=no,
        fresh=no,
        version=versions,
        gates=Gates.of(versions),
        transaction=np.full(count, -1),
        columns=tuple(Column(each.name, Schema("string"), rows[each.name].combine_chunks()) for each in rows.schema),
    )


def merge(table: LakeTable, actions: Actions, number: int) -> None:
    """Write a batch, all of whose rows must apply."""
    counts = table.merge(actions, Commit(number, "bench", "connect-bench", {TopicPartition(TOPIC, 0): number + 1}))
    assert counts.upserted == len(actions)


def read(warehouse: Path) -> Reads:
    """Return the fastest of three reads each."""
    every = f"SELECT bit_xor(xxhash64({', '.join(SCHEMA.names)})) FROM lake.{HEADRACE}.{MEASURED}"
    return Reads(
        min(_timed(lambda: static_table(warehouse, HEADRACE).scan().to_arrow()) for _ in range(3)),
        min(_timed(lambda: run(every)) for _ in range(3)),
    )


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def report(load: Load, result: Result) -> None:
    """Print the figures."""
    beside = max(result.merges, default=0.0)
    print(
        f"{load.rows:,} rows, {load.merges} merges of {load.updates:,} updates:\n"
        f"  written: {result.merged / 1e6:.1f} MB by merges, {result.rewritten / 1e6:.1f} MB by upkeep, "
        f"together {result.amplification:.2f} times the merges\n"
        f"  seconds of a merge: alone median {statistics.median(result.alone):.2f}, most {max(result.alone):.2f}; "
        f"beside upkeep ({len(result.merges)}) most {beside:.2f}",
        flush=True,
    )
    for reader in ("pyiceberg", "spark"):
        seconds = [getattr(each, reader) for each in result.reads]
        compacted, merged = (getattr(each, reader) for each in result.compacted)
        print(
            f"  seconds of a read by {reader}: {min(seconds):.2f} to {max(seconds):.2f}; compacted completely "
            f"{compacted:.2f}, at most {max(seconds) / compacted:.1f} times; with one merge more {merged:.2f}, "
            f"at most {max(seconds) / merged:.1f} times",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
