"""The note that goes with an offset."""

from __future__ import annotations

from headrace.core.batch.offset_notes import MAX_CHARACTERS, decode, digest, encode


def test_a_note_is_read_as_it_was_written() -> None:
    """Of one table and of several."""
    tables = {digest("lake.item"): 2**62, digest("lake.order"): 0}
    assert decode(encode(tables)) == tables
    assert decode(encode({})) == {}


def test_what_others_note_is_no_note() -> None:
    """A group's metadata may be any text."""
    for note in ("", "mine", "headrace1:", "headrace1:x", "headrace1:a:b", "headrace2:a:1"):
        assert decode(note) == {}


def test_two_hundred_tables_fit() -> None:
    """Of more the tables that were written last are kept, since brokers refuse what is longer."""
    tables = {digest(f"lake.table_{number}"): 10**8 + number for number in range(1000)}
    first_two_hundred = dict(list(tables.items())[:200])
    assert decode(encode(first_two_hundred)) == first_two_hundred
    note = encode(tables)
    assert len(note) <= MAX_CHARACTERS
    assert min(decode(note).values()) == max(tables.values()) - len(decode(note)) + 1
