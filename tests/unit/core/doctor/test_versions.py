"""Releases that the tests do not run with are an information; those that they run with are silent."""

from __future__ import annotations

import tomllib

import pytest

from headrace.core.doctor.findings import Severity
from headrace.core.doctor.versions import (
    DELTA,
    ICEBERG,
    JAVA,
    KAFKA,
    POSTGRESQL,
    PYTHON,
    SPARK,
    TESTED,
    Software,
    findings,
    kafka_release,
)
from headrace_connectors.lakehouse.spark_jars import PACKAGES
from headrace_dev import versions
from headrace_dev.packages import ROOT


@pytest.mark.parametrize(
    ("name", "version"),
    [(PYTHON, "3.11.9"), (JAVA, "17.0.15"), (JAVA, "17"), (POSTGRESQL, "16.4"), (KAFKA, "4.3"), (SPARK, "4.1.4")],
)
def test_tested_releases_are_silent(name: str, version: str) -> None:
    assert list(findings([Software(name, version)])) == []


@pytest.mark.parametrize(
    ("name", "version"),
    [(PYTHON, "3.12.1"), (JAVA, "170.1"), (JAVA, "21.0.1"), (POSTGRESQL, "18.0"), (KAFKA, "4.2"), (KAFKA, None)],
)
def test_other_releases_are_an_information(name: str, version: str | None) -> None:
    [finding] = findings([Software(name, version)])
    assert (finding.rule, finding.severity, finding.subject) == ("version-untested", Severity.INFORMATION, name)
    assert finding.evidence.startswith(f"version {version or 'unknown'}; tested with {TESTED[name][0]}")


@pytest.mark.parametrize(
    ("level", "release"), [(None, None), (7, None), (8, "3.4"), (29, "4.2"), (30, "4.3"), (31, "4.4"), (32, None)]
)
def test_the_release_of_a_broker(level: int | None, release: str | None) -> None:
    assert kafka_release(level) == release


def test_the_declarations_agree() -> None:
    """What the tests run with is declared where it is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [f"pyspark=={release}" for release in TESTED[SPARK]] == [
        dependency for dependency in project["dependencies"] if dependency.startswith("pyspark")
    ]
    iceberg, delta, _ = (package.rpartition(":")[2] for package in PACKAGES)
    assert (TESTED[ICEBERG], TESTED[DELTA]) == ((iceberg,), (delta,))
    assert TESTED[JAVA] == (str(versions.JAVA),)
    assert versions.KAFKA.startswith(f"{TESTED[KAFKA][0]}.")
    assert versions.POSTGRESQL in TESTED[POSTGRESQL]
