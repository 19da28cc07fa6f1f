"""The pace of a verification: rows a second, and the time of statements."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.sources.verify_world import CATALOG, SCHEMA, World

from headrace.runtime.verify.paced_source import Pace, PacedSource, Stopped


class TimedPace(Pace):
    """A pace with a clock of its own, which its sleeps move."""

    def __init__(self, rows_per_second: int, source_ms_per_minute: int) -> None:
        self.time = 0.0
        super().__init__(rows_per_second, source_ms_per_minute, lambda: self.time)

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        super().sleep(0.0)


def test_rows_take_their_time() -> None:
    """A thousand rows at a hundred a second take ten seconds, however they are divided."""
    pace = TimedPace(100, 60_000)
    for _ in range(10):
        pace.rows(100)
    assert pace.time == pytest.approx(10.0)


def test_statements_have_a_share_of_the_time() -> None:
    """With 3,000 ms a minute, statements of one second are twenty seconds apart."""
    pace = TimedPace(100, 3_000)
    for _ in range(3):
        with pace.statement():
            pace.time += 1.0
    assert pace.time == pytest.approx(60.0)
    with pace.statement():
        pace.time += 1.0
    pace.rows(100)
    assert pace.time == pytest.approx(81.0)


@pytest.mark.parametrize(("rows", "expected"), [(100, 20.0), (3_000, 30.0)])
def test_the_rows_of_a_statement_wait_while_it_does(rows: int, expected: float) -> None:
    """The slower limit counts, and not the sum of both."""
    pace = TimedPace(100, 3_000)
    with pace.statement() as read:
        pace.time += 1.0
        read.append(rows)
    assert pace.time == pytest.approx(expected)


def read_all(source: PacedSource) -> int:
    return sum(len(piece[0]) for piece in source.scan(CATALOG, SCHEMA.fields))


def fetch_nothing(pace: Pace) -> None:
    with pace.statement():
        pass


@pytest.mark.parametrize("call", [fetch_nothing, lambda pace: pace.rows(1), lambda pace: pace.sleep(100.0)])
def test_a_stop_ends_every_wait(call: Callable[[Pace], None]) -> None:
    """A thread that sleeps, or is about to, does not keep a task that stops."""
    pace = Pace(1, 1, lambda: 0.0)
    pace.stop()
    with pytest.raises(Stopped):
        call(pace)


def test_a_scan_brings_every_row_at_the_pace() -> None:
    """The rows are those of the source."""
    world = World()
    for key in range(30):
        world.change(key, f"row {key}")
    world.settle()
    pace = TimedPace(10, 60_000)
    assert read_all(PacedSource(world.source, pace)) == 30
    assert pace.time == pytest.approx(3.0)
