"""Options of the engine that writes tables (Spark's JVM), as the lakehouse takes them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.connect.config_def import Importance, Type, at_least
from headrace.core.connect.typed_options import option, seconds

_LOW = Importance.LOW


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Deadlines of Spark in seconds, the environment of its JVM, whom it trusts, and jars that are added."""

    statement_timeout: float = option(
        "statement.timeout.ms",
        Type.LONG,
        300_000,
        "Time without progress (a finished task of Spark) after which a statement of a table is cancelled and the "
        "table's batch is written again. If the cancelled statement does not end either, Spark is started again. "
        "Raise it if one task of a merge or of a compaction takes longer.",
        _LOW,
        at_least(1000),
        read=seconds,
    )
    hang_timeout: float = option(
        "jvm.hang.timeout.ms",
        Type.LONG,
        20_000,
        "Time after which a JVM of Spark that does not answer is killed and started again. Raise it for heaps whose "
        "garbage collection takes longer.",
        _LOW,
        at_least(1000),
        read=seconds,
    )
    maintenance_bytes: int = option(
        "maintenance.bytes.per.hour",
        Type.LONG,
        107_374_182_400,
        "Bytes that the maintenance of all tables of this worker may write in an hour. 0 is no limit. A table's "
        "maintenance writes at most three times as much as its merges, whatever this allows.",
        _LOW,
        at_least(0),
    )
    index_bytes: int = option(
        "write.index.memory.bytes",
        Type.LONG,
        134_217_728,
        "Memory for indexes of the row keys, by which small batches are written to Iceberg tables (version 3, without "
        "sort order) without a job of Spark. A row takes 16 bytes if its key is one integer, otherwise "
        "about 30 bytes and its key. If the memory is not sufficient, the index of the least recently written table is "
        "dropped; a table that exceeds it alone is written by MERGE. 0 writes all tables by MERGE.",
        _LOW,
        at_least(0),
    )
    environment: tuple[str, ...] = option(
        "jvm.environment",
        Type.LIST,
        (),
        "Names of environment variables that Spark's JVM receives in addition to those it needs (PATH, JAVA_*, "
        "SPARK_*, HADOOP_*, AWS_*, AZURE_* and others, without names that contain SECRET, PASSWORD, TOKEN, CREDENTIAL "
        "or ACCESS_KEY). Other users of the machine with the worker's rights can read them.",
        _LOW,
    )
    truststore_location: str | None = option(
        "jvm.ssl.truststore.location",
        Type.STRING,
        None,
        "File with the certificates that Spark's JVM and its executors trust, instead of Java's: those of an object "
        "store, a catalog or an OAuth server whose certificate is from a private certificate authority. PEM, PKCS12 or "
        "JKS.",
    )
    truststore_password: str | None = option(
        "jvm.ssl.truststore.password", Type.PASSWORD, None, "Password of the file, if it needs one."
    )
    extra_jars: tuple[str, ...] = option(
        "headrace.jars.extra",
        Type.LIST,
        (),
        "Jars for Spark in addition to those of the table formats, which spark.jars would replace: for example a "
        "bundle for a cloud. Files, folders (all files in them that end in .jar) or URLs. A file may be followed by "
        "#sha256= and its checksum, and a folder may contain a file SHA256SUMS: a jar that differs is refused.",
        _LOW,
    )
