"""The decoder refuses changes of MySQL whose order is unknown, and accepts all others, also repeated ones."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.decode import binlog_order
from headrace.core.decode.envelope import Decoded, EnvelopeOptions, TopicDecoder
from headrace.core.model.events import Changes


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes | None
    offset: int
    partition: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Event:
    """A change of a row at a binary log position. ``more`` are further columns, ``headers`` those of a key change."""

    op: str
    key: int
    pos: int
    row: int = 0
    value: Any = "a"
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[tuple[str, bytes], ...] = ()
    connector: str = "mysql"
    table: str = "items"


def record(event: Event, offset: int) -> Record:
    source = {"connector": event.connector, "name": "shop", "db": "d", "table": event.table}
    source |= {"file": "b.000001", "pos": event.pos, "row": event.row}  # type: ignore[dict-item] # numbers, too
    after = None if event.op == "d" else {"id": event.key, "v": event.value, **event.more}
    value = json.dumps({"op": event.op, "source": source, "after": after}).encode()
    return Record(json.dumps({"id": event.key}).encode(), value, offset, headers=event.headers)


class Topic:
    """A decoder that decodes one partition, fetch after fetch."""

    def __init__(self, **options: Any) -> None:
        self._decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False, **options))
        self._offset = 0

    def fetch(self, *events: Event) -> Decoded:
        records = [record(event, self._offset + place) for place, event in enumerate(events)]
        self._offset += len(records)
        return self._decoder.decode(records)


def refused(*fetches: list[Event], **options: Any) -> list[tuple[int, int]]:
    """Return fetch and index of each refused record."""
    topic = Topic(**options)
    return [(number, each.index) for number, events in enumerate(fetches) for each in topic.fetch(*events).errant]


FIRST, SECOND, LATER = Event("u", 1, 10), Event("u", 1, 10, value="b"), Event("u", 1, 20)


def test_two_changes_of_a_row_at_one_position_are_refused() -> None:
    """The decoder refuses the second change; the error names the option to set. It decodes the rest of the fetch."""
    out = Topic().fetch(FIRST, SECOND, LATER)
    [errant] = out.errant
    assert errant.index == 1
    assert "binlog_transaction_compression=OFF" in str(errant.error)
    assert [len(piece) for piece in out.events if isinstance(piece, Changes)] == [2]


def test_two_changes_of_a_row_in_two_fetches_are_refused() -> None:
    """The decoder refuses the second of two changes of a row at one position if they arrive in two fetches."""
    assert refused([FIRST], [SECOND]) == [(1, 0)]
    assert refused([LATER, FIRST], [Event("u", 2, 10, row=1)], [SECOND]) == [(2, 0)]


def test_a_row_number_that_does_not_rise_is_refused() -> None:
    """The decoder refuses a change whose row number is not above that of the row's last change at the position."""
    events = [Event("u", 1, 5), Event("u", 2, 10, row=0), FIRST, Event("u", 1, 10, row=1), Event("u", 1, 10, value="c")]
    assert refused(events) == [(0, 4)]


def test_an_insert_and_a_delete_at_one_position_are_refused() -> None:
    """The decoder refuses a delete at the position of the row's insert: in the wrong order, the row would remain."""
    assert refused([Event("c", 1, 10), Event("d", 1, 10)]) == [(0, 1)]


def test_changes_of_different_rows_at_one_position_are_accepted() -> None:
    """Statements of a compressed transaction that change different rows give the same result in any order."""
    assert refused([Event("u", 1, 10), Event("u", 2, 10), Event("c", 3, 10)]) == []


def test_a_row_that_one_statement_changes_twice_is_not_refused() -> None:
    """INSERT … ON DUPLICATE KEY UPDATE changes a key twice: rising row numbers give the order."""
    assert refused([Event("u", 1, 10, row=0), Event("u", 1, 10, row=1, value="b")]) == []


def test_the_halves_of_a_key_change_have_one_position() -> None:
    """The decoder accepts the delete and the insert of a key change at one position: they change two rows."""
    old, new = ("__debezium.oldkey", b'{"id":1}'), ("__debezium.newkey", b'{"id":2}')
    assert refused([Event("d", 1, 10, headers=(new,)), Event("c", 2, 10, headers=(old,))]) == []


def test_a_worker_that_starts_within_a_position_refuses_no_change() -> None:
    """A decoder that starts within a position accepts a lower row number: the change may be sent again."""
    again = [Event("u", 1, 10, row=0, value="a"), Event("u", 1, 10, row=1, value="b")]
    assert refused([again[1], *again]) == []
    assert refused([Event("u", 1, 5), again[1], *again]) == [(0, 2)]


def test_a_record_that_is_read_again_is_accepted() -> None:
    """After a rebalance the worker reads offsets again, in other fetches; the decoder refuses none of them."""
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False))
    events = [Event("u", 1, 10, row=0), Event("u", 1, 10, row=1, value="b"), LATER]
    records = [record(event, offset) for offset, event in enumerate(events)]
    for fetch in (records[:2], records[1:], records[:1], records[1:2], records):
        assert decoder.decode(fetch).errant == []


def test_a_repeated_change_may_have_other_types_without_schemas() -> None:
    """Without schemas, the other records of a fetch decide the type of a number and the set of columns."""
    before, first = Event("u", 2, 5, value=7), Event("u", 1, 10, value=1)
    other = Event("u", 2, 20, value=1.5, more={"w": None})
    assert refused([before, first], [first, other]) == []
    assert refused([before, first], [replace(first, value=2), other]) == [(1, 0)]


def test_only_the_connector_of_mysql_is_checked() -> None:
    """The server of MariaDB does not compress transactions; an append-only table of all changes needs no order."""
    assert refused([Event("u", 1, 10, value=value, connector="mariadb") for value in "ab"]) == []
    assert refused([FIRST, SECOND], keyless=True) == []


def test_large_groups_are_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder discards the changes of a position above a limit; later changes at that position are not checked."""
    monkeypatch.setattr(binlog_order, "LARGEST_GROUP", 3)
    many = [Event("u", key, 10, row=key) for key in range(3)]
    assert refused([LATER], many, [Event("u", 5, 10, row=5)], [Event("u", 0, 10, row=0)]) == []


def shifted(pos: int, highest: int) -> list[Event]:
    """Return the row event of ``UPDATE t SET id = id + 1 ORDER BY id DESC`` of the keys 1 to ``highest``."""
    return [
        half
        for row, key in enumerate(range(highest, 0, -1))
        for half in (Event("d", key, pos, row), Event("c", key + 1, pos, row, f"{pos}-{row}"))
    ]


def test_a_repeated_shift_of_keys_is_accepted() -> None:
    """Two rows of one event change the same key; the connector sends it again from its middle, then from before it."""
    log = [Event("c", 9, 5), *shifted(10, 3), Event("u", 9, 20)]
    of_three = [event for event in log if event.key == 3]  # its partition, or what compaction keeps
    assert refused(log, log[2:], log[5:], log) == []
    assert refused([log[-1]], log[4:6], log) == []
    assert refused([Event("u", 6, 5), Event("u", 6, 20), *of_three[1:], *of_three]) == []


def test_a_worker_that_skips_offsets_refuses_no_change() -> None:
    """Another worker had the partition for a time, so this decoder has not read the first change of a position."""
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False))
    events = [Event("c", 9, 5), *shifted(10, 3), *shifted(10, 3)]
    records = [record(event, offset) for offset, event in enumerate(events)]
    for fetch in (records[:1], records[4:6], records[7:]):
        assert decoder.decode(fetch).errant == []


def test_a_refused_change_is_no_gap() -> None:
    """With errors.tolerance=all, the decoder checks the changes after a refused one as it does others."""
    two, again = [Event("u", 2, 10, row=0), Event("u", 3, 10, row=1)], Event("u", 3, 10, value="c")
    assert refused([Event("u", 1, 5), FIRST, SECOND, *two, again]) == [(0, 2), (0, 5)]
    assert refused([Event("u", 1, 5), FIRST], [SECOND], [*two, again]) == [(1, 0), (2, 2)]
    assert refused([Event("u", 1, 5), FIRST, SECOND], [*two, again]) == [(0, 2), (1, 2)]


def test_equal_keys_of_two_tables_are_two_rows() -> None:
    """With several tables in a topic, the decoder accepts changes at one position of rows with equal keys."""
    assert refused([FIRST, replace(SECOND, table="orders")], tables_apart=True) == []


@st.composite
def row_events(draw: st.DrawFn) -> list[Event]:
    """An uncompressed binary log: row events at rising positions, with changes of any rows, or a shift of all keys."""
    events: list[Event] = []
    for number in range(1, draw(st.integers(1, 3)) + 1):
        if draw(st.booleans()):
            events += shifted(10 * number, draw(st.integers(2, 3)))
        else:
            keys = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
            events += [Event("u", key, 10 * number, row, f"{number}-{row}") for row, key in enumerate(keys)]
    return events


@st.composite
def topics(draw: st.DrawFn) -> list[Record]:
    """A partition of a topic whose connector sent parts of a log, each from the end of the last one or before it."""
    events, sent, end = draw(row_events()), [], 0
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, end))
        end = min(begin + draw(st.integers(1, 6)), len(events))
        sent += events[begin:end]
    sent += events[draw(st.integers(0, end)) :]
    partitions = draw(st.integers(1, 3))
    chosen = [event for event in sent if event.key % partitions == sent[0].key % partitions]
    records = [record(event, offset) for offset, event in enumerate(chosen)]
    cleaned = draw(st.integers(0, len(records))) if draw(st.booleans()) else 0
    last = {each.key: each.offset for each in records[:cleaned]}
    return [each for each in records if each.offset >= cleaned or last[each.key] == each.offset]


@given(records=topics(), data=st.data())
def test_no_repeated_part_of_a_log_is_refused(records: list[Record], data: st.DataObject) -> None:
    """The result does not depend on where a worker starts or resumes, on the limits of fetches, or on compaction."""
    decoder = TopicDecoder("t", EnvelopeOptions(key_schemas=False, value_schemas=False))
    places, at = st.integers(0, len(records) - 1), 0
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(places) if at >= len(records) or data.draw(st.booleans()) else at
        end = data.draw(st.integers(at + 1, len(records)))
        assert decoder.decode(records[at:end]).errant == []
        at = end


@given(
    statements=st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=4),
    cuts=st.sets(st.integers(1, 12), max_size=3),
)
def test_every_unordered_change_of_a_compressed_transaction_is_refused(
    statements: list[list[int]], cuts: set[int]
) -> None:
    """The decoder refuses every change whose row number is not above that of its row's changes before it."""
    changes = [(key, row, number) for number, keys in enumerate(statements) for row, key in enumerate(keys)]
    events = [Event("u", 1, 5), *(Event("u", key, 10, row, f"{number}-{row}") for key, row, number in changes)]
    highest, hidden = dict.fromkeys(range(1, 4), -1), []
    for offset, (key, row, _) in enumerate(changes, 1):
        if row <= highest[key]:
            hidden.append(offset)
        highest[key] = max(row, highest[key])
    edges = [0, *sorted(cut for cut in cuts if cut < len(events)), len(events)]
    found = refused(*[events[begin:end] for begin, end in itertools.pairwise(edges)])
    assert [edges[fetch] + index for fetch, index in found] == hidden
