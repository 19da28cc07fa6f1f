"""Lane ``commit``: what one commit costs, by its rows, the rows of the table and the length of the table's history.

One process, one Spark session, the tables of ``SparkLakehouse`` as a worker opens them. Two tables get random updates
of the same sizes: one without a Spark job (``write.index.memory.bytes``), the other one by MERGE. The two take turns in
blocks of commits, after a history of commits and a warm-up, and with a pause until the JIT compiler is idle before each
block. CPU time is that of Python and the JVM, with compiler and garbage collector. Upkeep runs after each block and is
counted apart. In the end PyIceberg and Spark read both tables, and each row must be the expected one.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.cpu import Cpu, cpu_of, wait_until_quiet
from benchmarks.lake import HEADRACE, SPARK, differences, fill, session, static_table
from benchmarks.scale.objects import files_of, written
from benchmarks.upkeep import merge, updates_of
from benchmarks.workload import KEY, SCHEMA, stored_rows
from headrace.config.engine import EngineSettings
from headrace.ports import TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.direct import direct_writer
from headrace_dev.jars import resolve

DIRECT, MERGE = "direct", "merge"
HISTORY_BATCH = 100
INDEX_BYTES = 2**30
_RETENTION = 7 * 86_400_000_000
_MERGED = "spark.merge-into."

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Table:
    """A table, the rows of its measured commits, and the commits that it gets before, of ``HISTORY_BATCH`` rows."""

    rows: int
    batches: Sequence[int]
    history: int
    columns: int = len(SCHEMA)


@dataclass(frozen=True, slots=True)
class Plan:
    """Tables, and for each size of their commits ``rounds`` blocks of each path.

    ``warm_up`` is the number of MERGEs before, in the first table. ``pause`` is how many seconds a block waits at most
    for an idle JIT compiler.
    """

    tables: Sequence[Table]
    rounds: int = 2
    warm_up: int = 16
    pause: float = 5.0


FULL = Plan(
    [
        Table(100_000, (100, 1_000, 15_000, 50_000), history=1_000),
        Table(1_000_000, (100, 15_000, 50_000, 150_000), history=300),
        *(Table(20_000, (1_000,), history=100, columns=columns) for columns in (10, 100, 300)),
    ]
)
QUICK = Plan([Table(20_000, (100,), history=16)], rounds=1, warm_up=2, pause=0)


def commits_in_block(path: str, batch: int) -> int:
    """Return the commits of a block: enough for the clock of /proc, which counts hundredths of a second."""
    return min(24, max(4, 200_000 // batch)) if path == DIRECT else min(8, max(3, 100_000 // batch))


def run(plan: Plan, root: Path, say: Say) -> dict[str, Any]:
    """Measure all tables of a plan in one process. ``wrong_rows`` of the result must be 0."""
    warehouse = root / "warehouse"
    warehouse.mkdir(parents=True)
    most = max(batch for table in plan.tables for batch in table.batches)
    direct_writer.MOST_ROWS = max(direct_writer.MOST_ROWS, most)  # to find the size from which MERGE is cheaper
    limits = EngineSettings(index_bytes=INDEX_BYTES)
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"), limits=limits)
    result: dict[str, Any] = {"commits": [], "histories": [], "wrong_rows": 0}
    try:
        for table in plan.tables:
            direct, merging = (Side(lakehouse, warehouse, path, table, plan.pause) for path in (DIRECT, MERGE))
            blocks = direct.write_history(say)
            result["histories"].append({"rows": table.rows, "batch": HISTORY_BATCH, "blocks": blocks})
            merging.write_history(say)
            if table == plan.tables[0]:
                merging.warm_up(plan.warm_up)
            for batch in table.batches:
                for found in take_turns((direct, merging), batch, plan.rounds):
                    result["commits"].append(found)
                    say(describe(found))
            result["wrong_rows"] += sum(side.wrong_rows(say) for side in (direct, merging))
    finally:
        lakehouse.close()
    return result


def describe(found: dict[str, Any]) -> str:
    """Return a result in one line."""
    return (
        f"{found['path']:<7}{found['batch']:>8,} rows into {found['rows']:>9,} of {found['columns']} columns "
        f"with {found['snapshots']:>5} snapshots: "
        f"CPU {found['cpu_ms']:7.1f} ms (Python {found['python_ms']:.1f}, JVM {found['jvm_ms']:.1f}, "
        f"of it JIT {found['jit_ms']:.1f}, GC {found['gc_ms']:.1f}), wall {found['wall_ms']:.0f} ms, "
        f"upkeep {found['upkeep_cpu_ms']:.1f} ms, {found['objects']} objects, {found['bytes'] / 1e3:.0f} kB"
    )


def take_turns(sides: Sequence[Side], batch: int, rounds: int, warm_up: int = 2) -> list[dict[str, Any]]:
    """Measure blocks of commits of all sides alternately, after ``warm_up`` commits: the mean of each side's blocks."""
    blocks: dict[Side, list[_Block]] = {side: [] for side in sides}
    for side in sides:
        side.block(batch, warm_up)  # code for this size
    for _ in range(rounds):
        for side in sides:
            blocks[side].append(side.block(batch, commits_in_block(side.path, batch)))
    return [
        {
            "path": side.path,
            "rows": side.table.rows,
            "columns": side.table.columns,
            "batch": batch,
            **_mean(blocks[side]),
            **side.objects(batch),
        }
        for side in sides
    ]


@dataclass(frozen=True, slots=True)
class _Block:
    """Commits in a row: their number, CPU and wall seconds, and the CPU seconds of the upkeep after them."""

    commits: int
    cpu: Cpu
    seconds: float
    upkeep: float


def _mean(blocks: Sequence[_Block]) -> dict[str, float | list[float]]:
    """Return milliseconds of a commit, and the CPU milliseconds of each block."""

    def mean(of: Callable[[_Block], float]) -> float:
        return round(statistics.fmean(1000 * of(block) / block.commits for block in blocks), 2)

    return {
        "cpu_ms": mean(lambda block: block.cpu.total),
        "python_ms": mean(lambda block: block.cpu.python),
        "jvm_ms": mean(lambda block: block.cpu.jvm),
        "jit_ms": mean(lambda block: block.cpu.compiler),
        "gc_ms": mean(lambda block: block.cpu.collector),
        "wall_ms": mean(lambda block: block.seconds),
        "upkeep_cpu_ms": mean(lambda block: block.upkeep),
        "blocks_cpu_ms": [round(1000 * block.cpu.total / block.commits, 2) for block in blocks],
    }


class Side:
    """A table that one path writes, and the rows that it must contain."""

    def __init__(self, lakehouse: SparkLakehouse, warehouse: Path, path: str, table: Table, pause: float) -> None:
        self.path = path
        self.table = table
        self._pause = pause
        self._lakehouse = lakehouse
        self._warehouse = warehouse
        self._name = f"{path}_{table.rows}_{table.columns}"
        self._random = np.random.default_rng(7)
        self._stored = _wide(stored_rows(np.arange(1, table.rows + 1), self._random), table.columns)
        self._changes: list[pa.Table] = []
        self._events = self._commits = 0
        self._lakehouse.table(HEADRACE, self._name, TableOptions()).evolve(self._stored.schema, [KEY])
        fill(warehouse.parent / self._name, self._stored, self._name)
        self._open()

    def _open(self) -> None:
        self._handle = self._lakehouse.table(HEADRACE, self._name, TableOptions())
        self._handle.schema()

    @property
    def _folder(self) -> Path:
        return self._warehouse / HEADRACE / self._name

    def write_history(self, say: Say) -> list[dict[str, float]]:
        """Make commits without a Spark job, with upkeep whenever it is due; the cost of each hundred of them."""
        begun, commits, costs = time.monotonic(), self.table.history, []
        for begin in range(0, commits, 100):
            count = min(100, commits - begin)
            costs.append({"commits": begin + count, "cpu_ms": self._history_block(count)})
        self._open()  # the path of the new handle is chosen with its first commit
        say(
            f"{self.path}: {self.table.rows:,} rows of {self.table.columns} columns, {commits} commits of history in "
            f"{time.monotonic() - begun:.0f} s"
        )
        return costs

    def _history_block(self, count: int) -> float:
        batches = [self._updates(HISTORY_BATCH) for _ in range(count)]
        before = cpu_of(os.getpid())
        for actions in batches:
            self._merge(actions)
            self._maintain()
        return round(1000 * cpu_of(os.getpid()).since(before).total / count, 2)

    def warm_up(self, commits: int) -> None:
        self.block(HISTORY_BATCH, commits)

    def block(self, batch: int, count: int) -> _Block:
        """Make commits of ``batch`` rows, then upkeep. Raises AssertionError if another path has written them."""
        batches = [self._updates(batch) for _ in range(count)]
        with self._on_its_path():
            wait_until_quiet(os.getpid(), self._pause)
            before, begin = cpu_of(os.getpid()), time.perf_counter()
            for actions in batches:
                self._merge(actions)
            seconds, used = time.perf_counter() - begin, cpu_of(os.getpid()).since(before)
            self._check_path(count)
            before = cpu_of(os.getpid())
            self._maintain()
            return _Block(count, used, seconds, cpu_of(os.getpid()).since(before).total)

    def objects(self, batch: int) -> dict[str, Any]:
        """Make one more commit, and count what it writes."""
        before = files_of(self._folder)
        actions = self._updates(batch)
        with self._on_its_path():
            self._merge(actions)
        found = written(before, files_of(self._folder))
        return {
            "objects": found.objects,
            "bytes": found.bytes,
            "objects_by_kind": found.count,
            "snapshots": len(self._snapshots()),
        }

    def wrong_rows(self, say: Say) -> int:
        """How many rows are not as expected, as PyIceberg reads them and as Spark reads them."""
        expected = _newest([self._stored, *self._changes])
        table = static_table(self._warehouse, HEADRACE, self._name)
        by_pyiceberg = table.scan(selected_fields=tuple(expected.column_names)).to_arrow()
        by_spark = session().table(f"lake.{HEADRACE}.{self._name}").select(*expected.column_names).toArrow()
        wrong = differences(by_pyiceberg, expected) + differences(by_spark, expected)
        say(f"{self.path}: {self.table.rows:,} rows read by PyIceberg and by Spark: {wrong} wrong")
        return wrong

    def _updates(self, batch: int) -> Any:
        ids = self._random.choice(self.table.rows, batch, replace=False) + 1
        rows = _wide(stored_rows(ids, self._random), self.table.columns)
        actions = updates_of(rows, self._events)
        self._events += batch
        self._changes.append(rows)
        return actions

    def _merge(self, actions: Any) -> None:
        merge(self._handle, actions, self._commits)
        self._commits += 1

    def _maintain(self) -> None:
        now = time.time_ns() // 1000
        if self._handle.maintenance_due(now):
            self._handle.maintain(now, _RETENTION)

    @contextmanager
    def _on_its_path(self) -> Iterator[None]:
        """Choose the path of the table's handle. The index of the other table stays."""
        limit = self._lakehouse.indexes.limit
        if self.path == MERGE:
            self._lakehouse.indexes.limit = 0
        try:
            yield
        finally:
            self._lakehouse.indexes.limit = limit

    def _check_path(self, count: int) -> None:
        merges = sum(any(name.startswith(_MERGED) for name in each["summary"]) for each in self._snapshots()[-count:])
        wanted = count if self.path == MERGE else 0
        assert merges == wanted, f"{self._name}: {merges} of {count} commits were made by MERGE, and {wanted} were due"

    def _snapshots(self) -> list[dict[str, Any]]:
        metadata = self._folder / "metadata"
        version = (metadata / "version-hint.text").read_text().strip()
        snapshots: list[dict[str, Any]] = json.loads((metadata / f"v{version}.metadata.json").read_text())["snapshots"]
        return snapshots


def _wide(rows: pa.Table, columns: int) -> pa.Table:
    """Add texts and integers until the rows have so many columns."""
    for number in range(len(rows.column_names), columns):
        rows = rows.append_column(f"column_{number}", rows["note" if number % 2 else "qty"])
    return rows


def _newest(changes: Sequence[pa.Table]) -> pa.Table:
    """Return the last row of each id, sorted by id."""
    rows = pa.concat_tables(changes)
    order = pa.array(np.arange(len(rows)))
    last = rows.select([KEY]).append_column("order", order).group_by(KEY).aggregate([("order", "max")])
    return rows.take(last["order_max"]).sort_by(KEY)
