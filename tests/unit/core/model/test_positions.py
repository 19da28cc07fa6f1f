"""Positions are texts that sort in the order of the source's log, or of ``ordering.field``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import NO_POSITIONS, EnvelopeOptions, TopicDecoder
from headrace.core.decode.flattened import MetadataNames
from headrace.core.model.errors import BadRecord, ConfigError
from headrace.core.model.events import NO_POSITION, Changes
from headrace.core.model.positions import (
    NO_FORMAT,
    POSITION_FORMATS,
    Ordering,
    field_values,
    ordered_positions,
    ordering,
    position_format,
    positions,
)

COUNT = st.integers(0, 2**63 - 1)
SCN = st.integers(0, 10**38 - 1)
LSN_PARTS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
Order = tuple[Any, ...]
Fields = tuple[Any, ...]


def _binlog(order: Order) -> Fields:
    """Return file, position and row; file numbers have six digits or more, as in ``mysql-bin.1000000``."""
    return f"my.bin-1.{order[0]:06d}", order[1], order[2]


def _oracle(order: Order) -> Fields:
    return str(order[0]), order[1]


def _log_sequence_number(order: Order) -> str:
    return f"{order[0]:08x}:{order[1]:08x}:{order[2]:04x}"


def _sql_server(order: Order) -> Fields:
    return _log_sequence_number(order[0]), _log_sequence_number(order[1]), order[2]


BINLOG = (st.tuples(st.integers(0, 2**31), COUNT, st.integers(0, 2**31)), _binlog)
SOURCES: dict[str, tuple[st.SearchStrategy[Order], Callable[[Order], Fields]]] = {
    "postgresql": (st.tuples(COUNT), tuple),
    "mysql": BINLOG,
    "mariadb": BINLOG,
    "oracle": (st.tuples(SCN, COUNT), _oracle),
    "sqlserver": (st.tuples(LSN_PARTS, LSN_PARTS, st.integers(0, 2**63 - 1)), _sql_server),
}
"""By connector: the numbers that order its changes, and the fields of its source block that contain them."""


def texts(connector: str, fields: list[Fields], epoch: int = 0) -> list[bytes]:
    columns = list(zip(*fields, strict=True))
    found: list[bytes] = positions(position_format(connector), epoch, columns, len(fields)).tolist()
    return found


def test_every_format_is_tested() -> None:
    """Every connector with a position format has an order in ``SOURCES``."""
    assert POSITION_FORMATS.keys() == SOURCES.keys()


@pytest.mark.parametrize("connector", SOURCES)
@given(data=st.data())
def test_positions_sort_as_their_source(connector: str, data: st.DataObject) -> None:
    """Positions compare like the source's numbers, with any number of digits."""
    orders, fields = SOURCES[connector]
    left, right = data.draw(orders), data.draw(orders)
    first, second = texts(connector, [fields(left), fields(right)])
    assert ((first > second) - (first < second)) == ((left > right) - (left < right))


@pytest.mark.parametrize("connector", SOURCES)
@given(data=st.data(), epoch=st.integers(0, 99998))
def test_a_higher_epoch_outranks_every_position(connector: str, data: st.DataObject, epoch: int) -> None:
    """A position of a higher epoch sorts above all of a lower one; all positions of a connector have one width."""
    orders, fields = SOURCES[connector]
    left, right = data.draw(orders), data.draw(orders)
    (before,), (after,) = texts(connector, [fields(left)], epoch), texts(connector, [fields(right)], epoch + 1)
    assert after > before
    assert len(after) == len(before) == position_format(connector).width


@pytest.mark.parametrize(
    ("connector", "fields", "text"),
    [
        ("postgresql", (7,), b"00000.00000000000000000007"),
        ("mariadb", ("mybin.000002", 551, 0), b"00000.0000000002.00000000000000000551.0000000000"),
        ("oracle", ("5160", 1), b"00000.%038d.%020d" % (5160, 1)),
        ("oracle", (5160, 1), b"00000.%038d.%020d" % (5160, 1)),
        (
            "sqlserver",
            ("0000002A:00000b68:0003", "0000002a:00000b68:0002", 2),
            b"00000.0000002a:00000b68:0003.0000002a:00000b68:0002.%020d" % 2,
        ),
    ],
)
def test_the_stored_format(connector: str, fields: Fields, text: bytes) -> None:
    """Positions have the text format that existing tables contain."""
    assert texts(connector, [fields]) == [text]


@pytest.mark.parametrize("connector", SOURCES)
def test_an_event_without_one_of_its_fields_has_no_position(connector: str) -> None:
    """An event that lacks one of the fields has the position b"", which sorts below all others."""
    orders = {"postgresql": (7,), "oracle": (7, 7), "sqlserver": ((7, 7, 7), (7, 7, 7), 7)}
    whole = SOURCES[connector][1](orders.get(connector, (7, 7, 7)))
    for place in range(len(whole)):
        lacking = tuple(None if i == place else value for i, value in enumerate(whole))
        first, second = texts(connector, [lacking, whole])
        assert first == NO_POSITION < second


@pytest.mark.parametrize(
    ("connector", "fields"),
    [
        ("mysql", ("mysql-bin", 4, 0)),
        ("mysql", ("mysql-bin.12345678901", 4, 0)),
        ("oracle", ("5160,5161", 1)),
        ("oracle", ("1" * 39, 1)),
        ("sqlserver", ("27:ac0:2", "00000027:00000ac0:0002", 1)),
    ],
)
def test_a_field_that_gives_no_order_is_refused(connector: str, fields: Fields) -> None:
    """A field without its connector's format is a bad record at its index, and gets no wrong position."""
    good = ("mysql-bin.000001", 4, 0) if connector == "mysql" else ("1", 1)
    good = ("00000027:00000ac0:0002", "00000027:00000ac0:0002", 1) if connector == "sqlserver" else good
    with pytest.raises(BadRecord, match="does not have its connector's format") as refused:
        texts(connector, [good, fields, good])
    assert refused.value.index == 1


def test_other_connectors_have_no_positions() -> None:
    """Events of a connector without a position format have none: arrival orders them (``merge.md`` section 2)."""
    assert position_format("vitess") is NO_FORMAT
    found = positions(NO_FORMAT, 0, [], 2)
    assert found.tolist() == [NO_POSITION, NO_POSITION]
    assert found.dtype.kind == np.bytes_("").dtype.kind


INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.integers(-(10**38) + 1, 10**38 - 1)
PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=64)
MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - zones are added as text
ZONES = st.integers(-14 * 60, 14 * 60)
FEW = settings(max_examples=30)
ARRIVALS = st.tuples(INT64, st.integers(0, 2**63 - 1))


@dataclass
class Record:
    value: bytes | None
    key: bytes = b'{"id":1}'
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    offset: int = 0
    partition: int = 0
    timestamp: int = 7


def ordered_texts(by: str, values: pa.Array, *arrivals: tuple[int, int], epoch: int = 0) -> list[bytes]:
    """Return the positions of ``values`` with these source times and offsets."""
    named = ordering(by)
    assert named is not None
    times, offsets = np.array(arrivals or [(0, 0)] * len(values), np.int64).T
    found: list[bytes] = ordered_positions(named, epoch, values, times, offsets).tolist()
    return found


def assert_sorted(by: str, values: pa.Array, left: Any, right: Any) -> None:
    first, second = ordered_texts(by, values)
    assert len(first) == len(second)
    assert ((first > second) - (first < second)) == ((left > right) - (left < right))


@FEW
@given(INT64, INT64)
def test_numbers_sort_as_numbers(left: int, right: int) -> None:
    """Integers sort as numbers, negative ones included; dates and timestamps sort by their stored numbers."""
    assert_sorted("n", pa.array([left, right], pa.int64()), left, right)
    assert_sorted("n", pa.array([left, right]).cast(pa.timestamp("us")), left, right)
    small = [left % 2**32 - 2**31, right % 2**32 - 2**31]
    assert_sorted("n", pa.array(small, pa.int32()).view(pa.date32()), *small)


@FEW
@given(NUMBERS, NUMBERS)
def test_number_sorts_texts_and_decimals_as_numbers(left: int, right: int) -> None:
    """``number(n)`` sorts texts and decimals as numbers; a text and a decimal of one number have one position."""
    assert_sorted("number(n)", pa.array([f"{left:05d}", str(right)]), left, right)
    decimals = pa.array([left, right], pa.decimal128(38, 0))
    assert ordered_texts("number(n)", decimals) == ordered_texts("number(n)", pa.array([str(left), str(right)]))


@FEW
@given(PRINTABLE, PRINTABLE)
def test_texts_sort_as_texts(left: str, right: str) -> None:
    """``text(n)`` compares texts character by character, without spaces at the end."""
    assert_sorted("text(n)", pa.array([left, right]), left.rstrip(" "), right.rstrip(" "))


@FEW
@given(MOMENTS, MOMENTS, ZONES, ZONES)
def test_time_sorts_texts_as_times(left: datetime, right: datetime, zone: int, other: int) -> None:
    """``time(n)`` sorts texts as times, with any zone and any number of fractional digits."""
    written = [
        f"{(moment + timedelta(minutes=shift)).isoformat()}{'-' if shift < 0 else '+'}{abs(shift) // 60:02d}:"
        f"{abs(shift) % 60:02d}"
        for moment, shift in ((left, zone), (right, other))
    ]
    assert_sorted("time(n)", pa.array(written), left, right)


@FEW
@given(INT64, INT64, ARRIVALS, ARRIVALS)
def test_equal_values_go_by_arrival(value: int, other: int, left: tuple[int, int], right: tuple[int, int]) -> None:
    """Positions sort by epoch, then value, then source time, then offset."""
    first, second = ordered_texts("n", pa.array([value, value]), left, right)
    assert ((first > second) - (first < second)) == ((left > right) - (left < right))
    first, second = ordered_texts("n", pa.array([value, other]), left, right)
    assert value == other or (first > second) == (value > other)
    assert ordered_texts("n", pa.array([value]), left, epoch=1) > ordered_texts("n", pa.array([other]), right, epoch=0)


def test_the_stored_format_of_ordered_fields() -> None:
    """Positions have the text format that existing tables contain."""
    tail = f".{2**63 + 5:020d}.{2**63 + 6:020d}".encode()
    assert ordered_texts("n", pa.array([-1]), (5, 6)) == [b"00000.n%020d" % (2**63 - 1) + tail]
    assert ordered_texts("number(n)", pa.array(["-1"]), (5, 6)) == [b"00000.d0" + b"9" * 38 + tail]
    assert ordered_texts("n", pa.array(["b7"]), (5, 6)) == [b"00000.t" + b"b7".ljust(64) + tail]
    assert ordered_texts("n", pa.array([None], pa.int64()), (5, 6)) == [NO_POSITION]


@pytest.mark.parametrize(
    "values",
    [["9"], ["-10"], ["1.5"], ["2024-01-02"], ["2024-01-02T03:04:05Z"], ["2024-01-02 03:04:05"]],
)
def test_a_text_that_may_be_a_number_or_a_time_is_refused(values: list[str]) -> None:
    """A text that may be a number or a time requires number(n), time(n) or text(n), since as text 9 sorts after 10."""
    with pytest.raises(ConfigError, match=r"number\(n\), time\(n\) or text\(n\)") as refused:
        ordered_texts("n", pa.array(values))
    assert refused.value.key == "ordering.field"
    assert ordered_texts("text(n)", pa.array(values))


@pytest.mark.parametrize(
    ("by", "values", "words"),
    [
        ("n", pa.array([1.5]), "n has type double, which cannot be ordered"),
        ("n", pa.array([True]), "type bool"),
        ("n", pa.array([b"x"]), "type binary"),
        ("n", pa.array([1], pa.decimal128(9, 0)), r"use number\(n\) if it contains integers"),
        ("number(n)", pa.array([1], pa.decimal128(9, 2)), "as a number"),
        ("time(source.n)", pa.array([1.5]), "source.n has type double, which cannot be ordered as a time"),
        ("text(n)", pa.array([1]), "as a text"),
    ],
)
def test_a_type_without_an_order_is_refused(by: str, values: pa.Array, words: str) -> None:
    """A column whose type has no order is a configuration error, since it concerns all events."""
    with pytest.raises(ConfigError, match=words):
        ordered_texts(by, values)


@pytest.mark.parametrize(
    ("by", "value"),
    [("number(n)", "x"), ("number(n)", "1" * 39), ("time(n)", "soon"), ("n", "é"), ("n", "a\tb"), ("n", "a" * 65)],
)
def test_a_value_without_an_order_is_a_bad_record(by: str, value: str) -> None:
    """A value that cannot be ordered is a bad record at its index, and gets no wrong position."""
    with pytest.raises(BadRecord, match="cannot be ordered") as refused:
        ordered_texts(by, pa.array([None, value]))
    assert refused.value.index == 1
    assert value not in str(refused.value) or len(value) == 1


def test_a_field_of_the_source_block_is_a_number_or_a_text() -> None:
    """A field of the source block must be an integer or a text; a boolean, a float or a struct is a bad record."""
    assert field_values([7, None]).to_pylist() == [7, None]
    assert field_values([2**63, "x"]).to_pylist() == [str(2**63), "x"]
    for odd in (True, 1.5, {"a": 1}):
        with pytest.raises(BadRecord) as refused:
            field_values([1, odd])
        assert refused.value.index == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", None),
        ("v", Ordering("v")),
        (" number( source.lsn ) ", Ordering("lsn", True, "number")),
        ("text(a b)", Ordering("a b", False, "text")),
    ],
)
def test_how_a_field_is_named(text: str, named: Ordering | None) -> None:
    """The option names a column, or ``source.`` and a field, optionally within number(), text() or time()."""
    assert ordering(text) == named


@pytest.mark.parametrize("text", ["source.", "size(v)", "number()", "number(v", "v)"])
def test_what_names_no_field_is_refused(text: str) -> None:
    """A text that names no field is a configuration error of ``ordering.field``."""
    with pytest.raises(ConfigError, match="is not a field") as refused:
        ordering(text)
    assert refused.value.key == "ordering.field"


# -- in records --------------------------------------------------------------------------------------------------------


def envelope(op: str, v: int | None, connector: str = "vitess", **source: Any) -> Record:
    after = None if op == "d" else {"id": 1, "v": v}
    block = {"connector": connector, "name": "s", "db": "d", "table": "t"} | source
    return Record(json.dumps({"op": op, "source": block, "after": after}).encode())


def flat(row: dict[str, Any], **headers: Any) -> Record:
    return Record(
        json.dumps({"id": 1} | row).encode(), headers=[(n, json.dumps(v).encode()) for n, v in headers.items()]
    )


def decode(by: str, *records: Record) -> Decoded:
    for offset, each in enumerate(records):
        each.offset = offset
    named = ordering(by)
    added = MetadataNames(ordering=named.field if named is not None and named.of_source else None)
    return TopicDecoder("t", EnvelopeOptions(False, False, ordering=named, added=added)).decode(records)


def values(decoded: Decoded) -> list[int | None]:
    """Return the numbers that the events' positions contain."""
    assert decoded.errant == []
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    found = changes.version.position.tolist()
    return [int(each[7:27]) - 2**63 if each else None for each in found]


def test_a_column_orders_changes_but_not_reads_and_deletes() -> None:
    """A column orders creates and updates; reads and deletes get no position, and the topic gets a note."""
    decoded = decode("v", envelope("c", 5), envelope("u", -5), envelope("r", 7), envelope("d", 8), envelope("u", None))
    assert values(decoded) == [5, -5, None, None, None]
    assert decoded.notes == [NO_POSITIONS]


@pytest.mark.parametrize("name", ["mod_number", "ts_us"])
def test_a_field_of_the_source_block_orders_deletes_as_well(name: str) -> None:
    """A field of the source block orders creates, updates and deletes, also if Headrace reads that field anyway."""
    events = [envelope(op, 0, **{name: place}) for place, op in enumerate("cudr" * 2)]
    assert values(decode(f"source.{name}", *events, *events)) == [0, 1, 2, None, 4, 5, 6, None] * 2


def test_a_source_with_positions_keeps_them() -> None:
    """Events of PostgreSQL keep their lsn as position, although ``ordering.field`` names a column."""
    (changes,) = decode("v", envelope("u", 5, "postgresql", lsn=9)).events
    assert isinstance(changes, Changes)
    assert changes.version.position.tolist() == [b"00000.%020d" % 9]


def test_flattened_records_are_ordered_by_a_column() -> None:
    """A column orders flattened records, except those that ``__op`` marks as reads."""
    assert values(decode("v", flat({"v": 3}), flat({"v": 4, "__op": "u"}), flat({"v": 4, "__op": "r"}))) == [3, 4, None]


@pytest.mark.parametrize("name", ["mod_number", "commit_ts_ms", "pos"])
def test_flattened_records_are_ordered_by_an_added_field(name: str) -> None:
    """An added field or header orders flattened records with a known operation, and becomes no column of the table."""
    records = [
        flat({f"__{name}": 3, "__op": "u"}),
        flat({f"__source_{name}": 4, "__op": "d"}),
        flat({}, **{f"__{name}": 5, "__op": "c"}),
        flat({f"__{name}": 6}),
    ]
    decoded = decode(f"source.{name}", *records)
    assert values(decoded) == [3, 4, 5, None]
    (changes,) = decoded.events
    assert isinstance(changes, Changes)
    assert [column.name for column in changes.columns] == ["id"]
