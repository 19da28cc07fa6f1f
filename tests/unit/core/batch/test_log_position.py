"""A committed offset carries the position of the record before it, which identifies the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.batch.log_position import LogPosition, ReadLogs, log_position, with_log_position
from headrace.core.batch.offsets import MAX_CHARACTERS, decode_note, encode_note, table_digest

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
