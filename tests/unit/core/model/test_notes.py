"""A status contains notes on guarantees that do not apply."""

from __future__ import annotations

from headrace.core.model.notes import AND_MORE, Note, with_note, with_subjects


def test_the_subject_of_a_note_is_a_topic_or_a_column() -> None:
    """The subject of a note is a topic, or a column of a topic."""
    assert [Note("x").subject("t"), Note("x", "c").subject("t")] == ["t", "t column c"]


def test_topics_are_listed_under_their_note() -> None:
    """A status lists each topic once under its note; adding a known topic returns the same mapping."""
    notes = with_note(with_note(with_note({}, "x", "t"), "x", "u"), "y", "t")
    assert notes == {"x": ("t", "u"), "y": ("t",)}
    assert with_note(notes, "x", "u") is notes


def test_a_status_stays_small() -> None:
    """A note lists at most 50 topics, and then ``AND_MORE``."""
    notes = {}
    for place in range(1000):
        notes = with_note(notes, "x", f"t{place}")
    assert len(notes["x"]) == 51
    assert notes["x"][-1] == AND_MORE


def test_the_topics_of_a_note_are_replaced() -> None:
    """A note on a state has the topics that it applies to at present, and ends when there are none."""
    notes = with_subjects({"x": ("t",), "y": ("t",)}, "x", ["u", "v"])
    assert notes == {"x": ("u", "v"), "y": ("t",)}
    assert with_subjects(notes, "x", ()) == {"y": ("t",)}
    many = with_subjects({}, "x", [f"t{place}" for place in range(51)])
    assert len(many["x"]) == 51
    assert many["x"][-1] == AND_MORE
