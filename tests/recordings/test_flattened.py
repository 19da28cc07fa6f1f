"""Recordings after ``ExtractNewRecordState``, in all of its modes: flattened records give the tables of the dumps."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.comparison import compared_tables, expectation, problems, records_of, rows_of
from recordings.flattening import DELETE_MODES, Unwrap
from recordings.images import key_fields
from recordings.records import DumpedTable, RecordedRecord, Variant, batches, variant
from recordings.replay import Chunk, Replay

NAMES = ("a", "b", "my", "myns", "ora-bytes", "orans-hex", "sqlserver", "mysqlns")
POSITIONS = {
    "postgres": ("source.lsn",),
    "mariadb": ("source.file", "source.pos", "source.row"),
    "mysql": ("source.file", "source.pos", "source.row"),
    "oracle": ("source.commit_scn", "source.txSeq"),
    "sqlserver": ("source.commit_lsn", "source.change_lsn", "source.event_serial_no"),
}
TRUNCATED = ("public.trunc_t", "public.trunc_child", "public.trunc_parent")
"""Tables that were truncated: the transform drops those events, so that rows stand that should not."""
DROPPED = ("public.toast_life", "inv.trunc_me")
"""With *drop* these cannot be right: a key change has no first half, whose values the second half leaves out; and rows
that were truncated stand, but cannot be told from those that were deleted."""


def _tables(of: Variant, deletes: str) -> list[DumpedTable]:
    hidden = TRUNCATED + (DROPPED if deletes == "drop" else ())
    return [table for table in compared_tables(of) if table.name not in hidden]


def _unwrap(of: Variant, deletes: str, where: str) -> Unwrap:
    """The options of the transform.

    ``where`` is the place of the metadata: none, fields, headers, fields without position.
    """
    added = {"nowhere": (), "op only": ("op", "table")}.get(where, ("op", *POSITIONS[of.source], "source.ts_ms"))
    return Unwrap(deletes, added, in_headers=where == "headers")


def _problems(replay: Replay, deletes: str) -> list[str]:
    fields = key_fields(records_of(replay.table, replay.of), replay.of)
    want = expectation(replay.table, replay.of, fields, typed=not replay.of.bare)
    have = rows_of(replay.content(), fields)
    if deletes == "drop":
        have = {key: row for key, row in have.items() if key in want.rows}
    return problems(want, have, reselected=False)


@pytest.mark.parametrize(("where", "size"), [("nowhere", 5), ("op only", 1000), ("fields", 1000), ("headers", 5)])
@pytest.mark.parametrize("deletes", DELETE_MODES)
@pytest.mark.parametrize("name", NAMES)
def test_every_mode(name: str, deletes: str, where: str, size: int) -> None:
    """The table equals the dump for each form of events.

    Only *drop* removes deletes: then the remaining rows are right.
    """
    of, found = variant(name), {}
    for table in _tables(of, deletes):
        replay, records = Replay(of, table), _unwrap(of, deletes, where).flatten(records_of(table, of), of)
        replay.deliver([Chunk(records[begin : begin + size]) for begin in range(0, len(records), size)])
        replay.finish()
        assert replay.refused == set()
        if lines := _problems(replay, deletes):
            found[table.name] = lines
    assert found == {}


@pytest.mark.parametrize("where", ["fields", "headers"])
@pytest.mark.parametrize("deletes", ["tombstone", "rewrite"])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=5, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_stretch_sent_again(name: str, deletes: str, where: str, data: st.DataObject) -> None:
    """With positions late events have no effect, so that a source connector may send any part again.

    The position of a delete is in the fields of its row, or in the headers of its null.
    """
    if (deletes, where) == ("tombstone", "fields"):
        deletes = "rewrite-with-tombstone"  # a null has no fields
    of = variant(name)
    table = data.draw(st.sampled_from(_tables(of, deletes)), label="table")
    records = _unwrap(of, deletes, where).flatten(_streamed_again(data, records_of(table, of)), of)
    replay = Replay(of, table)
    replay.deliver([Chunk(piece) for piece in batches(records, [len(records) // 2])])
    replay.finish()
    assert _problems(replay, deletes) == []


def _streamed_again(data: st.DataObject, records: Sequence[RecordedRecord]) -> list[RecordedRecord]:
    """Repeated events are delivered one by one: all but snapshot reads and halves of key changes."""
    late = [record for record in records if record.value and b'"op":"r"' not in record.value and not _moves(record)]
    again = data.draw(st.lists(st.sampled_from(late), max_size=5) if late else st.just([]), label="again")
    everything = itertools.chain(records, again)
    return [replace(record, offset=offset) for offset, record in enumerate(everything)]


def _moves(record: RecordedRecord) -> bool:
    return any(name.startswith(("__debezium.oldkey", "__debezium.newkey")) for name, _ in record.headers)
