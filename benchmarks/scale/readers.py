"""How fast a table is read, as it was written and compacted, and which rows it has.

A process of its own, so that each contestant's table is read by JVMs of the same age. Spark, DuckDB and PyIceberg read
all columns of all rows, Spark and DuckDB into a hash. A reader that refuses a table, or needs more than 20 s, has no
time, and the reason is in its place.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import feather

from benchmarks.lake import MEASURED, SPARK, run, session, static_table
from benchmarks.workload import SCHEMA
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve

LIMIT = 20.0
READS = 3
_COLUMNS = ", ".join(SCHEMA.names)

Times = dict[str, float | str]
"""Seconds by reader, or why it has none."""


def read(warehouse: Path, namespace: str, *, timed: bool = True) -> tuple[dict[str, Times], pa.Table]:
    """Return the times of all readers, as written and compacted, and the rows as Spark reads them before."""
    result, rows = warehouse.parent / "readers.json", warehouse.parent / "rows.arrow"
    command = [sys.executable, "-m", "benchmarks.scale.readers", str(warehouse), namespace, str(result), str(rows)]
    done = subprocess.run([*command, *(["--timed"] if timed else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{namespace}: the table cannot be read:\n{done.stderr[-4000:]}")
    return json.loads(result.read_text()), feather.read_table(rows)


def main() -> None:
    """Read the table of a contestant, write its rows and the times into two files, and compact it in between."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("warehouse", "namespace", "result", "rows"):
        parser.add_argument(name)
    parser.add_argument("--timed", action="store_true")
    chosen = parser.parse_args()
    warehouse = Path(chosen.warehouse)
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"))
    times: dict[str, Times] = {}
    try:
        lakehouse.start()
        feather.write_feather(_rows(chosen.namespace), chosen.rows)
        if chosen.timed:
            times["as written"] = _times(warehouse, chosen.namespace)
            run(
                f"CALL lake.system.rewrite_data_files(table => '{chosen.namespace}.{MEASURED}', "
                "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
            )
            times["compacted"] = _times(warehouse, chosen.namespace)
    finally:
        lakehouse.close()
    Path(chosen.result).write_text(json.dumps(times))


def _rows(namespace: str) -> pa.Table:
    return session().table(f"lake.{namespace}.{MEASURED}").select(*SCHEMA.names).toArrow()


def _times(warehouse: Path, namespace: str) -> Times:
    hashed = f"SELECT bit_xor(xxhash64({_COLUMNS})) FROM lake.{namespace}.{MEASURED}"
    run(hashed)  # code and file system cache
    return {
        "Spark": _fastest(lambda: run(hashed)),
        "DuckDB": _by_duckdb(warehouse, namespace),
        "PyIceberg": _fastest(lambda: static_table(warehouse, namespace).scan().to_arrow()),
    }


def _by_duckdb(warehouse: Path, namespace: str) -> float | str:
    try:
        import duckdb  # of requirements/readers.txt
        from duckdb_extensions import import_extension
    except ImportError as error:
        return f"{error.name} is not installed"
    metadata = static_table(warehouse, namespace).metadata_location
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            import_extension(name, con=connection)
        query = f"SELECT bit_xor(hash({_COLUMNS})) FROM iceberg_scan('{metadata}')"
        return _fastest(lambda: connection.execute(query).fetchall(), connection.interrupt)


def _fastest(call: Callable[[], Any], interrupt: Callable[[], None] | None = None) -> float | str:
    """Return the seconds of the fastest read, or why there is none."""
    seconds = []
    for _ in range(READS):
        timer = threading.Timer(LIMIT, interrupt) if interrupt else None
        if timer:
            timer.start()
        begin = time.perf_counter()
        try:
            call()
        except Exception as error:
            late = time.perf_counter() - begin >= LIMIT
            cause = str(error).splitlines()[0].partition(": http")[0]
            return f"not within {LIMIT:.0f} s" if late else f"refused: {cause[:120]}"
        finally:
            if timer:
                timer.cancel()
        seconds.append(time.perf_counter() - begin)
    return round(min(seconds), 3)


if __name__ == "__main__":
    main()
