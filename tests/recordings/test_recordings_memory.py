"""Every recording gives the tables of its dump in memory: any batches, any redelivery, any variant.

Those of Oracle, SQL Server and MySQL are constructed (``tests/fixtures``), the others are real. Differences from the
dump are those of ``differences.py`` and no others.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recordings.comparison import compared_tables, expectation, problems, records_of, rows_of
from recordings.differences import REFUSED_OFFSETS
from recordings.images import key_fields, key_text
from recordings.records import ALL, AVRO, MARIADB, DumpedTable, RecordedRecord, Variant, batches, variant
from recordings.replay import Chunk, Killed, Replay

from headrace.core.decode.envelope_events import OLD_KEY_HEADER

ANY_DELIVERY = settings(
    max_examples=12,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _any_table(data: st.DataObject, of: Variant) -> DumpedTable:
    tables = {table.name: table for table in compared_tables(of)}
    return tables[data.draw(st.sampled_from(sorted(tables)), label="table")]


def _problems(replay: Replay, records: Sequence[RecordedRecord]) -> list[str]:
    fields = key_fields(records, replay.of)
    want = expectation(replay.table, replay.of, fields, typed=not replay.of.bare)
    return problems(want, rows_of(replay.content(), fields), reselected=False)


def _cuts(data: st.DataObject, begin: int, end: int) -> list[int]:
    return data.draw(st.lists(st.integers(begin, end), max_size=8), label="chunks begin at")


def _chunks(data: st.DataObject, records: Sequence[RecordedRecord], begin: int, end: int) -> Iterator[Chunk]:
    cuts = [cut - begin for cut in _cuts(data, begin, end)]
    for piece in batches(records[begin:end], cuts):
        yield Chunk(piece, flush=data.draw(st.booleans(), label="the writer is free"))


@pytest.mark.parametrize("size", [10_000, 1], ids=["one batch", "single events"])
@pytest.mark.parametrize("name", [*ALL, AVRO])
def test_every_table(name: str, size: int) -> None:
    """All tables of a recording equal the dump, with one batch per topic or one per event."""
    of = variant(name)
    found = {}
    for table in compared_tables(of):
        replay, records = Replay(of, table), records_of(table, of)
        replay.deliver([Chunk(piece) for piece in batches(records, range(0, len(records), size))])
        replay.finish()
        found[table.name] = _problems(replay, records)
        assert replay.refused == REFUSED_OFFSETS.get((name, table.name), frozenset())
    assert {table: lines for table, lines in found.items() if lines} == {}


@pytest.mark.parametrize("name", ALL)
@ANY_DELIVERY
@given(data=st.data())
def test_any_batches_and_kills(name: str, data: st.DataObject) -> None:
    """The table equals the dump for any end of a batch, and any kill and restart of the worker."""
    of = variant(name)
    table = _any_table(data, of)
    replay, records = Replay(of, table), records_of(table, of)
    begin = 0
    for end in data.draw(st.lists(st.integers(1, len(records)), max_size=2), label="killed at"):
        replay.deliver(list(_chunks(data, records, begin, max(begin, end))))
        replay.restart()
        begin = replay.durable = data.draw(st.integers(0, replay.durable), label="goes on at")
    replay.deliver(list(_chunks(data, records, begin, len(records))))
    replay.finish()
    assert _problems(replay, records) == []


@pytest.mark.parametrize("name", MARIADB)
def test_primary_key_declared_anew(name: str) -> None:
    """A worker that starts after the change finds the rows that were written with the other order of key columns."""
    of = variant(name)
    table = next(table for table in compared_tables(of) if table.name == "inv.orders")
    records = records_of(table, of)
    orders = [tuple(json.loads(key_text(record, of))) for record in records]
    turned = orders.index(("oid", "region"))
    assert orders[0] == ("region", "oid")
    for begin in range(turned, len(records), 20):
        replay = Replay(of, table)
        replay.deliver([Chunk(records[:begin])])
        replay.restart()
        replay.deliver([Chunk(records[begin:])])
        assert _problems(replay, records) == []


@pytest.mark.parametrize("name", ALL)
@ANY_DELIVERY
@given(data=st.data(), dies_at=st.integers(1, 6))
def test_kill_between_ledger_and_table(name: str, data: st.DataObject, dies_at: int) -> None:
    """Deletes that are in the ledger, but not yet in the table, lose nothing when their batch is read again."""
    of = variant(name)
    table = _any_table(data, of)
    replay, records = Replay(of, table, dies_at=dies_at), records_of(table, of)
    with contextlib.suppress(Killed):
        replay.deliver(list(_chunks(data, records, 0, len(records))))
        replay.finish()
    replay.restart()
    replay.deliver([Chunk(records[replay.durable :])] if replay.durable < len(records) else [])
    replay.finish()
    assert _problems(replay, records) == []


@pytest.mark.parametrize("name", ALL)
@ANY_DELIVERY
@given(data=st.data())
def test_stretch_sent_again(name: str, data: st.DataObject) -> None:
    """A source connector restarts and sends a sequence of changes again, at new offsets: the table does not change."""
    of = variant(name)
    table = _any_table(data, of)
    records = _with_stretch_again(data, records_of(table, of), table)
    replay = Replay(of, table)
    replay.deliver(list(_chunks(data, records, 0, len(records))))
    replay.finish()
    assert _problems(replay, records) == []


def _with_stretch_again(
    data: st.DataObject, records: Sequence[RecordedRecord], table: DumpedTable
) -> list[RecordedRecord]:
    """Only streamed changes are repeated: a snapshot has its own rules (``merge.md`` section 2.2).

    A connector stops and resumes between changes: a delete and its tombstone are one change, and so is a key change. If
    it stopped within a key change, the old row would be gone when the new one is sent again, and only a database would
    have its cells.
    """
    streamed = [i for i, record in enumerate(records) if _begins_a_change(record)]
    places = [*streamed, len(records)] if table.name != "public.incr_t" else [len(records)]
    begin, end = sorted(data.draw(st.sampled_from(places), label="stretch") for _ in range(2))
    again = itertools.chain(records[:end], records[begin:])
    return [replace(record, offset=offset) for offset, record in enumerate(again)]


def _begins_a_change(record: RecordedRecord) -> bool:
    second_half = any(name == OLD_KEY_HEADER for name, _ in record.headers)
    return record.value is not None and b'"op":"r"' not in record.value and not second_half
