"""A table's own Spark session: statements, staged rows, and the properties of commits.

Sessions are children of the worker's one session: temporary views and settings, and with them the snapshot properties
of a commit, belong to one table (``spark.md`` section 5).

Tests: ``tests/contracts/test_iceberg_tables.py``, ``tests/contracts/test_spark_conflicts.py``.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.model.errors import EngineFailed
from headrace_connectors.lakehouse.failures import STAGED, condition, translate_errors
from headrace_connectors.lakehouse.schema import column_list, quoted
from headrace_connectors.lakehouse.spark_engine import SparkEngine
from headrace_connectors.lakehouse.spark_settings import SHUFFLE_PARTITIONS

_NO_SUCH_TABLE = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",  # there is a folder for its log, without a log
    "PATH_NOT_FOUND",
)
_ROWS_PER_TASK = 10_000
_MAX_TASKS = 16
_ROWS_PER_BATCH = 10_000
_BYTES_PER_ROW_GROUP = 8 * 1024 * 1024
"""Of a result in a shared file: a reader has a complete column of a row group in memory."""
_SHUFFLED_PER_CORE = 3
"""Spark's guide to tuning recommends two or three. Adaptive execution joins small ones."""


@lru_cache(maxsize=64)
def java_member(jvm: Any, name: str) -> Any:
    """Return a class of Spark's JVM, or a static method of one, by its full name.

    Cached, because py4j queries the JVM for each part of a name each time: seven calls for a method of Iceberg.
    """
    return reduce(getattr, name.split("."), jvm)


def new_child(spark: Any) -> Any:
    """Return a session with settings and views of its own.

    Its statements contain keys and names, in which ``${…}`` is text: variables are not substituted, whatever the
    operator sets elsewhere.
    """
    child = spark.newSession()
    child.conf.set("spark.sql.variable.substitute", "false")
    return child


class TableSession:
    """One child session. ``scratch`` is a directory that Spark also reads, or None if there is none.

    If it ``follows`` the cluster, a batch is shuffled into partitions for all cores that the executors have then.
    """

    def __init__(
        self, spark: Any, table: str, scratch: Path | None, tasks: int, engine: SparkEngine, *, follows: bool = False
    ) -> None:
        self._spark = spark
        self._engine = engine
        self._table = table
        self._scratch = scratch
        self._tasks = min(tasks, _MAX_TASKS)
        self._follows = follows

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Call Spark in the block: with a deadline, and with the errors of ``failures.py``."""
        with translate_errors(self._table), self._engine.statement(self._table, self._spark):
            yield

    def run(self, *statements: str) -> None:
        """Execute statements for their effect. Spark runs commands at once; nothing is fetched."""
        for statement in statements:
            with self.calling():
                self._spark.sql(statement)

    def rows(self, query: str) -> list[Any]:
        """Return a small result as Spark rows."""
        with self.calling():
            rows: list[Any] = self._spark.sql(query).collect()
            return rows

    def arrow(self, query: str) -> pa.Table:
        """Return a result that may be large, in columns."""
        with self.calling():
            return self._spark.sql(query).toArrow()

    @property
    def folder(self) -> Path | None:
        """Return the folder for temporary files, None for that of the system."""
        return self._scratch

    @property
    def hands_over(self) -> bool:
        """Return whether Spark and this process share a folder."""
        return self._scratch is not None

    def batches(self, query: str) -> Iterator[pa.Table]:
        """Yield a result of any size, through a shared file, a few rows at a time. Requires ``hands_over``."""
        if self._scratch is None:
            raise ValueError("Spark and this process share no folder")
        folder = self._scratch / f"headrace_scan_{uuid.uuid4().hex}"
        try:
            with self.calling():
                self._spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # INT96 ends in 2262
                rows = self._spark.sql(query)
                rows.write.option("parquet.block.size", _BYTES_PER_ROW_GROUP).parquet(str(folder))
            for path in sorted(folder.glob("*.parquet")):
                with pq.ParquetFile(path, pre_buffer=False) as file:  # otherwise the complete file, until its end
                    yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches(_ROWS_PER_BATCH))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def beside(self) -> TableSession:
        """Return another session of the table, for a thread that works beside the one of this session."""
        with self.calling():
            child = new_child(self._spark)
        return TableSession(child, self._table, self._scratch, self._tasks, self._engine, follows=self._follows)

    def copy(self, group: str, reading: Mapping[str, str], writing: Mapping[str, str]) -> None:
        """Let Iceberg read the files that are staged as ``group``, and write their rows to new files."""
        with self.calling():
            rows = self._spark.read.format("iceberg").options(**reading).load(group)
            rows.write.format("iceberg").options(**writing).mode("append").save(group)

    @property
    def java(self) -> tuple[Any, Any]:
        """Return Spark's JVM and this session in it."""
        return self._spark._jvm, self._spark._jsparkSession

    def activate(self) -> tuple[Any, Any]:
        """Return ``java``, for calls of Java from this thread.

        The classes of Spark and of the formats read the settings of the thread's active session, which is none in a new
        thread: then they do not find the catalog.
        """
        jvm, session = self.java
        with self.calling():
            java_member(jvm, "org.apache.spark.sql.SparkSession.setActiveSession")(session)
        return jvm, session

    def schema(self, table: str) -> pa.Schema | None:
        """Return the Arrow schema of a table (quoted name), or None if it does not exist."""
        from pyspark.sql.pandas.types import to_arrow_schema  # imported late, see spark_jvm.py

        with self.calling():
            try:
                return to_arrow_schema(self._spark.table(table).schema)
            except Exception as error:
                if condition(error) in _NO_SUCH_TABLE:
                    return None
                raise

    @contextmanager
    def staged_view(self, rows: pa.Table) -> Iterator[str]:
        """Provide a temporary view (quoted) over ``rows`` during the block."""
        view = f"{STAGED}{uuid.uuid4().hex}"
        path = None if self._scratch is None else self._scratch / f"{view}.parquet"
        with self.calling():
            if self._follows:
                cores = self._spark.sparkContext.defaultParallelism  # of the executors that are registered now
                self._spark.conf.set(SHUFFLE_PARTITIONS, _SHUFFLED_PER_CORE * cores)
            if path is None:
                staged = self._spark.createDataFrame(rows)
            else:
                # The file is read once: without compression, dictionaries and statistics, with a row group for each
                # task. Never use lz4: if a condition is pushed down to the file, Spark 4.1.4 fails on the dictionary
                # pages that Arrow compressed ("all input must be consumed").
                tasks = max(1, min(self._tasks, rows.num_rows // _ROWS_PER_TASK))
                pq.write_table(
                    rows,
                    path,
                    compression="none",
                    use_dictionary=False,
                    store_decimal_as_integer=True,
                    write_statistics=False,
                    row_group_size=max(1, -(-rows.num_rows // tasks)),
                )
                # With a given schema Spark starts no job to read it.
                staged = self._spark.read.schema(column_list(rows.schema)).parquet(str(path))
            staged.createOrReplaceTempView(view)
        try:
            yield quoted(view)
        finally:
            if path is not None:
                path.unlink(missing_ok=True)
            with suppress(EngineFailed), self.calling():  # the view has ended with its JVM
                self._spark.catalog.dropTempView(view)

    @contextmanager
    def with_settings(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Run the statements of the block under ``settings``, and reset these for other statements afterwards."""
        try:
            with self.calling():
                for name, value in settings.items():
                    self._spark.conf.set(name, value)
            yield
        finally:
            with suppress(EngineFailed), self.calling():  # they have ended with their JVM
                for name in settings:
                    self._spark.conf.unset(name)
