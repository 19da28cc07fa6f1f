"""What goes wrong if the clock of the worker differs from those of the source database and of Kafka.

Rows, their order and snapshots do not depend on clocks: changes are ordered by their positions in the source's log, and
offsets by Kafka.

Tests: ``tests/unit/core/doctor/test_clocks.py``, ``tests/integration/test_doctor_topics.py``,
``tests/integration/test_doctor_postgres.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity

TOLERATED = 1.0
"""Seconds of difference without a finding: the freshness that the worker reports has the same error."""


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    WORKER_CLOCK_SOURCE = "worker-clock-source"
    WORKER_CLOCK_KAFKA = "worker-clock-kafka"


@dataclass(frozen=True, slots=True)
class ClockReading:
    """The clock of the machine ``where``, and that of this one ``before`` and ``after`` it was read, in seconds."""

    where: str
    before: float
    there: float
    after: float

    @property
    def ahead(self) -> float:
        """Return how many seconds the other clock is certainly ahead of this one; negative if it is behind.

        It was read at an unknown time between the readings of this clock. The middle is at most half of that time away.
        """
        difference, half = self.there - (self.before + self.after) / 2, (self.after - self.before) / 2
        return max(difference - half, 0.0) + min(difference + half, 0.0)


def source_findings(reading: ClockReading) -> Iterator[Finding]:
    """Yield the findings of the clock of a source database."""
    if abs(reading.ahead) > TOLERATED:
        yield _finding(
            Rule.WORKER_CLOCK_SOURCE,
            reading,
            f"freshness and ages of changes are wrong by {abs(reading.ahead):.1f} s, so that alerts on them fire too "
            + ("late" if reading.ahead > 0 else "early")
            + "; rows and their order are right",
        )


def kafka_findings(reading: ClockReading) -> Iterator[Finding]:
    """Yield the findings of the clock of Kafka's controller."""
    if abs(reading.ahead) > TOLERATED:
        yield _finding(
            Rule.WORKER_CLOCK_KAFKA,
            reading,
            "the age of unread changes is compared with retention.ms by the wrong time, and tokens and certificates "
            "may be refused as not yet valid or expired; rows and their order are right",
        )


def _finding(rule: Rule, reading: ClockReading, consequence: str) -> Finding:
    side = "ahead of" if reading.ahead > 0 else "behind"
    return Finding(
        rule,
        Severity.WARNING,
        reading.where,
        consequence,
        f"its clock is {abs(reading.ahead):.1f} s {side} that of this machine",
        "chronyc tracking  # or timedatectl timesync-status, on both machines: synchronize them",
    )
