"""An archive of Spark's classes, with which the JVM of a test needs much less CPU time until its first merge.

A JVM reads, verifies and links about 20,000 classes to merge one row, and a run of the tests starts dozens of JVMs.
With an archive it maps the classes into memory (class data sharing, JEP 350). The archive belongs to the virtual
environment, because a JVM refuses an archive whose Java, paths or jars differ from its own: it prints a warning and
reads the classes as usual. It has no classes of Iceberg and Delta, which come from ``spark.jars``: Java archives no
classes of other class loaders than its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from headrace_connectors.lakehouse.spark_settings import settings
from headrace_dev.jars import resolve

ARCHIVE = Path(sys.prefix, "spark-classes.jsa")

_MERGE = """
MERGE INTO {table} AS t USING (SELECT id, concat('name ', id) AS name FROM range(10)) AS s ON t.id = s.id
WHEN MATCHED AND s.id < 5 THEN DELETE WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *
"""


def jvm_options() -> tuple[str, ...]:
    """Return the options that use the archive; none without one, because Java then uses not even its own archive."""
    return (f"-XX:SharedArchiveFile={ARCHIVE}",) if ARCHIVE.exists() else ()


def write() -> bool:
    """Start a JVM, merge into a table of each format, and archive its classes. False if this Java writes no archive."""
    draft = ARCHIVE.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as warehouse:
        spark = _session(warehouse, f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={draft} -Xlog:disable")
        spark.sql("CREATE NAMESPACE lake.trial")
        for table, table_format in (("lake.trial.item", "iceberg"), (f"delta.`{warehouse}/item`", "delta")):
            spark.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) USING {table_format}")
            for _ in range(2):
                spark.sql(_MERGE.format(table=table)).toArrow()
        gateway = spark.sparkContext._gateway
        spark.stop()
        gateway.proc.stdin.close()  # PySpark's JVM exits when its input ends; it writes the archive when it exits
        gateway.proc.wait()
    if draft.exists():
        draft.replace(ARCHIVE)
    return ARCHIVE.exists()


def _session(warehouse: str, java_options: str) -> Any:
    from pyspark.sql import SparkSession  # late: only this command starts Spark in its own process

    chosen = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": java_options}
    builder = SparkSession.builder
    for name, value in settings(warehouse, chosen, resolve("lakehouse")).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
