"""The jars of Spark's session: the table formats, and those that the operator adds."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from headrace.core.model.errors import ConfigError

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
)
"""The formats for the Spark that ``pyproject.toml`` pins; their POMs name other artifacts that are not needed."""

LOCAL_FILES_JAR = Path(__file__).parent / "java" / "headrace-local-files.jar"
"""The class for files of this machine. All jars are built by ``python -m headrace_dev.java_classes``."""

DELTA_S3_JAR = LOCAL_FILES_JAR.with_name("headrace-delta-s3.jar")
"""The class that creates entries of Delta's log on S3."""

ICEBERG_JAR = LOCAL_FILES_JAR.with_name("headrace-iceberg.jar")
"""The classes that use Iceberg tables without a Spark job."""

EXTRA = "headrace.jars.extra"
FOLDER = "HEADRACE_JARS"
SUMS = "SHA256SUMS"
"""A file of a folder of jars with a line of ``sha256sum`` for each of them."""

_PINNED = re.compile(r"(?P<jar>.+)#sha256=(?P<digest>[0-9a-f]{64})")


def jar_settings(spark: Mapping[str, str], jars: Sequence[Path] | None, extra: Sequence[str]) -> dict[str, str]:
    """Return ``spark.jars`` and ``spark.jars.packages``.

    The formats come from the worker's ``spark.*`` settings, else from ``jars``, else from the folder in
    ``HEADRACE_JARS``, else from Maven Central through Ivy. The jars of ``extra`` are added in each case. Raises
    ConfigError for a jar that is missing, or not as pinned.
    """
    added = [jar for entry in extra for jar in _jars_of_entry(entry)]
    formats = {name: spark[name] for name in ("spark.jars", "spark.jars.packages") if name in spark}
    if not formats:
        if jars is None:
            jars = _jars_in(Path(os.environ.get(FOLDER, str(Path(__file__).parent / "jars"))), FOLDER)
        formats = {"spark.jars": ",".join(map(str, jars))} if jars else {"spark.jars.packages": ",".join(PACKAGES)}
    all_jars = [*filter(None, [formats.get("spark.jars")]), *added]
    return {**formats, "spark.jars": ",".join(all_jars)} if all_jars else formats


def _jars_of_entry(entry: str) -> list[str]:
    """Return the jars of an entry: a file, a folder, or a URL, which Spark loads. Raises ConfigError."""
    pinned = _PINNED.fullmatch(entry)
    location = pinned["jar"] if pinned else entry
    if "#" in location:
        raise ConfigError(f"{EXTRA}: {entry}: after # write sha256= and 64 hexadecimal digits in lower case", EXTRA)
    url = urlsplit(location)
    if url.scheme not in ("", "file", "local"):
        if pinned:
            raise ConfigError(f"{EXTRA}: {entry}: only files of this machine have a checksum; download the jar", EXTRA)
        return [location]
    path = Path(url.path)
    if path.is_dir():
        jars = _jars_in(path, EXTRA)
        if not jars:
            raise ConfigError(f"{EXTRA}: {path} has no file that ends in .jar; correct the folder", EXTRA)
        return list(map(str, jars))
    if not path.is_file():
        raise ConfigError(f"{EXTRA}: {path} does not exist; correct it, or mount the jar there", EXTRA)
    if pinned:
        _check(path, pinned["digest"], EXTRA)
    return [location]


def _jars_in(folder: Path, origin: str) -> list[Path]:
    """Return the jars of a folder. If it has a file of checksums, that lists each of them. Raises ConfigError."""
    jars = sorted(folder.glob("*.jar"))
    sums = folder / SUMS
    if sums.is_file():
        lines = (line.split(maxsplit=1) for line in sums.read_text().splitlines() if line.strip())
        digests = {name.lstrip("*").removeprefix("./"): digest for digest, name in lines}
        for jar in jars:
            if jar.name not in digests:
                raise ConfigError(f"{origin}: {jar} is not listed in {sums}; add its checksum, or remove it", EXTRA)
            _check(jar, digests[jar.name], origin)
    return jars


def _check(jar: Path, digest: str, origin: str) -> None:
    with jar.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != digest:
        raise ConfigError(
            f"{origin}: {jar} is not the pinned file: its SHA-256 is {actual}, not {digest}; download it again, or "
            "correct the checksum",
            EXTRA,
        )
