"""How a worker divides its memory."""

from __future__ import annotations

from headrace.runtime.worker.memory_plan import LEAST_BYTES, MEBIBYTE, available_memory, memory_plan

GIBIBYTE = 1024 * MEBIBYTE


def test_changes_get_half_of_what_is_left() -> None:
    """The other half is for their copies while they are written."""
    plan = memory_plan(None, engine=3 * GIBIBYTE, available=6 * GIBIBYTE)
    assert plan.changes == 1280 * MEBIBYTE
    assert plan.fits
    assert plan.needed == plan.available
    assert str(plan) == (
        "Spark 3072 MiB + Python 512 MiB + changes (worker.memory.bytes) 1280 MiB + their copies while they are "
        "written 1280 MiB = 6144 MiB of 6144 MiB"
    )


def test_a_small_container_is_named() -> None:
    """There is a least for changes, and the sum shows that it does not fit."""
    plan = memory_plan(None, engine=4 * GIBIBYTE, available=4 * GIBIBYTE)
    assert plan.changes == LEAST_BYTES
    assert not plan.fits


def test_the_option_decides() -> None:
    """Also where more would fit."""
    assert memory_plan(GIBIBYTE, engine=0, available=64 * GIBIBYTE).changes == GIBIBYTE


def test_this_process_has_memory() -> None:
    """Whatever limits it."""
    assert available_memory() > 100 * MEBIBYTE
