"""Tests of the division of a worker's memory."""

from __future__ import annotations

import subprocess
import sys

from headrace.runtime.worker.memory_plan import LEAST_BYTES, MEBIBYTE, available_memory, memory_plan, used_memory

GIBIBYTE = 1024 * MEBIBYTE


def test_changes_get_half_of_the_remaining_memory() -> None:
    """The changes get half of the memory that the engine leaves. Their copies during a write get the other half."""
    plan = memory_plan(None, {"heap": 2 * GIBIBYTE, "metaspace": GIBIBYTE}, available=6 * GIBIBYTE)
    assert plan.changes == 1280 * MEBIBYTE
    assert plan.fits
    assert plan.needed == plan.available
    assert str(plan) == (
        "lakehouse 3072 MiB (heap 2048 MiB, metaspace 1024 MiB) + Python 512 MiB + "
        "changes (worker.memory.bytes) 1280 MiB + their copies while they are written 1280 MiB = 6144 MiB of 6144 MiB"
    )


def test_a_container_that_is_too_small_is_detected() -> None:
    """The plan gives the changes a minimum, and reports that the sum exceeds the available memory."""
    plan = memory_plan(None, {"heap": 4 * GIBIBYTE}, available=4 * GIBIBYTE)
    assert plan.changes == LEAST_BYTES
    assert not plan.fits


def test_the_option_decides() -> None:
    """``worker.memory.bytes`` sets the memory of changes, also if more is available."""
    assert memory_plan(GIBIBYTE, {}, available=64 * GIBIBYTE).changes == GIBIBYTE


def test_the_available_memory_is_positive() -> None:
    """The available memory of this process is larger than 100 MiB, with or without a limit of a container."""
    assert available_memory() > 100 * MEBIBYTE


def test_the_memory_of_processes_that_were_started_counts() -> None:
    """Spark's JVM is one."""
    alone = used_memory()
    program = f"data = b'x' * {64 * MEBIBYTE}; print(len(data), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert used_memory() - alone > 60 * MEBIBYTE
        child.communicate(b"\n")
    assert used_memory() - alone < 60 * MEBIBYTE
    assert used_memory(child.pid) == 0
