"""What is not guaranteed for a topic: said once in the log, and in the task's status for as long as it holds.

A task forgets its notes when it is restarted by request, reconfigured or stopped; what still holds is noted again by
the next record that shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Notes = Mapping[str, tuple[str, ...]]
"""What is not guaranteed, and the places that it concerns: topics, or columns of them."""

_PLACES = 50
AND_MORE = "and more"
"""Stands behind the places of a note that has more of them, so that a status stays small."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the operator on a topic, or on one of its columns."""

    text: str
    column: str | None = None

    def place(self, topic: str) -> str:
        """What it concerns."""
        return topic if self.column is None else f"{topic} column {self.column}"


def with_note(notes: Notes, text: str, place: str) -> Notes:
    """The notes and one more; the same ones if it is known."""
    places = notes.get(text, ())
    if place in places or AND_MORE in places:
        return notes
    return {**notes, text: (*places, place if len(places) < _PLACES else AND_MORE)}
