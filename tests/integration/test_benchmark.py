"""The benchmark's short form: both contestants finish with the expected tables. The tests measure no time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
QUICK_START = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
"""No optimised code in any JVM: it costs more than it saves where nothing is measured."""


@pytest.mark.stack
@pytest.mark.spark
def test_short_benchmark_brings_both_contestants_to_the_expected_rows(tmp_path: Path) -> None:
    """Headrace and the hand-written stream read the same topic, and both write the expected rows."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka_to_table", "--quick", "--logs", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, **QUICK_START, "PYTHONPATH": "dev", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "bench: every table holds the expected rows" in done.stdout


@pytest.mark.stack
def test_short_benchmark_of_reselect_reads_every_value_again(tmp_path: Path) -> None:
    """Debezium's post-processor and Headrace reselect the same rows; the cost of a value is printed, not checked.

    The stack uses its default folder, because PostgreSQL's user may not read a test's folder.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reselect", "--quick", "--logs", str(tmp_path)],
        cwd=REPOSITORY,
        env={**os.environ, **QUICK_START, "PYTHONPATH": "dev"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "bench: a placeholder costs Headrace" in done.stdout
