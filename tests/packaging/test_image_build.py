"""The Dockerfile's build stage, executed step by step without a container engine; the installed command starts."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from support.repository import linked_packages
from support.repository.dockerfile_stage import Build, stage, variables

from headrace import __version__
from headrace_connectors.lakehouse.spark_jars import PACKAGES
from headrace_dev.jars import cache_folder
from headrace_dev.java import java

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()
*STEPS, ARCHIVE = stage(TEXT, "build")


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The build stage without its last step, with the commands of the base image: ``python``, ``pip`` and Java.

    The last step takes a minute. It archives the classes of Spark.
    """
    assert "class_archive" in ARCHIVE[1]
    root = tmp_path_factory.mktemp("image")
    commands = root / "bin"
    commands.mkdir()
    for name, command in {"python": [sys.executable], "pip": [sys.executable, linked_packages.__file__]}.items():
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        script.chmod(0o755)
    (root / "opt").mkdir()
    (root / "opt" / "java").symlink_to(Path(java()).resolve().parents[1])  # of another stage
    build = Build(
        ROOT,
        root,
        {
            "PATH": os.pathsep.join([str(commands), str(Path(shutil.which("java") or "/").parent), os.defpath]),
            "HOME": str(Path.home()),  # pip's cache; the stage's PIP_NO_CACHE_DIR is not set here
            "HEADRACE_CACHE": str(cache_folder()),
            "PIP_NO_COMPILE": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        },
    )
    build.execute(STEPS)
    return build


def test_the_jars_are_those_of_the_service(build: Build) -> None:
    """The folder that the last stage copies contains the bundles of the table formats."""
    names = sorted("-".join(package.split(":")[1:]) + ".jar" for package in PACKAGES)
    assert sorted(path.name for path in Path(build.here("/opt/headrace/jars")).iterdir()) == names


@pytest.mark.long
def test_spark_starts_from_an_archive(build: Build) -> None:
    """It is valid for the class path and the Java runtime of the last stage.

    ``make test`` writes one for its own workers in the same way.
    """
    build.execute([ARCHIVE])
    folder = build.here("/opt/venv/headrace-classes")
    build.run(f"/opt/java/bin/java -Xshare:on -XX:SharedArchiveFile={folder}/classes.jsa @{folder}/class-path -version")
    jars = (Path(folder) / "class-path").read_text()
    assert build.here("/opt/headrace/jars/iceberg-spark-runtime") in jars
    assert "/pyspark/jars/spark-core_" in jars


def test_the_list_of_contents_is_complete(build: Build) -> None:
    """It names each locked package that is installed, each jar with its checksum, and the Java runtime."""
    content = Path(build.here("/opt/headrace.cdx.json")).read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(content) is None
    document = json.loads(content)
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/headrace@{__version__}"
    components = {each["purl"]: each for each in document["components"] if "purl" in each}
    for name in ("faust-streaming", "pyspark", "psycopg", "oracledb"):
        assert components[f"pkg:pypi/{name}@{version(name)}"]["licenses"]
    for jar in (
        *Path(build.here("/opt/headrace/jars")).glob("*.jar"),
        *Path(pyspark.__file__).parent.glob("jars/*.jar"),
    ):
        digest = {"alg": "SHA-256", "content": hashlib.sha256(jar.read_bytes()).hexdigest()}
        found = [purl for purl, each in components.items() if digest in each.get("hashes", [])]
        assert found, jar.name
        assert all(purl.startswith("pkg:maven/") for purl in found), f"{found}: add the group to headrace_dev/sbom.py"
        assert all(components[purl].get("licenses") for purl in found), jar.name
    [runtime] = [each for each in document["components"] if each["name"] == "openjdk"]
    assert runtime["version"].split(".")[0] >= "17"


def test_the_installed_command_starts(build: Build) -> None:
    """The command runs with the variables of the last stage and only the packages of the build stage."""
    image = {name: build.here(value) for name, value in variables(stage(TEXT)).items()}
    image["PATH"] = image["PATH"].replace("$PATH", os.defpath)
    assert build.run("headrace --version", **image).startswith(f"headrace {__version__}")
    assert "worker.properties" in build.run("headrace connect-standalone --help", **image)
    assert build.run("command -v headrace", **image).strip() == build.here("/opt/venv/bin/headrace")
