"""``python -m headrace_dev.delta_log_store``: compile the only class in Java, and write its jar into the package.

Users have no compiler, so the jar is part of the repository; a test compares it with its source.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR
from headrace_dev import jars
from headrace_dev.java import java

SOURCE = DELTA_S3_JAR.with_name("ConditionalS3LogStore.java")


def build() -> bytes:
    """Return the jar, the same bytes for the same source. Raises CalledProcessError with the compiler's messages."""
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    libraries = [
        *Path(pyspark.origin).parent.glob("jars/hadoop-client-api-*.jar"),
        *jars.folder("lakehouse").glob("delta-storage-*.jar"),
        *jars.folder("lakehouse-delta-aws").glob("hadoop-aws-*.jar"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        class_path = ":".join(map(str, libraries))
        compiler = [str(Path(java()).with_name("javac")), "--release", "17", "-g:none"]
        subprocess.run([*compiler, "-cp", class_path, "-d", folder, str(SOURCE)], check=True)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as jar:
            for file in sorted(Path(folder).rglob("*.class")):
                entry = zipfile.ZipInfo(str(file.relative_to(folder)))  # of 1980, not of now
                jar.writestr(entry, file.read_bytes())
    return content.getvalue()


if __name__ == "__main__":
    DELTA_S3_JAR.write_bytes(build())
    sys.stdout.write(f"{DELTA_S3_JAR}\n")
