"""The warehouse of every contestant: the same rows in the same format, written once and restored before each run.

Each contestant has three tables of one shape: two to warm up on and one that is measured. Iceberg's metadata hold
absolute paths, so the copies are restored to their original path.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.workload import KEY, SCHEMA, TOPIC, Workload
from headrace.ports import TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve

SPARK = {"spark.master": "local[2]", "spark.driver.memory": "3g"}
"""Both contestants' Spark."""

HEADRACE, STREAM, FLINK = "headrace", "stream", "flink"
"""The namespaces of the contestants."""

WARM_UP, REHEARSAL, MEASURED = "acct_warm_up", "acct_rehearsal", "acct"
LSN = "__lsn"
"""The stream's additional column: the position of the last change of a row."""

_FILES = 4
_MERGE_ON_READ = "'format-version'='3', " + ", ".join(
    f"'write.{operation}.mode'='merge-on-read'" for operation in ("merge", "update", "delete")
)


class Lake:
    """``warehouse`` is what a contestant writes to; ``restore`` before each of them."""

    def __init__(self, root: Path) -> None:
        self.warehouse = root / "warehouse"
        self._template = root / "template"

    def restore(self) -> None:
        """Restore the warehouse to its state before the first event."""
        shutil.rmtree(self.warehouse, ignore_errors=True)
        shutil.copytree(self._template, self.warehouse)

    def keep(self) -> None:
        """Save the current warehouse as the state to which ``restore`` returns."""
        shutil.rmtree(self._template, ignore_errors=True)
        self.warehouse.rename(self._template)

    def wrong_rows(self, namespace: str, expected: pa.Table) -> int:
        """How many rows of the measured table differ from the expected ones, missing and additional rows included."""
        return differences(self._rows(namespace), expected)

    def _rows(self, namespace: str) -> pa.Table:
        return static_table(self.warehouse, namespace).scan(selected_fields=tuple(SCHEMA.names)).to_arrow()


def static_table(warehouse: Path, namespace: str, name: str = MEASURED) -> Any:
    """Return the measured table of a contestant, or another one, as it is now, for reading by PyIceberg."""
    from headrace_dev.demo.compare import lake_table  # late: takes a second that only the check needs

    table = lake_table(warehouse / namespace / name)
    assert table is not None
    return table


def prefill(warehouse: Path, workload: Workload, namespaces: Collection[str]) -> None:
    """Write the tables of these contestants with Spark, Headrace's through its own writer's definition."""
    warehouse.mkdir(parents=True)
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"))
    rows = warehouse.parent / "stored"
    try:
        lakehouse.start()
        _write_source(rows, workload.stored())
        for namespace in namespaces:
            run(f"CREATE NAMESPACE IF NOT EXISTS lake.{namespace}")
            for name in (WARM_UP, REHEARSAL, MEASURED):
                if namespace == HEADRACE:
                    lakehouse.table(HEADRACE, name, TableOptions()).evolve(SCHEMA, [KEY])
                else:
                    _CREATION[namespace](f"lake.{namespace}.{name}", rows)
                _fill(f"lake.{namespace}.{name}", rows, _COLUMNS[namespace])
    finally:
        lakehouse.close()
        shutil.rmtree(rows, ignore_errors=True)


def _create_for_stream(table: str, rows: Path) -> None:
    run(
        f"CREATE TABLE {table} USING iceberg TBLPROPERTIES ({_MERGE_ON_READ}) "
        f"AS SELECT *, CAST(0 AS BIGINT) AS {LSN} FROM parquet.`{rows}` WHERE false"
    )


def _create_for_flink(table: str, rows: Path) -> None:
    """Create a table whose key Flink knows as its primary key. Version 2: in version 3 it writes the same deletes."""
    run(
        f"CREATE TABLE {table} ({KEY} BIGINT NOT NULL, name STRING, email STRING, balance DECIMAL(12, 2), qty INT, "
        "active BOOLEAN, score DOUBLE, created TIMESTAMP_NTZ, updated TIMESTAMP, note STRING) USING iceberg "
        "TBLPROPERTIES ('format-version'='2', 'write.upsert.enabled'='true')"
    )
    run(f"ALTER TABLE {table} SET IDENTIFIER FIELDS {KEY}")


def _write_source(folder: Path, rows: pa.Table) -> None:
    """Write a few files, so that Spark reads and writes them with all cores."""
    folder.mkdir()
    share = -(-len(rows) // _FILES)
    for number in range(_FILES):
        pq.write_table(rows.slice(number * share, share), folder / f"{number}.parquet")


_CREATION = {STREAM: _create_for_stream, FLINK: _create_for_flink}
_COLUMNS = {
    # With the version of an early change of each row.
    HEADRACE: f"*, concat('00000.', lpad({KEY}, 20, '0')), '{TOPIC}', 0, CAST(-1 AS BIGINT), "
    "timestamp_micros(unix_micros(updated))",
    STREAM: f"*, {KEY} AS {LSN}",
    FLINK: "*",
}


def fill(folder: Path, rows: pa.Table, name: str = MEASURED) -> None:
    """Write rows into Headrace's measured table, or another one of its shape, through files in ``folder``."""
    _write_source(folder, rows)
    _fill(f"lake.{HEADRACE}.{name}", folder, _COLUMNS[HEADRACE])


def _fill(table: str, rows: Path, columns: str) -> None:
    run(f"INSERT INTO {table} SELECT {columns} FROM parquet.`{rows}`")


def run(statement: str) -> None:
    """Execute a statement of SQL in the process's Spark."""
    session().sql(statement).collect()


def session() -> Any:
    """Return the session that a lakehouse has started in this process."""
    from pyspark.sql import SparkSession  # late: only processes that fill or read tables by Spark need it

    return SparkSession.builder.getOrCreate()


def differences(got: pa.Table, expected: pa.Table) -> int:
    """Return how many rows differ from the expected ones (sorted by id), missing and additional ones included."""
    got = got.cast(expected.schema).sort_by(KEY)
    if got[KEY].combine_chunks().equals(expected[KEY].combine_chunks()):
        return _unequal_rows(got, expected)
    wanted, found = set(expected[KEY].to_pylist()), got[KEY].to_pylist()
    return len(wanted ^ set(found)) + len(found) - len(set(found))


def _unequal_rows(got: pa.Table, expected: pa.Table) -> int:
    equal: Any = True
    for name in expected.column_names:
        same = pc.fill_null(pc.equal(got[name], expected[name]), False)
        both_null = pc.and_(pc.is_null(got[name]), pc.is_null(expected[name]))
        equal = pc.and_(equal, pc.or_(same, both_null))
    return len(got) - int(pc.sum(equal).as_py() or 0)


if __name__ == "__main__":
    folder, events, keys, stored, *namespaces = sys.argv[1:]
    prefill(Path(folder), Workload(int(events), int(keys), int(stored)), namespaces)
