"""The loads of a task's tables that take longer than a minute, in its status while they are running.

Tests: ``tests/unit/runtime/task/test_load_notes.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from headrace.core.connect.table_load import LoadProgress
from headrace.core.model.instants import iso_text
from headrace.runtime.observation import Observer

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 60.0
"""How long a load runs before it is noted, and the shortest time between two changes of the note.

Each change is a record of the status topic.
"""
_MOST_TABLES = 20
_MOST_LOGGED = 5

LOADS = (
    "rows of a snapshot are being loaded; GET /connectors/<name>/tables has the progress of each table. The estimates "
    "count what Kafka contains, not what the source will still send"
)


class LoadNotes:
    """The note of one task."""

    def __init__(self, connector: str, observer: Observer) -> None:
        self._connector = connector
        self._observer = observer
        self._reported: Sequence[str] | None = None
        self._reported_at = 0.0

    def report(self, loads: Mapping[str, LoadProgress], now: float) -> None:
        """Report the loads that are running; the first call removes an outdated note. ``now`` is Unix time."""
        noted = {table: load for table, load in loads.items() if now - load.began >= INTERVAL_SECONDS}
        if noted and now < self._reported_at + INTERVAL_SECONDS:
            return
        subjects = _subjects(noted)
        if subjects != self._reported:
            self._observer.set_note(LOADS, subjects)
            self._reported = subjects
            if subjects:
                self._reported_at = now
                text = "; ".join(subjects[:_MOST_LOGGED])
                log.info("%s: is loading %d table(s): %s", self._connector, len(noted), text)


def _subjects(loads: Mapping[str, LoadProgress]) -> Sequence[str]:
    """Return a text per table, those that take longest first."""
    longest_first = sorted(loads.items(), key=lambda entry: (-_end(entry[1]), entry[0]))
    subjects = [_subject(table, load) for table, load in longest_first[:_MOST_TABLES]]
    if len(loads) > _MOST_TABLES:
        subjects.append(f"and {len(loads) - _MOST_TABLES} more tables")
    return subjects


def _end(load: LoadProgress) -> float:
    return float("inf") if load.estimated_end is None else load.estimated_end


def _subject(table: str, load: LoadProgress) -> str:
    text = f"{table}: {load.rows:,} of about {load.rows + load.remaining:,} rows"
    if load.estimated_end is None:
        return text
    return f"{text}, until about {iso_text(load.estimated_end, 'minutes')}"
