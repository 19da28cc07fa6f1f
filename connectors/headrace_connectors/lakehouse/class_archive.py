"""An archive of the classes of Spark's JVM, with which start and first commit need a third less CPU time.

A JVM reads, verifies and links some 20,000 classes before its first commit. With an archive it maps them into memory
(class data sharing, https://openjdk.org/jeps/350). The archive belongs to a Python environment, in whose folder it is:
Java uses it only with the same Java, and with the same class path of unchanged jars in the same order. Spark lists its
jars in the order of the file system, which differs between the nodes that unpack an image, so that the class path is a
file beside the archive. The jars of the table formats are in it: Java archives the classes of a class path only.

The image has an archive; ``python -m headrace_connectors.lakehouse.class_archive`` writes one elsewhere. A worker with
other jars, or with folders of Hadoop's configuration, does without it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.model.actions import Actions, Gates
from headrace.core.model.events import Column, TableId, Versions
from headrace.core.model.schema import Schema
from headrace.core.tables.table_layout import SortField, TableLayout
from headrace.ports import Commit, TableOptions, TopicPartition
from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR, LOCAL_FILES_JAR

FOLDER = Path(sys.prefix, "headrace-classes")
_ARCHIVE, _CLASS_PATH = "classes.jsa", "class-path"
_OF_OTHER_CLASS_PATHS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_EXTRA_CLASS_PATH = "spark.driver.extraClassPath"
_MACHINE_LEARNING = "spark-mllib_*.jar"
"""With this jar, the first session takes a second more: Spark finds the types of its SQL functions by reflection."""
_SHORT_RUN = "-Xlog:cds=off -Xlog:cds+dynamic=off -XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=1"
_AT_ITS_ADDRESS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Java would put the archive at a random address (JDK-8294323) and write each of its pages for that: a quarter of a
second of CPU time, and 190 MB of memory. All else stays at random addresses (docs/decisions/delivery.md)."""
_WRITE_SECONDS = 300.0
_DAY = 86_400_000_000


def archive_options(spark: Mapping[str, str], jars: Sequence[str]) -> list[str]:
    """Return Java's options for the archive in FOLDER; none without one, or if it is of other jars.

    ``spark`` are the worker's settings and ``jars`` those of ``spark.jars``.
    """
    archive, options = FOLDER / _ARCHIVE, FOLDER / _CLASS_PATH
    if _EXTRA_CLASS_PATH in spark or any(map(os.environ.get, _OF_OTHER_CLASS_PATHS)) or not archive.is_file():
        return []
    if options.read_text() != class_path(jars):
        return []
    return [*_AT_ITS_ADDRESS, f"-XX:SharedArchiveFile={archive}", f"@{options}"]


def class_path(jars: Sequence[str]) -> str:
    """Return the content of a file of options for ``java``, which uses the last class path of a command."""
    from pyspark.find_spark_home import _find_spark_home  # imported late, see spark_jvm.py

    own = [LOCAL_FILES_JAR, DELTA_S3_JAR]
    formats = sorted(Path(jar) for jar in jars if jar != str(DELTA_S3_JAR))
    spark = sorted(jar for jar in Path(_find_spark_home(), "jars").glob("*.jar") if not jar.match(_MACHINE_LEARNING))
    path = os.pathsep.join(map(str, [*own, *formats, *spark]))
    quoted = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'-cp\n"{quoted}"\n'


def write(jars: Sequence[Path] | None = None) -> bool:
    """Write an archive for ``jars``, by default those of a worker here. Return False if this Java writes none."""
    from headrace_connectors.lakehouse.lakehouse import SparkLakehouse  # late: these modules use the archive
    from headrace_connectors.lakehouse.spark_settings import settings

    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    draft, options_file = FOLDER / "draft.jsa", FOLDER / _CLASS_PATH
    with tempfile.TemporaryDirectory(prefix="headrace-") as warehouse:
        options = f"-XX:ArchiveClassesAtExit={draft} {_SHORT_RUN} @{options_file}"
        spark = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.extraJavaOptions": options}
        options_file.write_text(class_path(settings(warehouse, spark, jars)["spark.jars"].split(",")))
        lakehouse = SparkLakehouse(warehouse, spark, jars)
        try:
            _write_tables(lakehouse)
        finally:
            lakehouse.close(_WRITE_SECONDS)
    if draft.exists():
        draft.replace(FOLDER / _ARCHIVE)
    return (FOLDER / _ARCHIVE).exists()


def _write_tables(lakehouse: Any) -> None:
    """Do what a worker does: commits of each kind, and upkeep, in tables of each format."""
    sorted_rows = TableOptions(layout=TableLayout(sort=(SortField("id"),)))  # written by MERGE
    for name, options in {
        "direct": TableOptions(),
        "merged": sorted_rows,
        "delta": TableOptions(format="delta"),
    }.items():
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
        for number in range(2):
            table = lakehouse.table("archive", name, options)
            table.ledger()
            table.evolve(schema, ["id"])
            actions = _actions(schema, number)
            table.record_tombstones({"=1": actions.version.row(0)}, number)
            table.merge(actions, Commit(number, "archive", "archive", {TopicPartition("archive", 0): number + 1}))
        table.maintain(time.time_ns() // 1000, 7 * _DAY)


def _actions(schema: pa.Schema, number: int) -> Actions:
    """Return changes of two rows: number 0 creates them, and number 1 deletes one and updates the other."""
    offsets = np.arange(2, dtype=np.int64) + 2 * number
    versions = Versions("archive", np.array([b"%020d" % at for at in offsets]), np.zeros(2, np.int32), offsets, offsets)
    ids = pa.array([1, 2], pa.int64())
    return Actions(
        table=TableId("archive", "archive", "public", "archive"),
        key_fields=("id",),
        key=pa.array(["=1", "=2"]),
        delete=np.array([number > 0, False]),
        fresh=np.zeros(2, np.bool_),
        version=versions,
        gates=Gates.of(versions),
        transaction=np.full(2, -1),
        columns=tuple(Column(field.name, Schema("string"), ids.cast(field.type)) for field in schema),
    )


if __name__ == "__main__":
    print(f"classes: archiving the classes of Spark in {FOLDER}; about a minute", flush=True)
    if not write():
        print("classes: this Java writes no archive; workers start without one, and slower")
