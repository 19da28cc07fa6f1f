"""Clocks that differ: what is certain after a round trip, and what it means."""

from __future__ import annotations

import pytest

from headrace.core.doctor.clocks import ClockReading, kafka_findings, source_findings
from headrace.core.doctor.findings import Severity


@pytest.mark.parametrize(
    ("before", "there", "after", "ahead"),
    [(10.0, 10.0, 10.0, 0.0), (10.0, 12.5, 10.0, 2.5), (10.0, 7.5, 10.0, -2.5), (10, 13, 12, 1.0), (10, 8, 12, -2.0)],
)
def test_half_of_the_round_trip_is_uncertain(before: float, there: float, after: float, ahead: float) -> None:
    assert ClockReading("db", before, there, after).ahead == ahead


def test_a_slow_answer_is_silent() -> None:
    """The clock was read at some time of 20 s: it may be right."""
    for there in (10.0, 20.0, 30.0):
        assert ClockReading("db", 10.0, there, 30.0).ahead == 0.0


@pytest.mark.parametrize("difference", [0.0, 1.0, -1.0])
def test_a_small_difference_is_silent(difference: float) -> None:
    reading = ClockReading("db", 10.0, 10.0 + difference, 10.0)
    assert [*source_findings(reading), *kafka_findings(reading)] == []


@pytest.mark.parametrize(("difference", "side", "alerts"), [(90.0, "ahead of", "late"), (-1.5, "behind", "early")])
def test_a_large_difference(difference: float, side: str, alerts: str) -> None:
    """Changes of a database whose clock is ahead look younger than they are."""
    reading = ClockReading("db", 10.0, 10.0 + difference, 10.0)
    [of_source], [of_kafka] = list(source_findings(reading)), list(kafka_findings(reading))
    assert (of_source.rule, of_kafka.rule) == ("worker-clock-source", "worker-clock-kafka")
    assert of_source.severity is of_kafka.severity is Severity.WARNING
    assert of_source.evidence == f"its clock is {abs(difference):.1f} s {side} that of this machine"
    assert f"fire too {alerts}" in of_source.consequence
