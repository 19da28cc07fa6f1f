"""The short forms of the benchmarks: all contestants finish with the expected tables. The tests measure no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.spark
def test_short_form_of_the_lane_commit_brings_both_paths_to_the_expected_rows(tmp_path: Path) -> None:
    """Each path writes its own commits, and the result has the cost of each size on each path."""
    lane = short_form_of_lane("commit", tmp_path)
    measured = {(cost["path"], cost["batch"]) for cost in lane["commits"] if cost["cpu_ms"] > 0 and cost["objects"] > 0}
    assert measured == {(path, batch) for path in ("direct", "merge") for batch in (100, 1_000)}


@pytest.mark.spark
def test_short_form_of_the_lane_load_brings_each_row_once(tmp_path: Path) -> None:
    """Load and append of each tenth have a cost."""
    lane = short_form_of_lane("load", tmp_path)
    assert [part["rows"] for part in lane["parts"]] == list(range(2_000, 22_000, 2_000))
    assert all(part["load_us"] > 0 and part["append_us"] > 0 for part in lane["parts"])


@pytest.mark.stack
@pytest.mark.spark
def test_short_form_of_the_lane_bursts_shows_each_burst_before_the_next(tmp_path: Path) -> None:
    """A worker of its own writes the bursts, and Spark reads the expected rows."""
    [result] = short_form_of_lane("bursts", tmp_path)["results"]
    assert (result["contestant"], result["bursts"], len(result["cpu_s_by_burst"])) == ("headrace", 2, 2)
    assert result["cpu_s"] > result["start_cpu_s"] > 0


@pytest.mark.stack
@pytest.mark.spark
def test_short_form_of_the_lane_tables_measures_the_age_of_every_change(tmp_path: Path) -> None:
    """All changes of all tables are visible in the end, and what their commits wrote is counted."""
    [result] = short_form_of_lane("tables", tmp_path)["results"]
    assert (result["tables"], result["changes"]) == (4, 400)
    assert 0 < result["p50_s"] <= result["p95_s"] <= result["max_s"]
    assert result["objects_per_commit"] >= 4


def short_form_of_lane(lane: str, folder: Path) -> dict[str, Any]:
    """Run a lane of ``make scale`` with a small load, and return its result; no row of it may be wrong."""
    result = folder / "result.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", lane, "--quick", "--json", str(result), "--logs", str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, **QUICK_START, "PYTHONPATH": "dev", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(result.read_text())[lane]
    assert found["wrong_rows"] == 0
    return found


@pytest.mark.spark
def test_short_benchmark_of_the_ledger_leaves_deleted_rows_deleted(tmp_path: Path) -> None:
    """Late inserts of rows that are in the ledger are ignored, and others are applied."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.ledger", "--quick"],
        cwd=REPOSITORY,
        env={**os.environ, **QUICK_START, "PYTHONPATH": "dev", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "ledger: every table contains the expected rows" in done.stdout
