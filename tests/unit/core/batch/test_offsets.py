"""Offsets pass no record that is missing or not durable; their note names tables, and identifies the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.batch.offsets import (
    MAX_CHARACTERS,
    ChunkSequence,
    LogPosition,
    OffsetTracker,
    Origin,
    ReadLogs,
    decode_note,
    encode_note,
    log_position,
    table_digest,
    with_log_position,
)
from headrace.core.model.errors import Fatal


def chunk(tracker: OffsetTracker, end: int, parts: int) -> Origin:
    """Begin a chunk whose records were added to ``parts`` tables."""
    origin = tracker.begin("p", end, 0.0)
    origin.missing += parts - 1
    return origin


def test_a_chunk_counts_when_all_its_tables_are_durable() -> None:
    """The offset passes a chunk with records of two tables when both tables are durable."""
    tracker = OffsetTracker()
    origin = chunk(tracker, 10, 2)
    origin.missing -= 1
    assert tracker.durable() == {}
    origin.missing -= 1
    assert tracker.durable() == {"p": 10}


def test_offsets_move_in_order() -> None:
    """The offset passes a second chunk that is durable first only when the first chunk is durable too."""
    tracker = OffsetTracker()
    first, second = chunk(tracker, 10, 1), chunk(tracker, 20, 1)
    second.missing -= 1
    assert tracker.durable() == {}
    first.missing -= 1
    assert tracker.durable() == {"p": 20}


def test_a_chunk_without_rows_passes_when_it_has_been_handed_out() -> None:
    """A chunk of heartbeats moves the offset without a batch, once all its records were handled."""
    tracker = OffsetTracker()
    origin = tracker.begin("p", 10, 0.0)
    assert tracker.durable() == {}
    origin.missing -= 1
    assert tracker.durable() == {"p": 10}


def test_no_offset_passes_a_chunk_that_cannot_be_written() -> None:
    """A blocked chunk stops its partition's offset before it; the offsets of other partitions move."""
    tracker = OffsetTracker()
    tracker.begin("p", 10, 0.0)
    chunk(tracker, 20, 1).missing -= 1
    tracker.begin("q", 5, 0.0).missing -= 1
    assert tracker.durable() == {"q": 5}


@given(st.data())
def test_any_order_of_completion(data: st.DataObject) -> None:
    """In any order of completion, a committed offset covers only complete chunks, and at the end all of them."""
    tracker, chunks = OffsetTracker(), data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    origins = [chunk(tracker, (i + 1) * 10, parts) for i, parts in enumerate(chunks)]
    parts = data.draw(st.permutations([i for i, count in enumerate(chunks) for _ in range(count)]))
    missing, committed = list(chunks), 0
    for part in parts:
        missing[part] -= 1
        origins[part].missing -= 1
        committed = tracker.durable().get("p", committed)
        assert all(left == 0 for left in missing[: committed // 10])
    assert committed == len(chunks) * 10


@pytest.fixture
def sequence() -> ChunkSequence:
    """Return the check of an assignment, after a chunk that may begin at any offset: the group's offset decides."""
    sequence = ChunkSequence()
    sequence.admit(0, "a", 5, 8)
    return sequence


def test_consecutive_chunks_are_admitted(sequence: ChunkSequence) -> None:
    """The sequence number rises over all partitions; the offsets are consecutive per partition."""
    sequence.admit(1, "b", 100, 101)
    sequence.admit(2, "a", 8, 8)


@pytest.mark.parametrize(("number", "begin", "end"), [(2, 8, 9), (1, 9, 10), (1, 7, 9), (1, 8, 7)])
def test_a_gap_is_fatal(sequence: ChunkSequence, number: int, begin: int, end: int) -> None:
    """A missing sequence number, a gap or an overlap of offsets, or an end before the begin is fatal."""
    with pytest.raises(Fatal, match="a gap in the fetched records"):
        sequence.admit(number, "a", begin, end)


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


POSITION = LogPosition(299, 1_700_000_000_000, 2**32 - 1, 7, "0a1b2c3d-0000-4000-8000-0123456789ab")
TABLES = {table_digest("lake.item"): 250, table_digest("lake.order"): 300}


@pytest.mark.parametrize("position", [POSITION, LogPosition(0, -1, 0)])
@pytest.mark.parametrize("tables", [TABLES, {}])
def test_a_note_has_the_position_beside_the_tables(position: LogPosition, tables: dict[str, int]) -> None:
    """Both are read back, and a later position replaces the one before it."""
    earlier = with_log_position(encode_note(tables), replace(position, offset=0), 5)
    note = with_log_position(earlier, position, 300)
    assert log_position(note, 300) == position
    assert decode_note(note) == tables
    assert with_log_position(note, None, 300) == encode_note(tables)


def test_the_position_is_that_of_its_offset() -> None:
    """An earlier release repeats the entry with later offsets; a note of another writer has none."""
    note = with_log_position("", POSITION, 300)
    for other in (
        "",
        "mine",
        "headrace1:",
        "headrace1:a:1",
        "headrace1:@",
        "headrace1:@1.2:3",
        "headrace1:@a.b.c.d.e:1",
    ):
        assert log_position(other, 1) is None
    assert log_position(note, 301) is None
    assert with_log_position("mine", POSITION, 300) == "mine"


def test_the_largest_note_fits() -> None:
    """Brokers accept 4096 bytes by default."""
    tables = {table_digest(f"lake.table_{number}"): 2**62 for number in range(1000)}
    largest = replace(POSITION, leader_epoch=2**31 - 1, offset=2**63 - 1, timestamp=2**63 - 1)
    note = with_log_position(encode_note(tables), largest, 2**63 - 1)
    assert MAX_CHARACTERS < len(note) <= 4096


@pytest.mark.parametrize(
    ("found", "same"),
    [
        (POSITION, True),
        (replace(POSITION, leader_epoch=8, topic_id=""), True),  # compared elsewhere
        (replace(POSITION, offset=300, checksum=1), True),  # compaction has removed the record
        (replace(POSITION, checksum=1), False),
        (replace(POSITION, timestamp=1), False),
        (replace(POSITION, offset=0), False),  # the client begins anew behind the end of a log
    ],
)
def test_records_are_compared(found: LogPosition, same: bool) -> None:
    """Another record at the offset, or one before it, shows another log."""
    assert (POSITION.difference(found) is None) is same


def test_the_position_before_an_offset_is_of_what_was_read() -> None:
    """A commit within a chunk carries the last position before it, one at its end the chunk's."""
    logs = ReadLogs([("p", (300, with_log_position("", POSITION, 300))), ("q", (5, ""))])
    assert (logs.before("p", 300), logs.before("q", 5), logs.last("q")) == (POSITION, None, None)
    chunks = [replace(POSITION, offset=offset) for offset in (309, 317)]
    for chunk in chunks:
        logs.read("p", chunk, chunk.offset + 1)
    assert [logs.before("p", offset) for offset in (305, 310, 317, 318, 400)] == [
        POSITION,
        *chunks[:1] * 2,
        *chunks[1:] * 2,
    ]
    assert logs.last("p") == chunks[1]
