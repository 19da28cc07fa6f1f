"""Jars that the operator adds to those of the table formats, and their checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.config.engine import EngineSettings
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError
from headrace_connectors.lakehouse.lakehouse import SparkLakehouse
from headrace_connectors.lakehouse.spark_jars import ICEBERG_JAR, PACKAGES
from headrace_connectors.lakehouse.spark_settings import settings

CONTENT = b"a jar"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
FORMATS = [Path("/jars/iceberg.jar")]


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar in a folder of its own."""
    path = tmp_path / "extra" / "aws.jar"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def test_extra_jars_do_not_replace_the_formats(jar: Path) -> None:
    """They are added to the jars of the image, to those of spark.jars, and to what Ivy fetches."""
    extra = [str(jar)]
    assert settings("/w", {}, FORMATS, extra=extra)["spark.jars"] == f"/jars/iceberg.jar,{ICEBERG_JAR},{jar}"
    assert (
        settings("/w", {"spark.jars": "/mine.jar"}, FORMATS, extra=extra)["spark.jars"]
        == f"/mine.jar,{ICEBERG_JAR},{jar}"
    )
    fetched = settings("/w", {}, [], extra=extra)
    assert (fetched["spark.jars"], fetched["spark.jars.packages"]) == (f"{ICEBERG_JAR},{jar}", ",".join(PACKAGES))


def test_an_entry_is_a_file_a_folder_or_a_url(jar: Path) -> None:
    """The files of a folder are in the order of their names; Spark loads URLs."""
    (jar.parent / "abc.jar").touch()
    (jar.parent / "readme.txt").touch()
    chosen = settings("/w", {}, FORMATS, extra=[str(jar.parent), "s3a://jars/x.jar", f"file:{jar}"])
    assert chosen["spark.jars"].split(",")[2:] == [
        str(jar.parent / "abc.jar"),
        str(jar),
        "s3a://jars/x.jar",
        f"file:{jar}",
    ]


def test_a_pinned_jar_is_accepted(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a checksum behind the file, or by a file of the folder, also that of HEADRACE_JARS."""
    assert settings("/w", {}, FORMATS, extra=[f"{jar}#sha256={DIGEST}"])["spark.jars"].endswith(str(jar))
    (jar.parent / "SHA256SUMS").write_text(f"{DIGEST}  ./aws.jar\n")
    assert settings("/w", {}, FORMATS, extra=[str(jar.parent)])["spark.jars"].endswith(str(jar))
    monkeypatch.setenv("HEADRACE_JARS", str(jar.parent))
    assert settings("/w", {})["spark.jars"] == f"{jar},{ICEBERG_JAR}"


def test_another_file_is_refused(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the file and both checksums; a jar that is not listed is refused as well."""
    with pytest.raises(ConfigError, match=rf"aws\.jar is not the pinned file: its SHA-256 is {DIGEST}, not 0+;"):
        settings("/w", {}, FORMATS, extra=[f"{jar}#sha256={'0' * 64}"])
    (jar.parent / "SHA256SUMS").write_text(f"{'0' * 64}  aws.jar\n")
    monkeypatch.setenv("HEADRACE_JARS", str(jar.parent))
    with pytest.raises(ConfigError, match=r"HEADRACE_JARS: .*aws\.jar is not the pinned file"):
        settings("/w", {})
    (jar.parent / "SHA256SUMS").write_text("")
    with pytest.raises(ConfigError, match=r"aws\.jar is not listed in .*SHA256SUMS"):
        settings("/w", {}, FORMATS, extra=[str(jar.parent)])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("/nowhere/x.jar", "does not exist"),
        ("/x.jar#md5=1", "after # write sha256="),
        ("/x.jar#sha256=12", "64 hexadecimal digits"),
        (f"https://repo/x.jar#sha256={DIGEST}", "only files of this machine"),
    ],
)
def test_a_wrong_entry_is_refused_before_spark_starts(entry: str, message: str) -> None:
    """Spark would log a warning and fail later for lack of a class."""
    limits = parse_options(EngineSettings, {"headrace.jars.extra": entry})
    with pytest.raises(ConfigError, match=message) as refused:
        SparkLakehouse("/w", {}, FORMATS, limits=limits)
    assert refused.value.key == "headrace.jars.extra"


def test_a_folder_without_jars_is_refused(tmp_path: Path) -> None:
    """It is a wrong path, or a volume that is not mounted."""
    with pytest.raises(ConfigError, match="has no file that ends in"):
        settings("/w", {}, FORMATS, extra=[str(tmp_path)])
