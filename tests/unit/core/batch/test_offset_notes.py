"""An offset commit carries a note with the next offset of each table."""

from __future__ import annotations

from headrace.core.batch.offsets import MAX_CHARACTERS, decode_note, encode_note, table_digest


def test_a_note_is_read_as_it_was_written() -> None:
    """Decoding an encoded note returns the tables and their next offsets, also for no table."""
    tables = {table_digest("lake.item"): 2**62, table_digest("lake.order"): 0}
    assert decode_note(encode_note(tables)) == tables
    assert decode_note(encode_note({})) == {}


def test_metadata_of_other_programs_is_ignored() -> None:
    """Commit metadata that is not a note of this format decodes to no tables."""
    for note in ("", "mine", "headrace1:", "headrace1:x", "headrace1:a:b", "headrace2:a:1"):
        assert decode_note(note) == {}


def test_two_hundred_tables_fit() -> None:
    """A note has capacity for 200 tables; of 1000 tables it keeps those with the highest next offsets."""
    tables = {table_digest(f"lake.table_{number}"): 10**8 + number for number in range(1000)}
    first_two_hundred = dict(list(tables.items())[:200])
    assert decode_note(encode_note(first_two_hundred)) == first_two_hundred
    note = encode_note(tables)
    assert len(note) <= MAX_CHARACTERS
    assert min(decode_note(note).values()) == max(tables.values()) - len(decode_note(note)) + 1
