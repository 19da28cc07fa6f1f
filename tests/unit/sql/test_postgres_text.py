"""PostgreSQL's text representations are parsed exactly, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_connectors.sql.postgres_text import (
    Interval,
    java_order,
    parse_array,
    parse_bits,
    parse_date,
    parse_hstore,
    parse_interval,
    parse_time,
    parse_time_zone,
    parse_timestamp,
)
from headrace_connectors.sql.query import array_literal


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_array_literals_are_parsed_to_their_elements(elements: list[str | None]) -> None:
    """``parse_array`` returns the elements from which ``array_literal`` made the text."""
    assert parse_array(array_literal(elements)) == elements


@pytest.mark.parametrize("text", ["{{1,2},{3,4}}", "{1,2", "1,2", '{"a}', "{a,,b}"])
def test_invalid_arrays_are_refused(text: str) -> None:
    """Arrays of several dimensions and malformed texts raise ValueError."""
    with pytest.raises(ValueError):
        parse_array(text)


def test_array_with_bounds() -> None:
    """Bounds before the braces are ignored."""
    assert parse_array("[0:1]={7,8}") == ["7", "8"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00:00:00", Interval()),
        ("-1 years -2 mons +3 days -04:05:06.7", Interval(-1, -2, 3, -14706700000)),
        ("1 mon", Interval(months=1)),
        ("178000000 years", Interval(years=178000000)),
        ("-00:00:00.000001", Interval(micros=-1)),
    ],
)
def test_intervals(text: str, expected: Interval) -> None:
    """Each part of an interval has its own sign."""
    assert parse_interval(text) == expected


def test_dates_of_every_era() -> None:
    """Years are those of the proleptic calendar, in which 1 BC is year 0."""
    assert parse_date("4713-01-01 BC").iso == "-4712-01-01"
    assert parse_date("0001-01-01 BC").year == 0
    assert parse_date("1970-01-02").epoch_days == 1
    assert parse_date("294276-12-31").iso == "+294276-12-31"


def test_times() -> None:
    """Times are microseconds of the day, and offsets have hours, minutes and seconds."""
    assert parse_time("24:00:00") == 86_400_000_000
    assert parse_time_zone("13:14:15.5-15:59") == (47_655_500_000, -57_540)
    assert parse_timestamp("2024-02-29 13:14:15.1+00")[1] == 47_655_100_000


def test_timestamp_of_another_zone_is_refused() -> None:
    """A timestamp with another offset than UTC raises ValueError, because the session has to run in UTC."""
    with pytest.raises(ValueError, match="UTC"):
        parse_timestamp("2024-02-29 13:14:15+02")


def test_bits_are_little_endian_and_trimmed() -> None:
    """Bits are little-endian bytes up to the highest set bit; zero is empty."""
    assert (parse_bits("10100101"), parse_bits("0000"), parse_bits("100000001")) == (b"\xa5", b"", b"\x01\x01")


def test_hstore_in_java_order() -> None:
    """Quotes and NULL are parsed, and ``java_order`` sorts keys as a Java HashMap does."""
    pairs = parse_hstore('"k1"=>"v1", "k 2"=>NULL, "q\\"uo"=>"x,y=>z"')
    assert list(java_order(pairs).items()) == [("k1", "v1"), ('q"uo', "x,y=>z"), ("k 2", None)]
