"""Lane ``load``: the first load of a table, beside an append of the same rows by Spark.

One process, one Spark session. Headrace writes the rows of a snapshot in batches, as a worker does, with upkeep when it
is due. Spark appends the same batches to another table (``INSERT INTO``), which is the least that a stream could do: it
would write rows twice if the snapshot were repeated. The two take turns, a tenth of the rows at a time, with a pause
until the JIT compiler is idle. CPU time is that of Python and the JVM. In the end the table must contain each row once.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import lake
from benchmarks.cpu import cpu_of, wait_until_quiet
from benchmarks.lake import HEADRACE, SPARK, differences, static_table
from benchmarks.upkeep import merge, updates_of
from benchmarks.workload import KEY, SCHEMA, stored_rows
from headrace.config.engine import EngineSettings
from headrace.ports import TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve

PARTS = 10
_INDEX_BYTES = 2**29
_RETENTION = 7 * 86_400_000_000
_LOADED, _APPENDED = "loaded", "appended"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of the table, and of a batch. ``pause`` is how many seconds a part waits at most for an idle JIT."""

    rows: int = 5_000_000
    batch: int = 100_000
    pause: float = 5.0


FULL = Plan()
QUICK = Plan(20_000, 1_000, 0)


def run(plan: Plan, root: Path, say: Say) -> dict[str, Any]:
    """Load both tables. ``wrong_rows`` of the result must be 0."""
    warehouse = root / "warehouse"
    warehouse.mkdir(parents=True)
    limits = EngineSettings(index_bytes=_INDEX_BYTES)
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"), limits=limits)
    parts: list[dict[str, Any]] = []
    try:
        load = _Load(lakehouse, root, plan)
        load.part(0, load.append, "rehearsed_append")
        load.part(0, load.merge, "rehearsed_load")
        for number in range(PARTS):
            append, _ = load.part(number, load.append, _APPENDED)
            write, upkeep = load.part(number, load.merge, _LOADED)
            found = {
                "rows": (number + 1) * plan.rows // PARTS,
                "append_us": append,
                "write_us": write,
                "load_us": round(write + upkeep, 2),
            }
            say(
                f"up to {found['rows']:,} rows: append {append} us of CPU a row, load {found['load_us']}, "
                f"of it upkeep {upkeep}"
            )
            parts.append(found)
        wrong = load.wrong_rows(warehouse)
    finally:
        lakehouse.close()
    # Upkeep does not run in each tenth, so one tenth does not represent the end.
    whole, end = times_the_append(parts), times_the_append(parts[-2:])
    say(f"the load costs {whole:.2f} times the append, its last fifth {end:.2f} times; {wrong} wrong rows")
    return {"batch": plan.batch, "parts": parts, "ratio": round(whole, 3), "wrong_rows": wrong}


def times_the_append(parts: Sequence[Mapping[str, Any]]) -> float:
    """Return how many times the CPU time of the append the load has taken in these parts."""
    return float(sum(part["load_us"] for part in parts) / sum(part["append_us"] for part in parts))


class _Load:
    """The rows of the load, and the tables that get them."""

    def __init__(self, lakehouse: SparkLakehouse, root: Path, plan: Plan) -> None:
        self._lakehouse = lakehouse
        self._staged = root / "staged"
        self._plan = plan
        self._tables: dict[str, Any] = {}

    def part(self, number: int, write: Callable[[str, int, pa.Table], None], name: str) -> tuple[float, float]:
        """Write a tenth of the rows; the CPU microseconds of a row, and those of upkeep."""
        size = self._plan.rows // PARTS
        first = number * size
        table = self._table(name)
        pid, used, kept = os.getpid(), 0.0, 0.0
        wait_until_quiet(pid, self._plan.pause)
        for begin in range(first, first + size, self._plan.batch):
            rows = self._rows(begin, min(self._plan.batch, first + size - begin))
            before = cpu_of(pid)
            write(name, begin, rows)
            used += cpu_of(pid).since(before).total
            if name != _APPENDED and table.maintenance_due(time.time_ns() // 1000):
                before = cpu_of(pid)
                table.maintain(time.time_ns() // 1000, _RETENTION)
                kept += cpu_of(pid).since(before).total
        return round(1e6 * used / size, 2), round(1e6 * kept / size, 2)

    def merge(self, name: str, first: int, rows: pa.Table) -> None:
        merge(self._tables[name], updates_of(rows, first), first)

    def append(self, name: str, first: int, rows: pa.Table) -> None:
        """Append a batch from a file without compression, which costs less than any other way into Spark."""
        shutil.rmtree(self._staged, ignore_errors=True)
        self._staged.mkdir()
        pq.write_table(rows, self._staged / "rows.parquet", compression="none", use_dictionary=False)
        version = f"'00001.', 'bench', 0, CAST({first} AS BIGINT), timestamp_micros({first}L)"
        lake.run(f"INSERT INTO lake.{HEADRACE}.{name} SELECT *, {version} FROM parquet.`{self._staged}`")

    def wrong_rows(self, warehouse: Path) -> int:
        wrong, size = 0, self._plan.rows // PARTS
        for number in range(PARTS):  # of a tenth: all rows twice do not fit into a small machine's memory
            first = number * size
            batches = range(first, first + size, self._plan.batch)
            expected = pa.concat_tables(
                self._rows(begin, min(self._plan.batch, first + size - begin)) for begin in batches
            )
            scan = static_table(warehouse, HEADRACE, _LOADED).scan(
                f"{KEY} > {first} and {KEY} <= {first + size}", tuple(SCHEMA.names)
            )
            wrong += differences(scan.to_arrow(), expected)
        return wrong + abs(static_table(warehouse, HEADRACE, _LOADED).scan().count() - self._plan.rows)

    def _table(self, name: str) -> Any:
        if name not in self._tables:
            self._tables[name] = self._lakehouse.table(HEADRACE, name, TableOptions())
            self._tables[name].evolve(SCHEMA, [KEY])
        return self._tables[name]

    def _rows(self, begin: int, count: int) -> pa.Table:
        return stored_rows(np.arange(begin + 1, begin + count + 1), np.random.default_rng(begin))
