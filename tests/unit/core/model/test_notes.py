"""Notes on what is not guaranteed."""

from __future__ import annotations

from headrace.core.model.notes import AND_MORE, Note, with_note


def test_a_note_says_what_it_concerns() -> None:
    """A topic, or a column of it."""
    assert [Note("x").subject("t"), Note("x", "c").subject("t")] == ["t", "t column c"]


def test_places_gather_under_their_note() -> None:
    """Each once, and what is known changes nothing."""
    notes = with_note(with_note(with_note({}, "x", "t"), "x", "u"), "y", "t")
    assert notes == {"x": ("t", "u"), "y": ("t",)}
    assert with_note(notes, "x", "u") is notes


def test_a_status_stays_small() -> None:
    """However many topics a connector reads."""
    notes = {}
    for place in range(1000):
        notes = with_note(notes, "x", f"t{place}")
    assert len(notes["x"]) == 51
    assert notes["x"][-1] == AND_MORE
