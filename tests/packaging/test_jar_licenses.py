"""The licenses of the jars in the image."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

import pytest

from headrace_dev.jar_licenses import UNSTATED, coordinates, license_of_jar
from headrace_dev.licenses import findings_of_jars, licenses_of_jars

_FOLDER = "META-INF/maven/org.example/tool"
_PROPERTIES = "groupId=org.example\nartifactId=tool\nversion=1.2\n"


def jar(entries: Mapping[str, str]) -> zipfile.ZipFile:
    """A jar with these files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)
    return zipfile.ZipFile(content)


def pom(inside: str) -> Mapping[str, str]:
    """The files of Maven, with this in the POM."""
    project = f'<project xmlns="http://maven.apache.org/POM/4.0.0">{inside}</project>'
    return {f"{_FOLDER}/pom.properties": _PROPERTIES, f"{_FOLDER}/pom.xml": project}


def licenses(*names: str) -> str:
    """The element of a POM."""
    return f"<licenses>{''.join(f'<license><name>{name}</name></license>' for name in names)}</licenses>"


def test_every_jar_is_allowed() -> None:
    """Those of Spark, and those that the variants of the image add."""
    found = licenses_of_jars()
    assert len(found) > 250
    assert list(findings_of_jars(found)) == []


def test_no_entry_of_the_table_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the table, exactly its jars have no license."""
    names = set(UNSTATED)
    monkeypatch.setattr("headrace_dev.jar_licenses.UNSTATED", {})
    monkeypatch.setattr("headrace_dev.licenses.UNSTATED", {})
    found = [message.partition(":")[0] for message in findings_of_jars(licenses_of_jars())]
    assert len(found) == len(names)
    assert all(any(each == name or each.startswith(f"{name}-") for name in names) for each in found)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (pom(licenses("The MIT License (MIT)")), "MIT"),
        (pom(licenses("EPL 2.0", "GPL2 w/ CPE")), "EPL-2.0 OR GPL2 w/ CPE"),
        (
            {"META-INF/MANIFEST.MF": "Bundle-License: https://www.apache.org/lic\r\n enses/LICENSE-2.0\r\n"},
            "Apache-2.0",
        ),
        ({"META-INF/LICENSE": "  Apache License\n Version 2.0"}, "Apache-2.0"),
        (pom("<parent><groupId>org.apache.hadoop</groupId></parent>"), "Apache-2.0"),
        (pom("<parent><groupId>org.example</groupId></parent>"), ""),
        (pom(licenses("Sleepycat")) | {"META-INF/LICENSE": "Apache License"}, "Sleepycat"),
        ({}, ""),
    ],
    ids=["pom", "alternatives", "manifest", "file", "parent", "unknown-parent", "pom-first", "nothing"],
)
def test_a_jar_states_its_license_in_one_of_several_places(entries: Mapping[str, str], expected: str) -> None:
    """The POM comes first; a license that nobody knows keeps its name, and is refused."""
    assert license_of_jar(jar(entries), "tool-1.2.jar") == expected


def test_only_the_jars_own_pom_counts() -> None:
    """A jar may contain the files of modules that are shaded into it."""
    shaded = {
        name.replace("tool", "other"): text.replace("tool", "other") for name, text in pom(licenses("GPL")).items()
    }
    archive = jar(shaded)
    assert coordinates(archive, "tool-1.2.jar") is None
    assert license_of_jar(archive, "tool-1.2.jar") == ""
    own = coordinates(jar(pom("") | shaded), "tool-1.2-tests.jar")
    assert own is not None
    assert own[:4] == ("org.example", "tool", "1.2", "tests")


def test_a_jar_that_is_not_allowed_is_named() -> None:
    """With what to do."""
    [message] = findings_of_jars({"a-1.jar": "MIT", "b-2.jar": "AGPL-3.0-only", "c-3.jar": "EPL-2.0"})
    assert message.startswith(
        "b-2.jar: the license is not allowed: AGPL-3.0-only; if its project states an allowed one"
    )
