"""The machine of a run, the commit, and how busy the machine was with other work."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cpu import cpu_of, machine_seconds
from headrace_dev.java import java

QUIET_CORES = 0.1
"""Other processes that use fewer cores than this do not disturb a measurement."""


class Observation:
    """Where, when and beside what a run was measured. It begins with its construction."""

    def __init__(self) -> None:
        self._at = datetime.now(UTC)
        self._begin = time.monotonic()
        self._busy, self._own = machine_seconds(), cpu_of(os.getpid()).total

    def result(self) -> dict[str, Any]:
        """Return what a reader needs to judge the figures. ``other_cores`` is what other processes have used."""
        seconds = time.monotonic() - self._begin
        others = machine_seconds() - self._busy - (cpu_of(os.getpid()).total - self._own)
        return {
            "at": self._at.strftime("%Y-%m-%d %H:%M UTC"),
            "seconds": round(seconds),
            "machine": machine(),
            "commit": commit(),
            "other_cores": round(max(0.0, others / seconds), 2),
        }


def machine() -> str:
    """Return processor, cores, memory, and the versions that matter."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    banner = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    version = banner.split('"')[1]
    return (
        f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, "
        f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}, "
        f"Java {version}"
    )


def commit() -> str:
    """Return the commit of the working copy, and whether its code differs from the commit."""
    here = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=here, capture_output=True, text=True)
    if head.returncode:
        return "unknown"
    status = ["git", "status", "--porcelain", "--", "service", "connectors", "benchmarks", "dev"]
    changed = subprocess.run(status, cwd=here.parents[1], capture_output=True, text=True).stdout
    return head.stdout.strip() + (" with uncommitted changes" if changed.strip() else "")
