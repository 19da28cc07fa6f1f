"""The settings of Spark: memory of its JVM, the certificates that it trusts, catalogs, and defaults for the rest.

Tests: ``tests/unit/lakehouse/test_session.py``, ``tests/unit/lakehouse/test_jvm_memory.py``,
``tests/unit/lakehouse/test_trust_store.py``, ``tests/unit/lakehouse/test_catalog_examples.py``.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12

from headrace.config.tls import read_trust_store
from headrace.core.model.errors import ConfigError
from headrace.core.tables.naming import ICEBERG_CLASS, LAKE, PREFIX, other_catalogs
from headrace_connectors.lakehouse.class_archive import archive_options
from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR, ICEBERG_JAR, LOCAL_FILES_JAR, jar_settings

_MEBIBYTE = 1024 * 1024
_LEAST_HEAP = 1024 * _MEBIBYTE
_MOST_HEAP = 4096 * _MEBIBYTE
"""More heap only helps with batches larger than the default ones (``batch.max.bytes``)."""
_HEAP_SHARE = 0.6
"""Of what Python and the JVM's other parts leave. The rest is for changes that wait or are written."""
_SIZES = {"metaspace": "MaxMetaspaceSize", "direct": "MaxDirectMemorySize", "code_cache": "ReservedCodeCacheSize"}


@dataclass(frozen=True, slots=True)
class JvmMemory:
    """Bytes of the parts. All but ``other`` (threads, collector, libraries) are limits that the JVM keeps."""

    heap: int
    metaspace: int = 384 * _MEBIBYTE
    direct: int = 256 * _MEBIBYTE
    code_cache: int = 192 * _MEBIBYTE
    other: int = 192 * _MEBIBYTE

    @classmethod
    def plan(cls, heap: str | None, java_options: str, available: int | None) -> JvmMemory:
        """Return the parts for a heap such as ``4g`` and for the sizes in ``java_options``.

        Without ``heap`` it follows from the ``available`` bytes, which are the JVM's and those of changes. Raises
        ConfigError for a size that is not one.
        """
        given = {part: java_bytes(size, option) for part, option, size in _sizes_in(java_options)}
        parts = cls(0, **given)
        if heap is not None:
            return cls(java_bytes(heap, "spark.driver.memory"), **given)
        if available is None:
            return cls(_MOST_HEAP, **given)
        chosen = int((available - sum(astuple(parts))) * _HEAP_SHARE) // _MEBIBYTE * _MEBIBYTE
        return cls(min(max(chosen, _LEAST_HEAP), _MOST_HEAP), **given)

    def options(self, java_options: str) -> Sequence[str]:
        """Return the JVM's options for the limits that ``java_options`` does not contain."""
        given = {part for part, _, _ in _sizes_in(java_options)}
        sizes: Mapping[str, int] = {part: getattr(self, part) for part in _SIZES if part not in given}
        return [f"-XX:{_SIZES[part]}={size // _MEBIBYTE}m" for part, size in sizes.items()]

    def parts(self) -> Mapping[str, int]:
        """Return the bytes by the name of the part, for the log."""
        return {
            "heap": self.heap,
            "metaspace": self.metaspace,
            "direct memory": self.direct,
            "code cache": self.code_cache,
            "threads and collector": self.other,
        }


def _sizes_in(java_options: str) -> Sequence[tuple[str, str, str]]:
    sizes = [(part, option, re.findall(rf"-XX:{option}=(\S+)", java_options)) for part, option in _SIZES.items()]
    return [(part, option, values[-1]) for part, option, values in sizes if values]


def java_bytes(text: str, option: str) -> int:
    """Return the bytes that Java means by ``4g`` or ``512m``. Raises ConfigError for another text."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"{option} {text!r} is not an amount of memory such as 4g or 512m", option)
    number, unit = match.groups()
    # Spark reads a bare number as mebibytes, the JVM as bytes.
    power: int = " kmgt".index(unit) if unit else (2 if option.startswith("spark.") else 0)
    return int(number) * (1 << 10 * power)


class TrustStore:
    """The certificates of the file ``location``, read once. Raises ConfigError if it cannot be read.

    ``path`` is the file for Java, which exists between ``write`` and ``remove``.
    """

    def __init__(self, location: str, password: str | None) -> None:
        certificates = read_trust_store("jvm.ssl.truststore.location", location, password)
        # Java requires a different name for each.
        named = [pkcs12.PKCS12Certificate(certificate, b"%d" % n) for n, certificate in enumerate(certificates)]
        self._content = pkcs12.serialize_java_truststore(named, NoEncryption())
        self.path = Path(tempfile.gettempdir(), f"headrace-truststore-{uuid.uuid4().hex}.p12")

    def write(self) -> None:
        if not self.path.exists():
            self.path.touch(mode=0o600)
            self.path.write_bytes(self._content)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


_ATOMIC_RENAME = ("", "file", "hdfs")  # what the hadoop catalog relies on; object stores have none


def catalog_settings(warehouse: str, spark: Mapping[str, str]) -> dict[str, str]:
    """Return the defaults of all catalogs: ``lake`` is a folder, and no catalog caches tables.

    A cache would show old snapshots to the sessions of the tables.
    """
    lake = f"{PREFIX}{LAKE}"
    caches = {f"{PREFIX}{name}.cache-enabled": "false" for name in (LAKE, *other_catalogs(spark))}
    kind = {} if f"{lake}.catalog-impl" in spark else {f"{lake}.type": "hadoop"}
    return {lake: ICEBERG_CLASS, **kind, f"{lake}.warehouse": warehouse, **caches}


def refuse_unsafe(settings: Mapping[str, str]) -> None:
    """Raise ConfigError for a folder as a catalog on storage without atomic renames."""
    for name in (LAKE, *other_catalogs(settings)):
        prefix = f"{PREFIX}{name}"
        scheme = urlsplit(settings.get(f"{prefix}.warehouse", "")).scheme
        if settings.get(f"{prefix}.type") == "hadoop" and scheme not in _ATOMIC_RENAME:
            raise ConfigError(
                f"the embedded catalog needs atomic renames, which {scheme} does not support: "
                f"set {prefix}.type (rest, jdbc, hive…) and its uri, or use a local warehouse",
                key=f"{prefix}.type",
            )


def warehouse_of(name: str, settings: Mapping[str, str]) -> str | None:
    """Return where a catalog has its tables, None if only its server determines that."""
    warehouse = settings.get(f"{PREFIX}{name}.warehouse", "")
    return warehouse if "/" in warehouse else None


SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
_ICEBERG = "org.apache.iceberg.spark"
_EXTENSIONS = (f"{_ICEBERG}.extensions.IcebergSparkSessionExtensions", "io.delta.sql.DeltaSparkSessionExtension")
_DEFAULTS = {
    "spark.master": "local[*]",
    "spark.app.name": "headrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.extensions": ",".join(_EXTENSIONS),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",  # finds tables by path
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.redaction.regex": "(?i)secret|password|passwd|token|credential|access[.-]?key|api[.-]?key|jaas|private",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    # Bloom filters from the batch to the table (merge.py), unless the table is small. Spark makes none for a join that
    # it could broadcast by its estimates. It cannot broadcast the join of a MERGE, which so needs no broadcasts.
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "4m",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "1g",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    # Spark does not convert dates and times to another calendar.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # in Delta's files; INT96 ends in 2262
}
_PODS = {
    # Spark makes a secret for each driver, and passes it to the executors in their environment.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    # Each would need one more right in the namespace: files of a configuration folder, and claims of earlier executors.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
}
_PODS_IMAGE = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "headrace.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "headrace.LocalFiles$Context",
}
_S3 = ("s3", "s3a")
LOG_STORE = "headrace.ConditionalS3LogStore"
"""The class that creates entries of Delta's log on S3, unless the operator sets another one."""
_COMPILE_LATER = "-XX:CompileThresholdScaling=10"
"""Each batch calls thousands of methods of Spark and Iceberg a few times. Compiling them costs more than it saves: with
later compilation, 20 batches of 15,000 changes after a cold start use a fifth less CPU time."""
_TRUST_STORE = "-Djavax.net.ssl.trustStore"
LOG_CONFIG = Path(__file__).parent / "log4j2.properties"
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # One partition is not shuffled again before it is written: on two cores it takes a quarter less CPU than two for a
    # batch of 100,000 rows (a sixth less for 400,000) and no more time. Tables run side by side.
    SHUFFLE_PARTITIONS: "1",
    # Delta's VACUUM lists folders in as many tasks as it is allowed, 10,000 by default: half a minute for ten files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
    # The driver is the only executor. A heartbeat costs an idle worker 40 ms of CPU; the default is 10 s.
    "spark.executor.heartbeatInterval": "30s",
}


def settings(
    warehouse: str,
    spark: Mapping[str, str],
    jars: Sequence[Path] | None = None,
    available: int | None = None,
    extra: Sequence[str] = (),
    trusted: Path | None = None,
) -> dict[str, str]:
    """Return all settings of the session; ``spark`` takes precedence. ``extra`` are jars in addition to all others.

    ``available`` bytes are for the JVM and for changes (``JvmMemory``). ``trusted`` is a trust store without a
    password, for the driver and its executors. Raises ConfigError for an unsafe catalog, or for a master that cannot be
    used.
    """
    master = spark.get("spark.master", _DEFAULTS["spark.master"])
    if master.startswith("sc://"):
        raise ConfigError(
            f"spark.master {master}: Spark Connect is not supported, because it gives no access to the formats' own "
            "classes, which commits use; set local[*], spark://..., yarn or k8s://...",
            key="spark.master",
        )
    if master.startswith("k8s://") and not any(map(spark.get, _PODS_IMAGE)):
        raise ConfigError(
            f"spark.master {master}: {_PODS_IMAGE[0]} is required, the image of the executors; the chart sets it "
            "(executors.enabled)",
            key=_PODS_IMAGE[0],
        )
    of_master = _LOCAL if is_local(master) else _PODS if master.startswith("k8s://") else {}
    of_folder = {}
    if urlsplit(warehouse).scheme in ("", "file"):
        of_folder = {
            # Delta makes Spark check its default warehouse, which would be a folder in the current one.
            "spark.sql.warehouse.dir": warehouse,
            # For executors of a cluster, which have Hadoop's class for local files: it reads ranges in threads, each
            # with a direct buffer. Without memory, an exception ends the thread, and its reader waits. Iceberg ignores
            # this.
            "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
        }
    catalogs = catalog_settings(warehouse, spark)
    added = (str(ICEBERG_JAR), *([str(DELTA_S3_JAR)] if _is_on_s3(warehouse) else []), *extra)
    chosen = {**_DEFAULTS, **of_folder, **catalogs, **of_master, **spark, **jar_settings(spark, jars, added)}
    refuse_unsafe(chosen)

    chosen |= _jvm(spark, available, trusted)
    if is_local(master) and "spark.jars.packages" not in chosen:
        archive = archive_options(spark, chosen["spark.jars"].split(","))
        chosen[_JAVA_OPTIONS] = " ".join([*map(shlex.quote, archive), chosen[_JAVA_OPTIONS]])
        if archive:  # its class path contains the jars, which Spark would copy over a connection to itself
            del chosen["spark.jars"]
    if trusted is not None and not is_local(master):
        # To each executor's working folder, where Java reads it at its first connection with TLS.
        files, options = spark.get("spark.files", ""), spark.get(_EXECUTOR_OPTIONS, "")
        chosen["spark.files"] = ",".join(filter(None, [files, str(trusted)]))
        chosen[_EXECUTOR_OPTIONS] = f"{_TRUST_STORE}={trusted.name} {options}".strip()
    return {**_object_store(warehouse, spark), **chosen, **_local_files(master, chosen)}


def memory(spark: Mapping[str, str], available: int | None) -> JvmMemory:
    return JvmMemory.plan(spark.get("spark.driver.memory"), spark.get(_JAVA_OPTIONS, ""), available)


def _jvm(spark: Mapping[str, str], available: int | None, trusted: Path | None) -> dict[str, str]:
    """Options of the JVM. It ends at the first lack of memory, so that it is started again (``spark_engine.py``).

    The garbage collector is the one with the highest throughput, because latency does not matter for batches. Measured
    on 300,000 changes: a tenth of the JVM's CPU time less than with G1.
    """
    wanted = spark.get(_JAVA_OPTIONS, "")
    sizes = memory(spark, available)
    defaults = [
        f"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}",
        *([] if re.search(r"-XX:\+Use\w+GC\b", wanted) else ["-XX:+UseParallelGC"]),
        *([] if "ExitOnOutOfMemoryError" in wanted else ["-XX:+ExitOnOutOfMemoryError"]),
        *([] if "CompileThresholdScaling" in wanted else [_COMPILE_LATER]),
        *sizes.options(wanted),
        *([f"{_TRUST_STORE}={trusted}"] if trusted else []),
    ]
    heap = f"{sizes.heap // (1024 * 1024)}m"
    return {"spark.driver.memory": heap, _JAVA_OPTIONS: " ".join(filter(None, [*defaults, wanted]))}


def _object_store(warehouse: str, spark: Mapping[str, str]) -> dict[str, str]:
    """Let Delta create entries of its log on S3 only if they do not exist (``ConditionalS3LogStore.java``).

    Delta's own class compares only with the writers in its JVM, and replaces the entry of another process. Delta
    accepts no class for a scheme beside one for all of them.
    """
    if not _is_on_s3(warehouse):
        return {}
    stores = (
        set() if "spark.delta.logStore.class" in spark else {f"spark.delta.logStore.{scheme}.impl" for scheme in _S3}
    )
    return {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem", **dict.fromkeys(stores, LOG_STORE)}


def _is_on_s3(warehouse: str) -> bool:
    return urlsplit(warehouse).scheme in _S3


def is_local(master: str) -> bool:
    """Whether Spark runs its tasks in the worker's own JVM, so that both use the same files."""
    return master.startswith("local")


def local_cores(master: str) -> int:
    """The cores of a local master: ``local[2]``, ``local[*]``."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def _local_files(master: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """Let Spark's JVM use local files as ``LocalFiles.java`` describes. The operator's own class takes precedence.

    Spark uses local files before it loads ``spark.jars``, so the jar is on the driver's class path. The executors of a
    cluster start without it, and receive all settings with ``spark.hadoop.``: there, driver and executors keep Hadoop's
    class.
    """
    if not is_local(master) or _LOCAL_FILES.keys() & chosen.keys():
        return {}
    class_path = filter(None, [str(LOCAL_FILES_JAR), chosen.get("spark.driver.extraClassPath")])
    return {"spark.driver.extraClassPath": os.pathsep.join(class_path), **_LOCAL_FILES}
