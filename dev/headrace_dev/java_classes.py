"""``python -m headrace_dev.java_classes``: compile the classes in Java, and write their jars into the package.

Users have no compiler, so the jars are part of the repository; a test compares them with their sources.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR, ICEBERG_JAR, LOCAL_FILES_JAR
from headrace_dev import jars
from headrace_dev.java import java

SOURCES: Mapping[Path, Sequence[Path]] = {
    jar: [jar.with_name(source) for source in sources]
    for jar, sources in {
        LOCAL_FILES_JAR: ["LocalFiles.java"],
        DELTA_S3_JAR: ["ConditionalS3LogStore.java"],
        ICEBERG_JAR: ["DirectTable.java", "IcebergTable.java"],
    }.items()
}
"""The sources of each jar."""


def build(sources: Sequence[Path]) -> bytes:
    """Return the jar, the same bytes for the same sources. Raises CalledProcessError with the compiler's messages."""
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    libraries = [
        *Path(pyspark.origin).parent.glob("jars/hadoop-client-api-*.jar"),
        *Path(pyspark.origin).parent.glob("jars/jackson-*.jar"),
        *Path(pyspark.origin).parent.glob("jars/spark-sql*.jar"),
        *jars.folder("lakehouse").glob("iceberg-spark-runtime-*.jar"),
        *jars.folder("lakehouse").glob("delta-storage-*.jar"),
        *jars.folder("lakehouse-delta-aws").glob("hadoop-aws-*.jar"),
        *([] if sources == SOURCES[LOCAL_FILES_JAR] else [LOCAL_FILES_JAR]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        class_path = ":".join(map(str, libraries))
        compiler = [str(Path(java()).with_name("javac")), "--release", "17", "-g:none"]
        subprocess.run([*compiler, "-cp", class_path, "-d", folder, *map(str, sources)], check=True)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(Path(folder).rglob("*.class")):
                entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # of 1980, not of now
                archive.writestr(entry, file.read_bytes())
    return content.getvalue()


if __name__ == "__main__":
    for written, sources_of_jar in SOURCES.items():
        written.write_bytes(build(sources_of_jar))
        sys.stdout.write(f"{written}\n")
