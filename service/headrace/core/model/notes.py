"""Notes on limits of the guarantees for a topic: logged once, and kept in the task's status.

A task discards its notes when it is restarted by request, reconfigured or stopped. The next record that a note applies
to adds it again. A note on a state that may pass, such as a topic that does not exist, is removed when it has passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Notes = Mapping[str, tuple[str, ...]]
"""Texts of notes, and the topics or columns of topics that they apply to."""

_MOST_SUBJECTS = 50
AND_MORE = "and more"
"""The last subject of a note that has more of them, so that a status stays small."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the operator on a topic, or on one of its columns."""

    text: str
    column: str | None = None

    def subject(self, topic: str) -> str:
        return topic if self.column is None else f"{topic} column {self.column}"


def with_note(notes: Notes, text: str, subject: str) -> Notes:
    """Add a note; return the same object if it contains the note."""
    subjects = notes.get(text, ())
    if subject in subjects or AND_MORE in subjects:
        return notes
    return {**notes, text: (*subjects, subject if len(subjects) < _MOST_SUBJECTS else AND_MORE)}


def with_subjects(notes: Notes, text: str, subjects: Sequence[str]) -> Notes:
    """Return the notes with these subjects of a note instead of its earlier ones; without the note if none is left."""
    others = {other: topics for other, topics in notes.items() if other != text}
    if not subjects:
        return others
    shown = (*subjects[:_MOST_SUBJECTS], *([AND_MORE] if len(subjects) > _MOST_SUBJECTS else []))
    return {**others, text: shown}
