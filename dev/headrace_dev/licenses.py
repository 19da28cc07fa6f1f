"""Check the licenses of the Python packages that the image contains: ``python -m headrace_dev.licenses``.

The packages are those of ``requirements/runtime.txt``. Their licenses come from the metadata of the installed packages.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageMetadata, PackageNotFoundError, metadata
from pathlib import Path
from typing import NamedTuple

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


def is_allowed(expression: str) -> bool:
    """Return whether one alternative has only allowed licenses. Parentheses and exceptions of SPDX are refused."""
    return any(all(term in ALLOWED for term in each.split(" AND ")) for each in expression.split(" OR "))


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


def main() -> int:
    """Print the findings; return 1 if there are any."""
    packages = locked(LOCK.read_text(encoding="utf-8"))
    found = list(findings(packages))
    print("\n".join(found) if found else f"licenses: {len(packages)} packages of {LOCK.name} are allowed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
