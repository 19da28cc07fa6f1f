"""What a jar is, and its license: what the jar says of itself, else what its project says."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from xml.etree import ElementTree as ET

UNSTATED: Mapping[str, str] = {
    **dict.fromkeys(("delta-spark_4.1_2.13", "delta-storage"), "Apache-2.0"),
    **dict.fromkeys(("iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle"), "Apache-2.0"),
    **dict.fromkeys(("RoaringBitmap", "chill-java", "chill_2.13", "derbyshared", "jsr305"), "Apache-2.0"),
    **dict.fromkeys(("breeze_2.13", "breeze-macros_2.13", "libfb303", "lz4-java", "tink"), "Apache-2.0"),
    **dict.fromkeys(
        (f"json4s-{part}_2.13" for part in ("ast", "core", "jackson-core", "jackson", "scalap")), "Apache-2.0"
    ),
    **dict.fromkeys(("kubernetes-client", "kubernetes-client-api", "kubernetes-httpclient-vertx"), "Apache-2.0"),
    **dict.fromkeys(("rocksdbjni", "scala-parallel-collections_2.13", "stax-api"), "Apache-2.0"),
    **dict.fromkeys(("algebra_2.13", "cats-kernel_2.13", "spire_2.13", "spire-macros_2.13"), "MIT"),
    **dict.fromkeys(("spire-platform_2.13", "spire-util_2.13"), "MIT"),
    **dict.fromkeys(("antlr-runtime", "arpack", "arpack_combined_all", "blas", "lapack"), "BSD-3-Clause"),
}
"""Licenses of jars that contain none, by artifact, from their projects' pages."""

_NAMES = (
    (r"apache|\bASL\b", "Apache-2.0"),
    (r"\bMIT\b|opensource\.org/licenses?/mit|slf4j\.org", "MIT"),
    (r"CDDL|common development and distribution", "CDDL-1.1"),
    (r"\bEDL\b|edl-v10|eclipse distribution", "BSD-3-Clause"),
    (r"\bEPL\b|epl-?v?2|eclipse public", "EPL-2.0"),
    (r"(bsd|clause).{0,3}2|2-clause", "BSD-2-Clause"),
    (r"\bBSD\b|bsd|3-clause|antlr\.org/license|asm\.ow2\.org|go license|jaxen", "BSD-3-Clause"),
    (r"unicode-3", "Unicode-3.0"),
    (r"public domain|cc0", "CC0-1.0"),
)
"""Licenses by the names that jars use for them. BSD without a number is of two or three clauses, as in licenses.py."""

_PARENTS = ("org.apache", "com.fasterxml", "io.dropwizard", "io.netty", "org.eclipse.jetty", "io.vertx")
"""Organisations whose parent POMs have the Apache License; their modules do not repeat it."""
_MAVEN = "{http://maven.apache.org/POM/4.0.0}"
_PROPERTIES = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_LICENSE_FILE = re.compile(r"(META-INF/)?LICENSE(\.txt|\.md)?", re.IGNORECASE)
_HEAD = 400


class Coordinates(NamedTuple):
    """A module of Maven, and the folder of its files in the jar."""

    group: str
    name: str
    version: str
    classifier: str
    folder: str


def coordinates(archive: zipfile.ZipFile, file: str) -> Coordinates | None:
    """Return what the jar ``file`` is by Maven's files in it; None without. It may contain those of shaded modules."""
    for entry in filter(_PROPERTIES.fullmatch, archive.namelist()):
        lines = archive.read(entry).decode("utf-8", "replace").splitlines()
        pairs = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        stated = {key.strip(): value.strip() for key, value in pairs.items()}
        name, version = stated.get("artifactId", ""), stated.get("version", "")
        if match := re.fullmatch(rf"{re.escape(name)}-{re.escape(version)}(?:-(.+))?\.jar", file):
            folder = entry.rpartition("/")[0]
            return Coordinates(stated.get("groupId", ""), name, version, match[1] or "", folder)
    return None


def license_of_jar(archive: zipfile.ZipFile, file: str) -> str:
    """Return the SPDX expression of a jar; several licenses are alternatives, as in a POM. Empty if there is none.

    What is not recognised keeps its name.
    """
    names = next(filter(None, map(list, _statements(archive, file))), [])
    found = dict.fromkeys(_identifier(each) for each in names)
    return " OR ".join(found) or UNSTATED.get(re.sub(r"-\d[^/]*\.jar$", "", file), "")


def _statements(archive: zipfile.ZipFile, file: str) -> Iterator[Iterator[str]]:
    """Yield what the jar says in its POM, its manifest, its license file and its POM's parent, in this order."""
    module, entries = coordinates(archive, file), archive.namelist()
    pom = None
    if module is not None and f"{module.folder}/pom.xml" in entries:
        pom = ET.fromstring(archive.read(f"{module.folder}/pom.xml"))  # noqa: S314 - of a jar that is pinned
        yield (each.text or "" for each in pom.iterfind(f"{_MAVEN}licenses/{_MAVEN}license/{_MAVEN}name"))
    if "META-INF/MANIFEST.MF" in entries:
        manifest = re.sub(r"\r?\n ", "", archive.read("META-INF/MANIFEST.MF").decode("utf-8", "replace"))
        stated = re.findall(r"^Bundle-License: *(.+?)\s*$", manifest, re.MULTILINE)
        yield (each for line in stated for each in line.split(", "))
    heads = (archive.read(each)[:_HEAD].decode("utf-8", "replace") for each in filter(_LICENSE_FILE.fullmatch, entries))
    yield (" ".join(each.split()) for each in heads)
    parent = pom.findtext(f"{_MAVEN}parent/{_MAVEN}groupId", "") if pom is not None else ""
    yield ("Apache" for each in _PARENTS if parent.startswith(each))


def _identifier(name: str) -> str:
    return next((spdx for pattern, spdx in _NAMES if re.search(pattern, name, re.IGNORECASE)), name)
