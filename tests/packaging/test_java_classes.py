"""The jars in the package are those of their sources."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace_dev.java_classes import SOURCES, build


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK 17")
@pytest.mark.parametrize("jar", SOURCES, ids=lambda jar: jar.stem)
def test_a_jar_is_that_of_its_sources(jar: Path) -> None:
    """Compiled again, it has the same bytes: nobody can put another class into the repository unnoticed."""
    assert build(SOURCES[jar]) == jar.read_bytes(), "run python -m headrace_dev.java_classes"
