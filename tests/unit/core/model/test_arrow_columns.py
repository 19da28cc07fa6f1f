"""``build_array`` converts Connect values to Arrow columns (``reselect.md`` section 8.2)."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.arrow_columns import (
    DECIMAL,
    VARIABLE_SCALE_DECIMAL,
    ZONED_TIMESTAMP,
    arrow_type,
    build_array,
    plain_text,
)
from headrace.core.model.errors import BadRecord
from headrace.core.model.instants import INFINITY_MICROS, NEGATIVE_INFINITY_MICROS, days_from_civil, zoned_micros
from headrace.core.model.schema import Field, Schema


def decimal(precision: int, scale: int) -> Schema:
    return Schema(
        "bytes", name=DECIMAL, parameters=(("connect.decimal.precision", str(precision)), ("scale", str(scale)))
    )


def unscaled(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def padded(number: int, padding: int) -> bytes:
    """Return the unscaled bytes after ``padding`` bytes of sign extension."""
    return (b"\xff" if number < 0 else b"\x00") * padding + unscaled(number)


@given(st.lists(st.none() | st.tuples(st.integers(-(10**18) + 1, 10**18 - 1), st.integers(0, 4))), st.integers(0, 18))
def test_small_decimals_are_exact(numbers: list[tuple[int, int] | None], scale: int) -> None:
    """Decimals of up to 18 digits convert exactly, for every sign and scale, also with superfluous leading bytes."""
    values = [None if each is None else padded(*each) for each in numbers]
    wanted = [None if each is None else Decimal(each[0]).scaleb(-scale) for each in numbers]
    assert build_array(decimal(18, scale), values).to_pylist() == wanted


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_large_decimals_are_exact(number: int) -> None:
    """Decimals of up to 38 digits convert exactly."""
    assert build_array(decimal(38, 0), [unscaled(number)]).to_pylist() == [Decimal(number)]


def test_a_decimal_beyond_its_precision_is_a_bad_record() -> None:
    """A decimal with more digits than its precision is a bad record at its index; it is never truncated."""
    with pytest.raises(BadRecord) as caught:
        build_array(decimal(3, 0), [unscaled(999), unscaled(1000)])
    assert caught.value.index == 1


def test_decimals_wider_than_a_lake_holds_become_exact_text() -> None:
    """PostgreSQL's numeric(5,-2), which has scale 2046 in Connect, becomes the text of its exact value."""
    schema = decimal(5, 2046)
    assert arrow_type(schema) == pa.string()
    assert build_array(schema, [unscaled(123 * 10**2046)]).to_pylist() == ["123"]


@pytest.mark.parametrize(
    ("value", "text"),
    [("1.500", "1.5"), ("100", "100"), ("-0.0", "0"), ("1E+3", "1000"), ("-0.0010", "-0.001"), ("1E-9", "0.000000001")],
)
def test_equal_numbers_have_equal_texts(value: str, text: str) -> None:
    """``plain_text`` writes a decimal without exponent, trailing zeros or negative zero."""
    assert plain_text(Decimal(value)) == text


def test_variable_scale_decimals_become_text() -> None:
    """A VariableScaleDecimal becomes the text of its number."""
    schema = Schema("struct", name=VARIABLE_SCALE_DECIMAL)
    assert build_array(schema, [{"scale": 1, "value": b"\x0f"}, None]).to_pylist() == ["1.5", None]


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2024-02-29T13:14:15.5+02:00", 1709205255500000),
        ("infinity", INFINITY_MICROS),
        ("-infinity", NEGATIVE_INFINITY_MICROS),
        ("-4712-01-01T00:00:00Z", -210863520000000000),
        ("+294246-12-31T23:59:59Z", 9223371244799000000),
    ],
)
def test_zoned_timestamps_of_any_year(text: str, micros: int) -> None:
    """Any ZonedTimestamp within int64 microseconds converts exactly, infinity and years before 0 included."""
    assert zoned_micros(text) == micros
    column = build_array(Schema("string", name=ZONED_TIMESTAMP), [text, None, "2024-01-01T00:00:00Z"])
    assert column.view(pa.int64()).to_pylist() == [micros, None, 1704067200000000]


def test_millis_become_micros_and_infinity_stays() -> None:
    """Connect timestamps convert from milliseconds to microseconds; the numbers for infinity do not change."""
    schema = Schema("int64", name="org.apache.kafka.connect.data.Timestamp")
    column = build_array(schema, [-1, INFINITY_MICROS, NEGATIVE_INFINITY_MICROS, None])
    assert column.view(pa.int64()).to_pylist() == [-1000, INFINITY_MICROS, NEGATIVE_INFINITY_MICROS, None]


def test_floats_read_what_json_cannot_write() -> None:
    """NaN and the infinities, which JSON contains as text, become float values."""
    column = build_array(Schema("double"), [1.5, "NaN", "-Infinity", None])
    assert repr(column.to_pylist()) == "[1.5, nan, -inf, None]"


def test_nested_values_keep_nulls_at_every_depth() -> None:
    """Lists, maps and structs keep nulls as values and as members."""
    point = Schema("struct", fields=(Field("x", Schema("double")), Field("wkb", Schema("bytes"))))
    lists = build_array(Schema("array", items=Schema("int32")), [[1, None], None, []])
    maps = build_array(Schema("map", keys=Schema("string"), values=Schema("string")), [{"a": None}, None, {}])
    structs = build_array(point, [{"x": 1.0, "wkb": None}, None])
    assert lists.to_pylist() == [[1, None], None, []]
    assert maps.to_pylist() == [[("a", None)], None, []]
    assert structs.to_pylist() == [{"x": 1.0, "wkb": None}, None]


def test_a_value_that_does_not_fit_is_a_bad_record_at_its_index() -> None:
    """A value that does not fit is a bad record with its index; the message names the type and not the value."""
    with pytest.raises(BadRecord, match="does not fit int32") as caught:
        build_array(Schema("int32"), [1, 2**40])
    assert caught.value.index == 1
    assert str(2**40) not in str(caught.value)


def test_days_from_civil_agrees_with_the_calendar() -> None:
    """``days_from_civil`` returns the number of days since 1970-01-01 for days before and after it."""
    assert [days_from_civil(*day) for day in [(1970, 1, 1), (2000, 3, 1), (1969, 12, 31), (0, 3, 1)]] == [
        0,
        11017,
        -1,
        -719468,
    ]


@pytest.mark.parametrize("scale", [1 << 31, -(1 << 63), 1 << 63, 300_000])
def test_a_number_of_more_zeros_than_can_be_written_is_a_bad_record(scale: int) -> None:
    """A VariableScaleDecimal whose scale is too large to write as digits is a bad record at its index."""
    schema = Schema("struct", name=VARIABLE_SCALE_DECIMAL)
    with pytest.raises(BadRecord) as caught:
        build_array(schema, [None, {"scale": scale, "value": b"\x01"}])
    assert caught.value.index == 1
