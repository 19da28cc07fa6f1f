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


def run_benchmark(*arguments: str, folder: Path | None = None) -> str:
    """Run a module of benchmarks with a small load and return its output. ``folder`` replaces the folder for files."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments, "--quick"],
        cwd=REPOSITORY,
        env={**os.environ, **QUICK_START, "PYTHONPATH": "dev"} | ({"TMPDIR": str(folder)} if folder else {}),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.stack
@pytest.mark.spark
def test_short_benchmark_brings_both_contestants_to_the_expected_rows(tmp_path: Path) -> None:
    """Headrace and the hand-written stream read the same topic, and both write the expected rows."""
    output = run_benchmark("benchmarks.kafka_to_table", "--logs", str(tmp_path / "logs"), folder=tmp_path)
    assert "bench: every table holds the expected rows" in output


@pytest.mark.stack
def test_short_benchmark_of_reselect_reads_every_value_again(tmp_path: Path) -> None:
    """Debezium's post-processor and Headrace reselect the same rows; the cost of a value is printed, not checked.

    The stack uses its default folder, because PostgreSQL's user may not read a test's folder.
    """
    output = run_benchmark("benchmarks.reselect", "--logs", str(tmp_path))
    assert "bench: a placeholder costs Headrace" in output


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the lanes of ``make scale`` with small loads, by lane."""
    folder = tmp_path_factory.mktemp("lanes")
    result = folder / "result.json"
    lanes = ("commit", "sizes", "load", "start", "bursts", "tables")
    run_benchmark("benchmarks.scale", *lanes, "--json", str(result), "--logs", str(folder / "logs"), folder=folder)
    found: dict[str, Any] = json.loads(result.read_text())
    assert {lane: found[lane]["wrong_rows"] for lane in lanes} == dict.fromkeys(lanes, 0)
    return found


@pytest.mark.spark
def test_short_form_of_the_lane_commit_brings_both_paths_to_the_expected_rows(lanes: dict[str, Any]) -> None:
    """Each path writes its own commits, and the result has the cost on each path."""
    lane = lanes["commit"]
    measured = {(cost["path"], cost["batch"]) for cost in lane["commits"] if cost["cpu_ms"] > 0 and cost["objects"] > 0}
    assert measured == {("direct", 100), ("merge", 100)}


@pytest.mark.spark
def test_short_form_of_the_lane_sizes_measures_both_tables_without_a_spark_job(lanes: dict[str, Any]) -> None:
    """Both tables have a cost of the same commits."""
    measured = [(cost["path"], cost["rows"], cost["batch"]) for cost in lanes["sizes"]["commits"] if cost["cpu_ms"] > 0]
    assert measured == [("direct", 20_000, 100), ("direct", 40_000, 100)]


@pytest.mark.spark
def test_short_form_of_the_lane_load_brings_each_row_once(lanes: dict[str, Any]) -> None:
    """Load and append of each tenth have a cost."""
    lane = lanes["load"]
    assert [part["rows"] for part in lane["parts"]] == list(range(2_000, 22_000, 2_000))
    assert all(part["load_us"] > 0 and part["append_us"] > 0 for part in lane["parts"])


@pytest.mark.stack
@pytest.mark.spark
def test_short_form_of_the_lane_start_waits_for_the_first_rows_of_each_start(lanes: dict[str, Any]) -> None:
    """The events that waited for each start are in the table."""
    results = lanes["start"]["results"]
    assert [result["start"] for result in results] == ["first start", "restart after kill -9"]
    assert all(0 < result["answers_s"] < result["first_rows_s"] and result["cpu_s"] > 0 for result in results)


@pytest.mark.stack
@pytest.mark.spark
def test_short_form_of_the_lane_bursts_shows_each_burst_before_the_next(lanes: dict[str, Any]) -> None:
    """A worker of its own writes the bursts, and Spark reads the expected rows."""
    [result] = lanes["bursts"]["results"]
    assert (result["contestant"], result["bursts"], len(result["cpu_s_by_burst"])) == ("headrace", 2, 2)
    assert result["cpu_s"] > result["start_cpu_s"] > 0


@pytest.mark.stack
@pytest.mark.spark
def test_short_form_of_the_lane_tables_measures_the_age_of_every_change(lanes: dict[str, Any]) -> None:
    """All changes of all tables are visible in the end, and what their commits wrote is counted."""
    [result] = lanes["tables"]["results"]
    assert (result["tables"], result["changes"]) == (4, 400)
    assert 0 < result["p50_s"] <= result["p95_s"] <= result["max_s"]
    assert result["objects_per_commit"] >= 4


@pytest.mark.spark
def test_short_benchmark_of_the_ledger_leaves_deleted_rows_deleted(tmp_path: Path) -> None:
    """Late inserts of rows that are in the ledger are ignored, and others are applied."""
    output = run_benchmark("benchmarks.ledger", folder=tmp_path)
    assert "ledger: every table contains the expected rows" in output
