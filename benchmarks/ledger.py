"""``python -m benchmarks.ledger``: the start of a table with millions of tombstones, its memory, and its batches.

The ledger of an Iceberg table in a local warehouse gets tombstones. Then a pipeline with a new handle reads the ledger,
as a worker does when an assignment begins, and writes batches of 1,000 changes each. The results are checked. Memory is
the resident set of this process, without Spark's JVM, whose limits are settings.
``--tombstones 1000000`` measures one size, ``--quick`` is a short run that only checks that the benchmark works.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.cpu import cpu_of
from benchmarks.lake import HEADRACE, MEASURED, SPARK, WARM_UP, run, static_table
from headrace.core.model.events import Changes, Column, Operation, TableId, Versions
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_dev.jars import resolve

TOPIC = "shop.public.acct"
TABLE = TableId("shop", "shop", "public", "acct")
SIZES = (1_000_000, 20_000_000)
BATCH = 1_000
PARTITIONS = 3
_ROWS_PER_FILE = 2_000_000
_HIGHEST = 10**12
"""Above the positions of all tombstones."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sizes. Return 1 if a table does not have the expected rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small ledger")
    parser.add_argument("--tombstones", type=int, help="the size of the ledger")
    chosen = parser.parse_args(arguments)
    sizes = [10_000] if chosen.quick else [chosen.tombstones] if chosen.tombstones else SIZES
    wrong = 0
    for size in sizes:
        root = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
        try:
            wrong += measure(size, root / "warehouse")
        finally:
            shutil.rmtree(root, ignore_errors=True)
    print(f"ledger: {wrong} wrong rows" if wrong else "ledger: every table contains the expected rows")
    return 1 if wrong else 0


def measure(size: int, warehouse: Path) -> int:
    """Measure a ledger of this size, and return the number of wrong rows."""
    warehouse.mkdir()
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"))
    try:
        for name in (WARM_UP, MEASURED):  # the first one warms up the JVM, and the code of this process
            pipeline = opened(lakehouse, name)
            for key in (1, 2):
                pipeline.write(changes(Operation.CREATE, [-key], key), Commit(key, "benchmark"))
                pipeline.write(changes(Operation.DELETE, [-key], key + 10), Commit(key, "benchmark"))
            record(name, 100_000 if name == WARM_UP else size)
            print(f"{name}: {size:,} tombstones" if name == MEASURED else name, file=sys.stderr, flush=True)
            wrong = batches(lakehouse, name, size, warehouse, report=name == MEASURED)
        return wrong
    finally:
        lakehouse.close()


def opened(lakehouse: SparkLakehouse, name: str) -> TablePipeline:
    """Return a pipeline with a new handle of the table."""
    return TablePipeline(
        name,
        lakehouse.table(HEADRACE, name, TableOptions()),
        Reselect(ReselectOptions()),
        PipelineOptions(),
        lambda: time.time_ns() // 1000,
        lambda stage: nullcontext(),
    )


def record(name: str, size: int) -> None:
    """Add tombstones of the keys 0, 1, 2 and so on to the ledger, in files of a compacted ledger."""
    columns = ", ".join(
        (
            "concat('=', id) AS key",
            "concat('00000.', lpad(id, 20, '0')) AS __headrace_position",
            f"'{TOPIC}' AS __headrace_topic",
            f"CAST(id % {PARTITIONS} AS INT) AS __headrace_partition",
            "id AS __headrace_offset",
            "timestamp_micros(1790000000000000 + id) AS __headrace_source_time",
            "current_timestamp() AS recorded_at",
        )
    )
    files = -(-size // _ROWS_PER_FILE)
    run(f"INSERT INTO lake.`{HEADRACE}`.`{name}{SUFFIX}` SELECT {columns} FROM range(0, {size}, 1, {files})")


def changes(operation: Operation, keys: Sequence[int], first: int) -> Changes:
    """Return changes with offsets and positions from ``first`` on, each key in the partition of its tombstone."""
    count = len(keys)
    offsets = np.arange(first, first + count, dtype=np.int64)
    return Changes(
        table=TABLE,
        key_fields=("id",),
        operation=np.full(count, operation, np.uint8),
        key=pa.array([f"={key}" for key in keys]),
        version=Versions(
            TOPIC,
            np.array([b"00000.%020d" % offset for offset in offsets]),
            np.array(keys, np.int64).__mod__(PARTITIONS).astype(np.int32),
            offsets,
            1_790_000_000_000_000 + offsets,
        ),
        transaction=np.full(count, -1, np.int64),
        columns=(
            Column("id", Schema("int64"), pa.array(keys, pa.int64())),
            Column("name", Schema("string"), pa.repeat("a name", count)),
        ),
    )


def batches(lakehouse: SparkLakehouse, name: str, size: int, warehouse: Path, *, report: bool) -> int:
    """Open the table, write batches, and return the number of rows that are wrong afterwards."""
    pipeline = opened(lakehouse, name)
    before, cpu_before = resident("VmRSS"), cpu_of(os.getpid())
    Path("/proc/self/clear_refs").write_text("5")  # the highest resident set begins again
    seconds = _timed(pipeline.prepare)
    cpu = cpu_of(os.getpid()).since(cpu_before)
    lines = [
        f"start: {seconds:.1f} s, {cpu.python:.1f} CPU s of Python and {cpu.jvm:.1f} of the JVM; "
        f"{resident('VmRSS') - before:.0f} MB more memory afterwards, "
        f"{resident('VmHWM') - before:.0f} MB at most meanwhile"
    ]
    old = np.random.default_rng(7).choice(size, BATCH, replace=False).tolist()
    new = list(range(size, size + BATCH))
    steps = {
        "inserts of new rows": (Operation.CREATE, new, _HIGHEST),
        "deletes of these rows": (Operation.DELETE, new, _HIGHEST + BATCH),
        "inserts of rows that were deleted": (Operation.CREATE, old, _HIGHEST + 2 * BATCH),
        "deletes of these rows again": (Operation.DELETE, old, _HIGHEST + 3 * BATCH),
        "late inserts of deleted rows, to be ignored": (Operation.CREATE, new, 1),
        "inserts of some of them": (Operation.CREATE, old[:10], _HIGHEST + 4 * BATCH),
    }
    for number, (what, (operation, keys, first)) in enumerate(steps.items()):
        write = partial(pipeline.write, changes(operation, keys, first), Commit(number, "benchmark"))
        lines.append(f"{len(keys):,} {what}: {_timed(write):.2f} s")
    pipeline.begin_assignment()
    lines.append(f"the next assignment: {_timed(pipeline.prepare):.2f} s")
    lines.append(f"{resident('VmRSS') - before:.0f} MB more memory at the end")
    if report:
        print("\n".join(f"  {line}" for line in lines), flush=True)
    rows = static_table(warehouse, HEADRACE, name).scan().to_arrow()["id"].to_pylist()
    return len(set(rows) ^ set(old[:10])) + len(rows) - len(set(rows))


def resident(name: str) -> float:
    """Return a size of this process in MB: ``VmRSS``, or ``VmHWM`` for the highest."""
    pa.default_memory_pool().release_unused()
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith(name))


def _timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
