"""A value that does not fit its column is a bad record with its index: it is not cut or rounded (docs/types.md)."""

from __future__ import annotations

import calendar
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.records.envelopes import change, key

from headrace.core.decode.codec import CUT_DIGITS_NOTE
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.arrow_columns import ZONED_TIMESTAMP, build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.instants import days_in_month, zoned_micros
from headrace.core.model.notes import Note
from headrace.core.model.positions import POSITION_FORMATS, positions
from headrace.core.model.schema import Field, Schema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def decimal(precision: int, scale: int) -> Schema:
    parameters = (("connect.decimal.precision", str(precision)), ("scale", str(scale)))
    return Schema("bytes", name=DECIMAL, parameters=parameters)


VARIABLE = Schema(
    "struct",
    name="io.debezium.data.VariableScaleDecimal",
    fields=(Field("scale", Schema("int32")), Field("value", Schema("bytes"))),
)
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
DATES = [Schema("int32", name=f"{package}.Date") for package in ("io.debezium.time", "org.apache.kafka.connect.data")]
TIMES = [Schema("int64", name=f"io.debezium.time.{name}") for name in ("Timestamp", "MicroTimestamp", "NanoTimestamp")]
WHOLE = [*(Schema(kind) for kind in WIDTHS), *DATES, *TIMES, Schema("int64", name="io.debezium.time.MicroTime")]

FRACTIONS = (1.5, -0.5, math.nan, math.inf, "1", True, Decimal("0.1"), 2**64)
DECIMALS = (b"", b"\x7f\xff\xff", Decimal("1.234"), Decimal("1234.5"), Decimal("NaN"), [1])
INSTANTS = """
2020-13-01T00:00:00Z 2020-00-01T00:00:00Z 2020-02-30T00:00:00Z 2021-02-29T00:00:00Z 2020-01-00T00:00:00Z
2020-01-01T24:00:00Z 2020-01-01T99:00:00Z 2020-01-01T00:60:00Z 2020-01-01T00:00:60Z 2020-01-01T00:00:00 2020-01-01 Z
2020-01-01T00:00:00+99:00 2020-01-01T00:00:00+18:01 2020-01-01T00:00:00+01:60
300000-01-01T00:00:00Z 20200-02-30T00:00:00Z
"""
UNFIT: list[tuple[Schema, Any, Any]] = [
    *((schema, 1, bad) for schema in WHOLE for bad in FRACTIONS),
    *((Schema(kind), 1, bad) for kind, bits in WIDTHS.items() for bad in (1 << (bits - 1), -(1 << (bits - 1)) - 1)),
    *((schema, 1, 2**31) for schema in DATES),
    (Schema("int64", name="io.debezium.time.Timestamp"), 1, 2**62),
    *((Schema("float"), 1.5, bad) for bad in (1e39, -1e39, True, "x", " 1 ", "1_0", "1e39", "inf", b"1")),
    *((Schema("double"), 1.5, bad) for bad in (True, "x", " 1 ", "1_0", "1e400", "nan", "", "\u0663")),
    *((Schema("boolean"), True, bad) for bad in (1, 0, "true", 1.0)),
    *((Schema("string"), "a", bad) for bad in (1, True, 1.5, b"\xff", "\ud800", ["a"])),
    *((decimal(5, 2), b"\1", bad) for bad in DECIMALS),
    *((decimal(20, 2), b"\1", bad) for bad in (b"", b"\x7f" * 9, Decimal("1.234"), Decimal("Infinity"), "1", 1.5)),
    *((decimal(50, 2), b"\1", bad) for bad in (b"", "1", Decimal("NaN"))),
    *(
        (VARIABLE, {"scale": 1, "value": b"\1"}, {"scale": scale, "value": value})
        for scale, value in ((1.5, b"1"), ("1", b"1"), (1, b""), (10**9, b"1"))
    ),
    *((Schema("string", name=ZONED_TIMESTAMP), "2020-01-01T00:00:00Z", bad) for bad in (*INSTANTS.split(), "")),
]


@pytest.mark.parametrize("case", range(len(UNFIT)))
def test_the_error_has_the_index_of_a_value_that_does_not_fit(case: int) -> None:
    """The error has the index of the value among others, also in a list or a struct."""
    schema, good, bad = UNFIT[case]
    for outer, wrap in (
        (schema, lambda value: value),
        (Schema("array", items=schema), lambda value: [value]),
        (Schema("struct", fields=(Field("x", schema),)), lambda value: {"x": value}),
    ):
        with pytest.raises(BadRecord, match="does not fit") as caught:
            build_array(outer, [wrap(good), None, wrap(bad), wrap(good)])
        assert caught.value.index == 2


@given(st.integers(-(10**6), 10**6))
def test_integers_may_have_a_decimal_point(number: int) -> None:
    """JSON without schemas has 1.0 for some integers, so an integer column accepts it."""
    assert build_array(Schema("int32"), [float(number), Decimal(number), number]).to_pylist() == [number] * 3


@given(st.floats(width=32, allow_subnormal=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"]))
def test_floats_are_exact(number: float | str) -> None:
    """A float column keeps every 32-bit number, NaN and the infinities."""
    (found,) = build_array(Schema("float"), [number]).to_pylist()
    assert np.array_equal(np.float32(found), np.float32(float(number)), equal_nan=True)


@given(st.binary(min_size=1, max_size=20), st.integers(0, 10), st.sampled_from([9, 18, 19, 38]))
def test_decimals_are_exact_or_refused(unscaled: bytes, scale: int, precision: int) -> None:
    """A decimal column keeps the exact number of its bytes, or refuses a number with more digits than its precision."""
    number = int.from_bytes(unscaled, "big", signed=True)
    precision = max(precision, scale)
    if abs(number) >= 10**precision:
        with pytest.raises(BadRecord):
            build_array(decimal(precision, scale), [unscaled])
    else:
        (found,) = build_array(decimal(precision, scale), [unscaled]).to_pylist()
        assert found.as_tuple().exponent == -scale
        assert int(f"{found:f}".replace(".", "")) == number


moments = st.integers(-62_135_300_000, 253_402_100_000).map(lambda second: EPOCH + timedelta(0, second, second % 10**6))


@given(moments, st.integers(-18 * 60, 18 * 60), st.integers(0, 6))
def test_instants_of_every_offset(moment: datetime, offset: int, digits: int) -> None:
    """Both parsers of zoned timestamps return the instant that Python calculates."""
    moment = moment.replace(microsecond=moment.microsecond - moment.microsecond % 10 ** (6 - digits))
    fraction = f".{moment.microsecond:06}"[: digits + 1] if digits else ""
    hours, minutes = divmod(abs(offset), 60)
    zone = f"{'-' if offset < 0 else '+'}{hours:02}:{minutes:02}" if offset else "Z"
    text = moment.replace(tzinfo=None).isoformat(timespec="seconds") + fraction + zone
    wanted = (moment - timedelta(minutes=offset) - EPOCH) // timedelta(microseconds=1)
    assert zoned_micros(text) == wanted
    array = build_array(Schema("string", name=ZONED_TIMESTAMP), [text])
    assert array.view(pa.int64()).to_pylist() == [wanted]


@given(st.integers(1, 9999), st.integers(1, 12))
def test_months_have_the_days_of_the_calendar(year: int, month: int) -> None:
    """``days_in_month`` agrees with the Gregorian calendar of Python for all years."""
    assert days_in_month(year, month) == calendar.monthrange(year, month)[1]


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes | None
    offset: int
    partition: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


def _instants(column: str, *texts: str) -> list[Record]:
    records = []
    for offset, text in enumerate(texts):
        row = {"id": "k", "at": "x"} | {column: text}
        typed = (f'"field":"{column}"'.encode(), f'"name":"{ZONED_TIMESTAMP}","field":"{column}"'.encode())
        value = change("c", row, offset + 1).replace(*typed)
        records.append(Record(key({"id": row["id"]}), value, offset))
    return records


def test_digits_beyond_the_microsecond_are_cut_and_noted() -> None:
    """The decoder cuts the seventh digit of SQL Server's datetimeoffset and adds a note, unless only zeros are cut."""
    zeros = TopicDecoder("t", EnvelopeOptions()).decode(_instants("at", "2020-01-01T00:00:00.123456000Z"))
    assert (zeros.errant, zeros.notes) == ([], [])
    decoded = TopicDecoder("t", EnvelopeOptions()).decode(_instants("at", "2020-01-01T00:00:00.1234567Z"))
    assert (decoded.errant, decoded.notes) == ([], [Note(CUT_DIGITS_NOTE, "at")])


def test_digits_beyond_the_microsecond_in_a_key_are_refused() -> None:
    """The decoder refuses a key with such digits: two rows would become one."""
    records = _instants("id", "2020-01-01T00:00:00.1234560Z", "2020-01-01T00:00:00.1234567Z", "2020-01-01T00:00:01Z")
    decoded = TopicDecoder("t", EnvelopeOptions()).decode(records)
    assert [errant.index for errant in decoded.errant] == [1]
    assert sum(map(len, decoded.events)) == 2  # type: ignore[arg-type] # all are Changes


@pytest.mark.parametrize("connector", sorted(POSITION_FORMATS))
def test_position_numbers_that_would_sort_wrongly_are_refused(connector: str) -> None:
    """A position refuses a number below zero or with more digits than the width of its part."""
    form = POSITION_FORMATS[connector]
    texts = {"file": "bin.000001", "commit_scn": "5", "commit_lsn": "0" * 8 + ":00000000:0000"}
    texts["change_lsn"] = texts["commit_lsn"]
    for place, part in enumerate(form.parts):
        for bad in (-1, 2**63 - 1):
            values = [[texts.get(each.field, 1)] * 3 for each in form.parts]
            if part.field in texts or (bad > 0 and part.width >= 19):
                continue
            values[place][1] = bad
            with pytest.raises(BadRecord, match=part.field) as caught:
                positions(form, 0, values, 3)
            assert caught.value.index == 1
