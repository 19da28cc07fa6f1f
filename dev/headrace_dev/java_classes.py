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
from collections.abc import Mapping
from pathlib import Path

from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR, DIRECT_JAR, LOCAL_FILES_JAR
from headrace_dev import jars
from headrace_dev.java import java

SOURCES: Mapping[Path, Path] = {
    LOCAL_FILES_JAR: LOCAL_FILES_JAR.with_name("LocalFiles.java"),
    DELTA_S3_JAR: DELTA_S3_JAR.with_name("ConditionalS3LogStore.java"),
    DIRECT_JAR: DIRECT_JAR.with_name("DirectTable.java"),
}
"""The source of each jar."""


def build(source: Path) -> bytes:
    """Return the jar, the same bytes for the same source. Raises CalledProcessError with the compiler's messages."""
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    libraries = [
        *Path(pyspark.origin).parent.glob("jars/hadoop-client-api-*.jar"),
        *Path(pyspark.origin).parent.glob("jars/jackson-*.jar"),
        *jars.folder("lakehouse").glob("iceberg-spark-runtime-*.jar"),
        *jars.folder("lakehouse").glob("delta-storage-*.jar"),
        *jars.folder("lakehouse-delta-aws").glob("hadoop-aws-*.jar"),
        *([] if source.stem == "LocalFiles" else [LOCAL_FILES_JAR]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        class_path = ":".join(map(str, libraries))
        compiler = [str(Path(java()).with_name("javac")), "--release", "17", "-g:none"]
        subprocess.run([*compiler, "-cp", class_path, "-d", folder, str(source)], check=True)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as jar:
            for file in sorted(Path(folder).rglob("*.class")):
                entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # of 1980, not of now
                jar.writestr(entry, file.read_bytes())
    return content.getvalue()


if __name__ == "__main__":
    for written, source in SOURCES.items():
        written.write_bytes(build(source))
        sys.stdout.write(f"{written}\n")
