"""Memory and temporary space of this machine: a good one is silent, and each bad state is found."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config import WorkerConfig
from headrace.core.doctor.findings import Severity
from headrace.core.doctor.machine import LEAST_FREE, Machine, findings
from headrace.runtime.doctor import read_machine
from headrace.runtime.worker.memory_plan import available_memory, memory_plan
from headrace_app import composition

GOOD = Machine(2**30, 2**31, "1 of 2", "temporary", LEAST_FREE)


def test_a_good_machine_is_silent() -> None:
    assert list(findings(GOOD)) == []


def test_a_worker_that_needs_more_memory_than_there_is(tmp_path: Path) -> None:
    """The sum is that of the worker's own plan, with the limit of this machine or its cgroup."""
    heap = f"{available_memory() // 2**20 + 1024}m"
    for given, rules in (({"spark.driver.memory": heap}, ["worker-memory"]), ({"spark.driver.memory": "1m"}, [])):
        properties = {"bootstrap.servers": "127.0.0.1:1", "warehouse": str(tmp_path), "worker.memory.bytes": "1048576"}
        config = WorkerConfig({**properties, **given}, distributed=False)
        plan = memory_plan(config.lake.memory, composition.lakehouse(config).memory())
        machine = replace(read_machine(plan), free=LEAST_FREE)
        assert [finding.rule for finding in findings(machine)] == rules


def test_a_temporary_folder_that_is_nearly_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder is that of Spark, the first of several."""
    [finding] = findings(replace(GOOD, free=LEAST_FREE - 1))
    assert (finding.rule, finding.severity) == ("worker-temporary-space", Severity.WARNING)
    assert finding.evidence == "2,047 MiB are free"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/nowhere")
    machine = read_machine(memory_plan(None, {}))
    assert machine.folder == str(tmp_path)
    assert machine.free > 0


def test_a_small_file_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder for temporary files of 16 MiB."""
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", tmp_path], capture_output=True)
    if mount.returncode:
        pytest.skip(f"needs to mount a tmpfs: {mount.stderr.decode().strip()}")
    try:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
        [finding] = findings(replace(read_machine(memory_plan(None, {})), needed=0))
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert (finding.rule, finding.evidence) == ("worker-temporary-space", "16 MiB are free")
