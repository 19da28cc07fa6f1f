"""``python -m headrace_dev.sbom SITE_PACKAGES JARS JAVA``: what the image contains, as CycloneDX 1.6 JSON on stdout.

Python packages come from their installed metadata, jars from Maven's files in them, else from their names. The packages
of Debian are not listed: scanners read them from the image itself.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from headrace_dev.jar_licenses import coordinates, license_of_jar
from headrace_dev.licenses import license_of
from headrace_dev.versions import BUNDLES

_OURS = "headrace"
_GROUPS = {
    "RoaringBitmap": "org.roaringbitmap",
    "algebra_2.13": "org.typelevel",
    "arpack_combined_all": "net.sourceforge.f2j",
    "breeze-macros_2.13": "org.scalanlp",
    "breeze_2.13": "org.scalanlp",
    "cats-kernel_2.13": "org.typelevel",
    "chill-java": "com.twitter",
    "chill_2.13": "com.twitter",
    "derby": "org.apache.derby",
    "derbyshared": "org.apache.derby",
    "derbytools": "org.apache.derby",
    "hadoop-client-runtime": "org.apache.hadoop",
    "ivy": "org.apache.ivy",
    "jackson-module-scala_2.13": "com.fasterxml.jackson.module",
    "jdo-api": "javax.jdo",
    "json4s-ast_2.13": "org.json4s",
    "json4s-core_2.13": "org.json4s",
    "json4s-jackson-core_2.13": "org.json4s",
    "json4s-jackson_2.13": "org.json4s",
    "json4s-scalap_2.13": "org.json4s",
    "jsr305": "com.google.code.findbugs",
    "jta": "javax.transaction",
    "libfb303": "org.apache.thrift",
    "libthrift": "org.apache.thrift",
    "lz4-java": "org.lz4",
    "objenesis": "org.objenesis",
    "oro": "oro",
    "rocksdbjni": "org.rocksdb",
    "scala-compiler": "org.scala-lang",
    "scala-library": "org.scala-lang",
    "scala-parallel-collections_2.13": "org.scala-lang.modules",
    "scala-parser-combinators_2.13": "org.scala-lang.modules",
    "scala-reflect": "org.scala-lang",
    "scala-xml_2.13": "org.scala-lang.modules",
    "snappy-java": "org.xerial.snappy",
    "spire-macros_2.13": "org.typelevel",
    "spire-platform_2.13": "org.typelevel",
    "spire-util_2.13": "org.typelevel",
    "spire_2.13": "org.typelevel",
    "stax-api": "stax",
    "tink": "com.google.crypto.tink",
    "transaction-api": "javax.transaction",
    "xz": "org.tukaani",
    "zstd-jni": "com.github.luben",
}
"""The groups of those of Spark's jars that contain no file of Maven; scanners look for advisories by group and name."""

_PINNED = {
    f"{each.name}-{each.revision}.jar": (each.organisation, each.name, each.revision)
    for bundle in BUNDLES.values()
    for each in bundle
}
"""Group, name and version of the jars that ``versions.py`` names."""
_FILE = re.compile(r"(?P<name>.+?)-(?P<version>\d[^/]*)\.jar")


def bill_of_materials(packages: Path, jars: Path, java: Path) -> Bom:
    """Return the packages of a ``site-packages`` folder, Spark's jars in it, those of ``jars``, and Java's runtime."""
    bom, root = Bom(), Component(name=_OURS)
    for package in sorted(distributions(path=[str(packages)]), key=lambda each: each.name.lower()):
        component = _package(package)
        if package.name == _OURS:
            root = bom.metadata.component = component
        else:
            bom.components.add(component)
    for jar in sorted({*(packages / "pyspark" / "jars").glob("*.jar"), *jars.glob("*.jar")}):
        bom.components.add(_jar(jar))
    bom.components.add(_java(java))
    bom.register_dependency(root, bom.components)
    return bom


def as_json(bom: Bom) -> str:
    """Return the document of CycloneDX 1.6."""
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def _package(package: Distribution) -> Component:
    """Return a Python package with the license that its metadata state."""
    stated = license_of(package.metadata)
    name = re.sub(r"[-_.]+", "-", package.name).lower()
    purl = PackageURL("pypi", None, name, package.version)
    return Component(
        name=name,
        version=package.version,
        type=ComponentType.APPLICATION if name == _OURS else ComponentType.LIBRARY,
        bom_ref=str(purl),
        purl=purl,
        licenses=[LicenseFactory().make_from_string(stated)] if stated else [],
    )


def _jar(jar: Path) -> Component:
    """Return a jar with its checksum; without a group if only the file's name says what it is."""
    content = jar.read_bytes()
    with zipfile.ZipFile(jar) as archive:
        found = _coordinates(jar.name, archive)
        stated = license_of_jar(archive, jar.name)
    return Component(
        group=found.namespace,
        name=found.name,
        version=found.version,
        bom_ref=str(found),
        purl=found,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())],
        licenses=[LicenseFactory().make_from_string(stated)] if stated else [],
    )


def _coordinates(file: str, archive: zipfile.ZipFile) -> PackageURL:
    """Return what the jar is."""
    if (module := coordinates(archive, file)) is not None:
        classifier = {"classifier": module.classifier} if module.classifier else None
        return PackageURL("maven", module.group, module.name, module.version, classifier)
    if file in _PINNED:
        return PackageURL("maven", *_PINNED[file])
    match = _FILE.fullmatch(file)
    if match is None:
        return PackageURL("generic", None, file)
    group = _GROUPS.get(match["name"])
    return PackageURL("maven" if group else "generic", group, match["name"], match["version"])


def _java(home: Path) -> Component:
    """Return the runtime, from its file ``release``."""
    release = dict(_assignments((home / "release").read_text(encoding="utf-8")))
    version = release["JAVA_VERSION"]
    return Component(name="openjdk", version=version, type=ComponentType.PLATFORM, bom_ref=f"openjdk@{version}")


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, _, value = line.partition("=")
        yield key, value.strip('"')


def main(arguments: list[str]) -> None:
    """Print the document for the three folders."""
    packages, jars, java = map(Path, arguments)
    print(as_json(bill_of_materials(packages, jars, java)))


if __name__ == "__main__":
    main(sys.argv[1:])
