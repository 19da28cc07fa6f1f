"""The tables of a task that miss their freshness targets: in a metric, and while it lasts in the task's status.

Tests: ``tests/unit/runtime/task/test_freshness_notes.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from headrace.runtime.observation import Observer

log = logging.getLogger(__name__)

LASTING_SECONDS = 60.0
"""How long a table is noted after it has missed its target, and the shortest time between two changes of a note.

Each change is a record of the status topic.
"""


class Cause(Enum):
    """Why rows are visible later than their target, as a note says it."""

    OVERLOAD = (
        "changes are visible later than freshness.target.ms, because they arrive faster than the worker commits them. "
        "Events per second that are listed first are what it sustains, in all of its tables together. Add cores or "
        "workers, or raise freshness.target.ms"
    )
    COMMITS_PER_HOUR = (
        "changes are visible later than freshness.target.ms, because commits.per.hour does not allow more commits; "
        "raise one of the two"
    )


class FreshnessNotes:
    """The notes of one task. ``events_per_second`` returns what its worker has written lately, 0 if that is unknown."""

    def __init__(self, connector: str, observer: Observer, events_per_second: Callable[[], float]) -> None:
        self._connector = connector
        self._observer = observer
        self._events_per_second = events_per_second
        self._missed: dict[Cause, dict[str, float]] = {cause: {} for cause in Cause}
        self._reported_at: dict[Cause, float] = {}

    def on_miss(self, table: str, cause: Cause, now: float) -> None:
        """Register that changes of a table became visible after their target. Times are monotonic seconds."""
        self._missed[cause][table] = now

    def report(self, now: float) -> None:
        """Report what has changed since the last call; the first call removes outdated notes as well."""
        for cause, tables in self._missed.items():
            for table, missed_at in list(tables.items()):
                if missed_at <= now - LASTING_SECONDS:
                    del tables[table]
            if not tables:
                if self._reported_at.get(cause, 0.0) > 0.0:
                    log.info("%s: all tables are within freshness.target.ms again", self._connector)
                if self._reported_at.get(cause) != 0.0:
                    self._observer.set_note(cause.value, ())
                self._reported_at[cause] = 0.0
            elif now >= self._reported_at.get(cause, 0.0) + LASTING_SECONDS:
                subjects = sorted(tables)
                if cause is Cause.OVERLOAD:
                    rate = float(f"{self._events_per_second():.2g}")  # two digits, so that the note changes rarely
                    if rate > 0:
                        subjects.insert(0, f"{rate:,.0f} events/s" if rate >= 1 else f"{rate:.2f} events/s")
                if not self._reported_at.get(cause):
                    log.warning("%s: %s: %s", self._connector, ", ".join(subjects[:5]), cause.value)
                self._observer.set_note(cause.value, subjects)
                self._reported_at[cause] = now
