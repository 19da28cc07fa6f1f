"""Check the licenses of what the image contains: ``python -m headrace_dev.licenses``.

The packages are those of ``requirements/runtime.txt``, with the licenses in the metadata of the installed packages. The
jars are those of PySpark and of the image's variants (``jar_licenses.py``). Debian's packages are not checked.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from headrace_dev.jar_licenses import UNSTATED, license_of_jar
from headrace_dev.versions import BUNDLES, IMAGE_VARIANTS

LOCK = Path(__file__).resolve().parents[2] / "requirements" / "runtime.txt"

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "UPL-1.0",
        "Zlib",
    }
)
"""SPDX identifiers of licenses that permit distribution in the image with no condition but their notice."""

ALLOWED_OF_JARS = ALLOWED | {"CDDL-1.1", "EPL-2.0", "Unicode-3.0"}
"""Also licenses whose conditions are for changed files: the image contains jars as their projects released them."""

EXCEPTIONS: Mapping[str, tuple[str, str]] = {
    "psycopg": ("LGPL-3.0-only", "an unmodified library, imported at run time; its user can replace it"),
    "psycopg-binary": ("LGPL-3.0-only", "an unmodified library, imported at run time; its user can replace it"),
    "psycopg-pool": ("LGPL-3.0-only", "an unmodified library, imported at run time; its user can replace it"),
    "venusian": ("Repoze Public License", "the BSD license with a clause on trademarks; it has no SPDX identifier"),
}
"""License and reason for each package with another license. A package that changes its license is refused again."""

# BSD without a number is of two or three clauses, which are both allowed.
_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}
_LINE = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?P<marker>[^\\\n]*)", re.MULTILINE)


class Locked(NamedTuple):
    """A package of the lock; ``versions`` differ by the version of Python."""

    name: str
    versions: frozenset[str]


def locked(text: str) -> Sequence[Locked]:
    """Return the packages of a lock, without those of Windows: the image is a Linux one."""
    found: dict[str, set[str]] = {}
    for match in _LINE.finditer(text):
        if "sys_platform == 'win32'" not in match["marker"]:
            found.setdefault(match["name"], set()).add(match["version"])
    return [Locked(name, frozenset(versions)) for name, versions in sorted(found.items())]


def stated_license(expression: str | None, classifiers: Sequence[str], text: str | None) -> str:
    """Return the license that metadata state: the SPDX expression, else the classifiers, else the first line of text.

    Names that older metadata use become SPDX identifiers. Several classifiers must all be allowed.
    """
    if expression:
        return expression
    names = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License :: ")]
    names = names or (text or "").strip().splitlines()[:1]
    return " AND ".join(_SPDX.get(name, name) for name in names)


def license_of(about: PackageMetadata) -> str:
    """Return the license that the metadata of a package state; empty if they state none."""
    expressions, texts, classifiers = (
        about.get_all(field) or [] for field in ("License-Expression", "License", "Classifier")
    )
    return stated_license(next(iter(expressions), None), classifiers, next(iter(texts), None))


def is_allowed(expression: str, allowed: frozenset[str] = ALLOWED) -> bool:
    """Return whether one alternative has only allowed licenses. Parentheses and exceptions of SPDX are refused."""
    return any(all(term in allowed for term in each.split(" AND ")) for each in expression.split(" OR "))


def findings(packages: Sequence[Locked]) -> Iterator[str]:
    """Yield a message for each package that is not installed as locked, or whose license is not allowed."""
    for package in packages:
        try:
            about = metadata(package.name)
        except PackageNotFoundError:
            yield f"{package.name}: the license is unknown: the package is not installed; run 'make setup'"
            continue
        if about["Version"] not in package.versions:
            yield (
                f"{package.name}: the license is unknown: version {about['Version']} is installed, the lock has "
                f"{' and '.join(sorted(package.versions))}; run 'make setup'"
            )
            continue
        found = license_of(about)
        if not is_allowed(found) and EXCEPTIONS.get(package.name, ("", ""))[0] != found:
            yield (
                f"{package.name}: the license is not allowed: {found or 'the metadata state none'}; replace the "
                "package, or add it with a reason to EXCEPTIONS in dev/headrace_dev/licenses.py"
            )


def licenses_of_jars() -> Mapping[str, str]:
    """Return the licenses of PySpark's jars, and of those that the image adds, which need not be here, by file."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    found = {}
    for jar in sorted((Path(spec.origin).parent / "jars").glob("*.jar")):
        with zipfile.ZipFile(jar) as archive:
            found[jar.name] = license_of_jar(archive, jar.name)
    added = {each.name for variant in IMAGE_VARIANTS.values() for bundle in variant for each in BUNDLES[bundle]}
    return found | {name: UNSTATED.get(name, "") for name in added}


def findings_of_jars(licenses: Mapping[str, str]) -> Iterator[str]:
    """Yield a message for each jar whose license is not allowed."""
    for name, license_ in licenses.items():
        if not is_allowed(license_, ALLOWED_OF_JARS):
            yield (
                f"{name}: the license is not allowed: {license_ or 'the jar states none'}; if its project states an "
                "allowed one, add it to dev/headrace_dev/jar_licenses.py, else remove the jar from the image"
            )


def main() -> int:
    """Print the findings; return 1 if there are any."""
    packages, jars = locked(LOCK.read_text(encoding="utf-8")), licenses_of_jars()
    found = [*findings(packages), *findings_of_jars(jars)]
    allowed = f"licenses: {len(packages)} packages of {LOCK.name} and {len(jars)} jars are allowed"
    print("\n".join(found) if found else allowed)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
