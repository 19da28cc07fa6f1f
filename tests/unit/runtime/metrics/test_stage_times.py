"""Busy threads by stage, over the last minute."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from headrace.runtime.metrics.stage_times import StageTimes


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.25

    def __call__(self) -> float:
        return self.now


def test_a_stage_that_has_ended_counts_for_a_minute() -> None:
    clock = Clock()
    times = StageTimes(clock)
    with times.measure("merge"):
        clock.now += 6
    assert times.busy() == pytest.approx({"merge": 0.1})
    clock.now += 30
    assert times.busy() == pytest.approx({"merge": 0.1})
    clock.now += 61
    assert times.busy() == {}


def test_a_stage_that_runs_counts_until_now() -> None:
    """A merge that hangs keeps a thread busy all the time, and never more than one."""
    clock = Clock()
    times = StageTimes(clock)
    with times.measure("merge"):
        clock.now += 15
        assert times.busy() == pytest.approx({"merge": 0.25})
        clock.now += 600
        assert times.busy() == pytest.approx({"merge": 1.0})
    assert times.busy()["merge"] == pytest.approx(1.0, abs=0.02)


def test_stages_of_several_threads_add_up() -> None:
    clock = Clock()
    times = StageTimes(clock)
    with ExitStack() as lanes:
        for stage in ("merge", "merge", "fold"):
            lanes.enter_context(times.measure(stage))
        clock.now += 60
        assert times.busy() == pytest.approx({"merge": 2.0, "fold": 1.0})


def test_a_stage_that_fails_has_ended() -> None:
    clock = Clock()
    times = StageTimes(clock)
    with pytest.raises(ZeroDivisionError), times.measure("merge"):
        raise ZeroDivisionError
    clock.now += 30
    assert times.busy() == {}
