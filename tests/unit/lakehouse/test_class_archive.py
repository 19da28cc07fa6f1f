"""The archive of Spark's classes: which workers use it, and that Java accepts the one of this environment."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from headrace_connectors.lakehouse import class_archive
from headrace_connectors.lakehouse.spark_settings import settings
from headrace_dev.jars import resolve
from headrace_dev.java import java


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive for the jars ``/iceberg.jar`` and ``/more.jar``."""
    folder = tmp_path / "classes"
    folder.mkdir()
    monkeypatch.setattr(class_archive, "FOLDER", folder)
    (folder / "classes.jsa").touch()
    (folder / "class-path").write_text(class_archive.class_path(["/more.jar", "/iceberg.jar"]))
    return folder


def test_a_worker_with_the_same_jars_uses_the_archive(archive: Path) -> None:
    """The order of the jars in the settings does not matter: the class path has one of its own."""
    assert class_archive.archive_options({}, ["/iceberg.jar", "/more.jar"])[-2:] == [
        f"-XX:SharedArchiveFile={archive}/classes.jsa",
        f"@{archive}/class-path",
    ]


def test_jars_with_classes_of_the_formats_are_on_the_class_path(archive: Path) -> None:
    """The classes of a format's jar and of Headrace's see each other; Spark's jars follow in alphabetical order."""
    option, jars = (archive / "class-path").read_text().splitlines()
    assert option == "-cp"
    names = [Path(jar).name for jar in jars.strip('"').split(":")]
    assert names[:4] == ["headrace-local-files.jar", "headrace-delta-s3.jar", "iceberg.jar", "more.jar"]
    assert names[4:] == sorted(names[4:])
    assert any(name.startswith("spark-core_") for name in names)
    assert not any(name.startswith("spark-mllib_") for name in names)  # it doubles the time to make a session


def test_a_worker_with_other_jars_does_without_it(archive: Path) -> None:
    """A driver of a database in a jar of its own is found by classes of that jar's loader only."""
    assert class_archive.archive_options({}, ["/iceberg.jar"]) == []
    assert class_archive.archive_options({}, ["/iceberg.jar", "/more.jar", "/extra.jar"]) == []
    assert class_archive.archive_options({"spark.driver.extraClassPath": "/x"}, ["/iceberg.jar", "/more.jar"]) == []


@pytest.mark.parametrize("name", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_folders_of_hadoops_configuration_stay_on_the_class_path(
    archive: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's launcher adds them; the class path of the archive has none."""
    monkeypatch.setenv(name, "/etc/hadoop")
    assert class_archive.archive_options({}, ["/iceberg.jar", "/more.jar"]) == []


def test_without_an_archive_there_are_no_options(archive: Path) -> None:
    """Java would then use not even its own archive."""
    (archive / "classes.jsa").unlink()
    assert class_archive.archive_options({}, ["/iceberg.jar", "/more.jar"]) == []


def test_only_the_driver_of_a_local_master_uses_it(archive: Path) -> None:
    """Executors have a class path of their own, and the driver of a cluster the same."""
    jars = [Path("/iceberg.jar"), Path("/more.jar")]
    local = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": "-Xss4m"}
    own_jars = settings("/w", local, jars)["spark.jars"]
    (archive / "class-path").write_text(class_archive.class_path(own_jars.split(",")))
    assert "-XX:SharedArchiveFile=" in settings("/w", local, jars)["spark.driver.extraJavaOptions"]
    assert "spark.jars" not in settings("/w", local, jars)  # they are on the class path
    on_yarn = settings("/w", {"spark.master": "yarn"}, jars)
    assert "SharedArchive" not in on_yarn["spark.driver.extraJavaOptions"]
    assert on_yarn["spark.jars"] == own_jars


def test_a_path_may_contain_spaces_and_quotes(tmp_path: Path) -> None:
    """Java reads the class path as a quoted argument, and Spark's launcher splits options as a shell does."""
    jar = tmp_path / 'a "b" c' / "iceberg.jar"
    options = tmp_path / "class-path"
    options.write_text(class_archive.class_path([str(jar)]))
    shown = subprocess.run(
        [java(), f"@{options}", "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True
    )
    assert str(jar) in shown.stderr


def test_java_maps_the_archive_of_this_environment_at_the_address_of_its_pages() -> None:
    """Anywhere else, Java writes each page of the archive at each start."""
    log = log_of_java("")
    assert "Mapped dynamic region" in log
    assert "alternative address" not in log


def test_an_operator_can_have_the_archive_at_a_random_address() -> None:
    """The operator's options follow the archive's; Java uses the last one of a name."""
    assert "alternative address" in log_of_java("-XX:ArchiveRelocationMode=1")


def log_of_java(wanted: str) -> str:
    """Start Java with a worker's options, of which ``wanted`` are the operator's, and return its log of the archive.

    Java ends with an error if it must share classes (``-Xshare:on``) and the archive is not for it.
    """
    spark = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": wanted}
    options = shlex.split(settings("/w", spark, resolve("lakehouse"))["spark.driver.extraJavaOptions"])
    if not any(option.startswith("-XX:SharedArchiveFile=") for option in options):
        pytest.skip("no archive of Spark's classes; 'make test' writes one")
    command = [java(), *options, "-Xshare:on", "-Xlog:cds", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout
