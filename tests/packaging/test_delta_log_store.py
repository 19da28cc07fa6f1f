"""The jar with the log store of Delta on S3 is that of its source."""

from __future__ import annotations

import shutil

import pytest

from headrace_connectors.lakehouse.spark_jars import DELTA_S3_JAR
from headrace_dev.delta_log_store import build


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs the compiler of a JDK 17")
def test_the_jar_is_that_of_its_source() -> None:
    """Compiled again, it has the same bytes: nobody can put another class into the repository unnoticed."""
    assert build() == DELTA_S3_JAR.read_bytes(), "run python -m headrace_dev.delta_log_store"
