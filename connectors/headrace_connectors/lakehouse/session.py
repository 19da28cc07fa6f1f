"""The worker's one Spark session: its settings, its jars, its start. Tables get child sessions of it.

Spark starts with the first table, not with the worker. pyspark is also imported then: it takes half a second and 60 MB,
which a worker without tables, or a test with memory tables, does not need.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError, HeadraceError, Retriable
from headrace.core.tables.locations import check_locations
from headrace.core.tables.naming import check_table_path
from headrace.ports import TableOptions
from headrace_connectors.lakehouse.delta import DeltaFormat
from headrace_connectors.lakehouse.failures import translated
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.spark_process import held_standard_error, user_environment
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.writer import SparkTable

log = logging.getLogger(__name__)

CATALOG = "lake"
PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
)
"""The formats for the Spark that ``pyproject.toml`` pins; their POMs name other artifacts that are not needed."""

LOCAL_FILES = "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0"
"""A local file system that sets permissions through Java. Hadoop's own runs ``chmod`` for each file that it creates."""

_LOCAL_FILES_CLASS = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"

_ICEBERG = "org.apache.iceberg.spark"
_EXTENSIONS = (f"{_ICEBERG}.extensions.IcebergSparkSessionExtensions", "io.delta.sql.DeltaSparkSessionExtension")
_SIGNS = {"iceberg": "metadata/version-hint.text", "delta": "_delta_log"}  # what a table's folder has
_ATOMIC_RENAME = ("", "file", "hdfs")  # what the hadoop catalog relies on; object stores have none
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "headrace",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.extensions": ",".join(_EXTENSIONS),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",  # finds tables by path
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # Bloom filters from the batch to the table (merge.py), unless the table is small. Spark makes none for joins which
    # it believes it could broadcast; a MERGE it cannot, so nothing is lost by telling it that it may not.
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "4m",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "1g",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Spark does not convert dates and times to another calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # in Delta's files; INT96 ends in 2262
}
_LEAST_OVERHEAD = 384 * 1024 * 1024
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def settings(warehouse: str, spark: Mapping[str, str], jars: Sequence[Path] | None = None) -> dict[str, str]:
    """Return all settings of the session; ``spark`` takes precedence. Raises ConfigError for an unsafe catalog."""
    master = spark.get("spark.master", _DEFAULTS["spark.master"])
    # Delta makes Spark check its default warehouse, which would be a folder in the current one.
    own = {"spark.sql.warehouse.dir": warehouse} if urlsplit(warehouse).scheme in ("", "file") else {}
    chosen = {**_DEFAULTS, **own, **_catalog(warehouse), **_local(master), **_jars(spark, jars), **spark}
    if f"spark.sql.catalog.{CATALOG}.catalog-impl" in spark:
        chosen.pop(f"spark.sql.catalog.{CATALOG}.type", None)
    _refuse_unsafe(chosen)
    # Little logging, and the garbage collector with the highest throughput: latency does not matter for batches.
    # Measured on 300,000 changes: a tenth of the JVM's CPU time less than with G1.
    wanted = spark.get("spark.driver.extraJavaOptions", "")
    quiet = f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}"
    collector = "" if re.search(r"-XX:\+Use\w+GC\b", wanted) else "-XX:+UseParallelGC"
    chosen["spark.driver.extraJavaOptions"] = " ".join(filter(None, [quiet, collector, wanted]))
    return {**chosen, **_local_files(master, chosen)}


def _catalog(warehouse: str) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: f"{_ICEBERG}.SparkCatalog",
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": warehouse,
        f"{prefix}.cache-enabled": "false",  # else child sessions see stale snapshots
    }


def _local(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    # One partition is not shuffled again before it is written: on two cores it takes a quarter less CPU than two for a
    # batch of 100,000 rows (a sixth less for 400,000) and no more time. Tables run side by side.
    # Delta's VACUUM lists folders in as many tasks as it is allowed, 10,000 by default: half a minute for ten files.
    return {
        **_LOOPBACK,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    }


def local_cores(master: str) -> int:
    """The cores of a local master: ``local[2]``, ``local[*]``."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def _jars(spark: Mapping[str, str], jars: Sequence[Path] | None) -> dict[str, str]:
    """The source of the table formats: the worker's settings, a folder of jars, or Maven Central through Ivy."""
    if "spark.jars" in spark or "spark.jars.packages" in spark:
        return {}
    folder = Path(os.environ.get("HEADRACE_JARS", str(Path(__file__).parent / "jars")))
    found = sorted(folder.glob("*.jar")) if jars is None else jars
    if found:
        return {"spark.jars": ",".join(map(str, found))}
    return {"spark.jars.packages": ",".join(PACKAGES)}


def _local_files(master: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Let a local master create files of the scheme ``file`` without a process for each, if the jar is available.

    Spark uses local files before it loads ``spark.jars``, so the jar must also be on the driver's class path. Ivy
    fetches it too late for that, and the executors of a cluster start without it: they keep Hadoop's class. Delta's log
    is written through another interface (docs/why.md), which does not change.
    """
    name = "-".join(LOCAL_FILES.split(":")[1:]) + ".jar"
    places = map(urlsplit, chosen.get("spark.jars", "").split(","))
    jar = next((at.path for at in places if at.scheme in ("", "file", "local") and Path(at.path).name == name), None)
    if jar is None or not master.startswith("local") or "spark.hadoop.fs.file.impl" in chosen:
        return {}
    class_path = filter(None, [jar, chosen.get("spark.driver.extraClassPath")])
    return {
        "spark.driver.extraClassPath": os.pathsep.join(class_path),
        "spark.hadoop.fs.file.impl": _LOCAL_FILES_CLASS,
    }


def _refuse_unsafe(chosen: Mapping[str, str]) -> None:
    prefix = f"spark.sql.catalog.{CATALOG}"
    warehouse = chosen[f"{prefix}.warehouse"]
    if chosen.get(f"{prefix}.type") == "hadoop" and urlsplit(warehouse).scheme not in _ATOMIC_RENAME:
        raise ConfigError(
            f"the embedded catalog needs atomic renames, which {urlsplit(warehouse).scheme} does not support: "
            f"set {prefix}.type (rest, jdbc, hive…) and its uri, or use a local warehouse",
            key=f"{prefix}.type",
        )


class SparkLakehouse:
    """``ports.Lakehouse`` on Spark: Iceberg and Delta tables. Safe to call from several threads.

    ``warehouse`` is a path or URL, ``spark`` the worker's ``spark.*`` settings, ``jars`` the value for ``spark.jars``.
    """

    def __init__(self, warehouse: str, spark: Mapping[str, str], jars: Sequence[Path] | None = None) -> None:
        local = urlsplit(warehouse).scheme in ("", "file")
        self._path = Path(urlsplit(warehouse).path).absolute() if local else None
        self._warehouse = warehouse
        self._settings = settings(str(self._path) if self._path else warehouse, spark, jars)
        self._starting = threading.Lock()
        self._spark: Any = None
        self._scratch: Path | None = None

    def table(self, namespace: str, name: str, options: TableOptions) -> SparkTable:
        """Open a table by name; nothing is created before ``evolve``. Starts Spark if it is not running.

        Raises ConfigError for names and properties that lead outside of the warehouse.
        """
        check_table_path(namespace, name)
        check_locations(options.properties, str(self._path or self._warehouse))
        table_format = self._format(options)
        path = TablePath(namespace, name)
        self._refuse_other_format(path, options.format)
        label = f"{namespace}.{name}"
        with translated(label):
            # A session with its own settings and views; Spark Connect calls it a clone. Its statements contain keys and
            # names, in which ``${…}`` is text: variables are not substituted, whatever the operator sets elsewhere.
            spark = self._started()
            child = spark.newSession() if hasattr(spark, "newSession") else spark.cloneSession()
            child.conf.set("spark.sql.variable.substitute", "false")
        master = self._settings["spark.master"]
        session = TableSession(child, label, self._scratch, local_cores(master))
        return SparkTable(session, table_format, path, options)

    def _format(self, options: TableOptions) -> TableFormat:
        if options.format == "iceberg":
            return IcebergFormat(CATALOG, options)
        if options.format == "delta":
            return DeltaFormat(str(self._path or self._warehouse), options)
        raise ConfigError(f"table.format {options.format!r} is not known; use iceberg or delta", key="table.format")

    def _refuse_other_format(self, path: TablePath, wanted: str) -> None:
        """Refuse two formats in one folder: each would delete the other's files."""
        if self._path is None:
            return
        folder = self._path / path.namespace / path.name
        for other, sign in _SIGNS.items():
            if other != wanted and (folder / sign).exists():
                raise ConfigError(
                    f"{path.namespace}.{path.name} is a table of format {other}, and table.format is {wanted}: "
                    "keep the format, move the table away, or choose another table.namespace",
                    key="table.format",
                )

    def memory(self) -> int:
        """Return the bytes of the driver's heap and of the JVM's overhead: a tenth, as Spark adds for executors."""
        heap = java_bytes(self._settings["spark.driver.memory"])
        return heap + max(heap // 10, _LEAST_OVERHEAD)

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if the warehouse cannot be written."""
        if self._path is not None:
            _check_folder(self._path)
            return
        with translated("warehouse"):
            self._started().sql(f"SHOW NAMESPACES IN {quoted(CATALOG)}").collect()

    def close(self) -> None:
        """Stop Spark and remove the shared files. Idempotent."""
        with self._starting:
            if self._spark is not None:
                self._spark.stop()
            if self._scratch is not None:
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._spark = self._scratch = None

    def _started(self) -> Any:
        with self._starting:
            if self._spark is None:
                self._spark = _start(self._settings)
                if self._settings["spark.master"].startswith("local"):
                    self._scratch = Path(tempfile.mkdtemp(prefix="headrace-"))
            return self._spark


def _start(chosen: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession  # imported late, see the head of this file

    _keep_statements_out_of_the_log()
    builder = SparkSession.builder
    master = chosen["spark.master"]
    remote = master.startswith("sc://")
    builder = builder.remote(master) if remote else builder.master(master)
    for name, value in chosen.items():
        if name != "spark.master":
            builder = builder.config(name, value)
    try:
        if not remote:
            _start_process(chosen)
        return builder.getOrCreate()
    except HeadraceError:
        raise
    except Exception as error:
        raise Retriable(
            f"Spark did not start ({type(error).__name__}); install Java 17, and check that Spark's jars exist"
        ) from error


def _start_process(chosen: Mapping[str, str]) -> None:
    """Prepare Spark's JVM; start it here if it fetches packages, because Ivy prints pages while it does."""
    from pyspark import SparkConf, SparkContext  # late, as above
    from pyspark.java_gateway import launch_gateway

    os.environ.update(user_environment(os.getuid()))
    if "spark.jars.packages" not in chosen or SparkContext._gateway is not None:
        return
    packages = chosen["spark.jars.packages"]
    log.info("Spark: resolving %s from Maven Central; set HEADRACE_JARS to a folder that has the jars", packages)
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    with held_standard_error() as standard_error:
        gateway = launch_gateway(conf, {"stderr": standard_error})
        SparkContext(conf=conf, gateway=gateway)


def _keep_statements_out_of_the_log() -> None:
    """Stop PySpark from logging statements, which contain keys; ``failures.py`` reports errors without them."""
    from pyspark.logger import PySparkLogger  # late, as above

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _check_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"headrace")
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(f"warehouse: {path} is not a folder; choose another path", key="warehouse") from error
    except OSError as error:
        raise Retriable(
            f"warehouse: {path} cannot be written: {error.strerror}; check the path and the rights of the worker's user"
        ) from error


def java_bytes(text: str) -> int:
    """Return the bytes that Java means by ``4g`` or ``512m``. Raises ConfigError for another text."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"spark.driver.memory {text!r} is not an amount of memory such as 4g or 512m")
    number, unit = match.groups()
    power: int = " kmgt".index(unit) if unit else 2  # Spark reads a bare number as mebibytes
    return int(number) * (1 << 10 * power)
