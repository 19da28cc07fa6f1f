"""The Dockerfile's build stage, executed step by step without a container engine; the installed command starts."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import linked_packages
import pytest
from dockerfile_stage import Build, stage, variables

from headrace import __version__
from headrace_connectors.lakehouse.spark_settings import LOCAL_FILES, PACKAGES
from headrace_dev.jars import cache_folder

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The build stage after its last step, with the commands of the base image: ``python``, ``pip`` and Java."""
    root = tmp_path_factory.mktemp("image")
    commands = root / "bin"
    commands.mkdir()
    for name, command in {"python": [sys.executable], "pip": [sys.executable, linked_packages.__file__]}.items():
        script = commands / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        script.chmod(0o755)
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
    build.execute(stage(TEXT, "build"))
    return build


def test_the_jars_are_those_of_the_service(build: Build) -> None:
    """The folder that the last stage copies contains the bundles of the table formats."""
    names = sorted("-".join(package.split(":")[1:]) + ".jar" for package in (*PACKAGES, LOCAL_FILES))
    assert sorted(path.name for path in Path(build.here("/opt/jars")).iterdir()) == names


def test_the_installed_command_starts(build: Build) -> None:
    """The command runs with the variables of the last stage and only the packages of the build stage."""
    image = {name: build.here(value) for name, value in variables(stage(TEXT)).items()}
    image["PATH"] = image["PATH"].replace("$PATH", os.defpath)
    assert build.run("headrace --version", **image).startswith(f"headrace {__version__}")
    assert "worker.properties" in build.run("headrace connect-standalone --help", **image)
    assert build.run("command -v headrace", **image).strip() == build.here("/opt/venv/bin/headrace")
