"""The licenses of the Python packages in the image."""

from __future__ import annotations

import pytest

from headrace_dev import licenses
from headrace_dev.licenses import EXCEPTIONS, LOCK, Locked, findings, is_allowed, locked, stated_license


def test_every_locked_package_is_allowed() -> None:
    """Each package of the image has an allowed license, or an exception."""
    packages = locked(LOCK.read_text())
    assert len(packages) > 50
    assert list(findings(packages)) == []


def test_every_exception_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the exceptions, exactly their packages are refused, with their license."""
    exceptions = dict(EXCEPTIONS)
    monkeypatch.setattr(licenses, "EXCEPTIONS", {})
    found = list(findings(locked(LOCK.read_text())))
    assert [message.partition(":")[0] for message in found] == sorted(exceptions)
    assert all(exceptions[name][0] in message for name, message in zip(sorted(exceptions), found, strict=True))


def test_an_exception_is_for_one_license(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with an exception that changes its license is refused."""
    monkeypatch.setattr(licenses, "EXCEPTIONS", {**EXCEPTIONS, "psycopg": ("LGPL-2.1-only", "")})
    package = next(each for each in locked(LOCK.read_text()) if each.name == "psycopg")
    (message,) = findings([package])
    assert message.startswith("psycopg: the license is not allowed: LGPL-3.0-only; replace the package")


def test_a_package_that_is_not_installed_as_locked_is_refused() -> None:
    """The license of another version, or of no installed one, does not count."""
    other, absent = findings([Locked("six", frozenset({"0.0.1"})), Locked("headrace-absent", frozenset({"1"}))])
    assert other.startswith("six: the license is unknown: version ")
    assert absent.startswith("headrace-absent: the license is unknown: the package is not installed")


def test_packages_come_from_the_lock() -> None:
    """A package may have a version for each Python; those of Windows are not in the image."""
    text = (
        "a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:00\n"
        "a==2 ; python_full_version >= '3.12' \\\n    --hash=sha256:00\n"
        "b==3 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n"
        "c==4 \\\n    --hash=sha256:00\n    # via a\n"
    )
    assert locked(text) == [Locked("a", frozenset({"1", "2"})), Locked("c", frozenset({"4"}))]


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("Apache-2.0 AND MIT", True),
        ("GPL-3.0-only OR MIT", True),
        ("GPL-3.0-only AND MIT", False),
        ("MIT AND GPL-3.0-only OR AGPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND GPL-2.0-only", False),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_an_expression_needs_an_allowed_alternative(expression: str, allowed: bool) -> None:
    """AND requires both licenses, OR one of them; what is not understood is refused."""
    assert is_allowed(expression) is allowed


@pytest.mark.parametrize(
    ("expression", "classifiers", "text", "stated"),
    [
        ("MIT", ["License :: OSI Approved :: BSD License"], "GPL", "MIT"),
        (None, ["License :: OSI Approved :: MIT License", "Topic :: Database"], "Copyright (c)", "MIT"),
        (None, ["License :: OSI Approved :: MIT License", "License :: Other"], None, "MIT AND Other"),
        (None, ["Topic :: Database"], "Apache 2.0\nmore", "Apache-2.0"),
        (None, [], None, ""),
    ],
)
def test_metadata_of_every_age_state_a_license(
    expression: str | None, classifiers: list[str], text: str | None, stated: str
) -> None:
    """The SPDX expression precedes the classifiers, and those precede the free text."""
    assert stated_license(expression, classifiers, text) == stated
