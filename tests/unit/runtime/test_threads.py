"""What the threads of a worker know about the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.runtime.threads import available_cores

ALL = float(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "max 100000"}, ALL),
        ({"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000"}, 0.25),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALL),
        ({"cpu.max": "1000000000 100000"}, ALL),
        ({"cpu.max": "unreadable"}, ALL),
        ({}, ALL),
    ],
)
def test_cores_are_limited_by_the_cgroup(tmp_path: Path, files: dict[str, str], cores: float) -> None:
    """The quota of a container, in either version of cgroups, bounds the cores that the process may use."""
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n", encoding="ascii")
    assert available_cores(tmp_path) == cores
