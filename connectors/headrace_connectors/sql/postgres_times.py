"""PostgreSQL's dates, times, timestamps and intervals, in every time precision mode of Debezium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace_connectors.sql.cells import Reader
from headrace_connectors.sql.civil import DAY_MICROS, CivilDate, clock, fraction
from headrace_connectors.sql.postgres_target import NEGATIVE_INFINITY, POSITIVE_INFINITY, Choice, Target
from headrace_connectors.sql.postgres_text import (
    parse_date,
    parse_interval,
    parse_time,
    parse_time_zone,
    parse_timestamp,
)

INFINITIES = {"infinity": POSITIVE_INFINITY, "-infinity": NEGATIVE_INFINITY}
INFINITE_DAYS = {"infinity": 2146033979, "-infinity": -2147472691}
INFINITE_DATES = {"infinity": "+5877611-06-21Z", "-infinity": "-5877611-06-22Z"}
INFINITE_MILLIS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
INFINITE_COUNTS = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
INFINITE_ISO = {"infinity": "+292278994-08-16T23:00:00Z", "-infinity": "-292275055-05-16T23:00:00Z"}
MONTH_MICROS = 2_629_800_000_000
"""365.25 / 12 days."""


def _date_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return _structured_date
    if target.schema.type == "string":
        return lambda text: INFINITE_DATES.get(text) or parse_date(text).iso + "Z"
    return lambda text: INFINITE_DAYS[text] if text in INFINITE_DAYS else parse_date(text).epoch_days


def _time_reader(target: Target) -> Reader:
    """Elements of arrays are read through JDBC's ``Time``, which has only milliseconds."""
    unit = 1000 if target.element else 1
    if target.schema.type == "struct":
        return lambda text: _structured_time(parse_time(text) // unit * unit, target.digits)
    if target.schema.type == "string":
        return lambda text: _iso_time(parse_time(text) // unit * unit % DAY_MICROS)
    if target.semantic == "MicroTime":
        return lambda text: parse_time(text) // unit * unit
    if target.semantic == "NanoTime":
        return lambda text: parse_time(text) // unit * unit * 1000
    return lambda text: parse_time(text) // 1000


def _iso_time(micros: int) -> str:
    return f"{clock(micros)}{fraction(micros)}Z"


def _zoned_time_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_zoned_time(*parse_time_zone(text), target.digits)

    def read(text: str) -> str:
        micros, offset = parse_time_zone(text)
        if micros == DAY_MICROS and not offset:
            return "24:00:00Z"
        return _iso_time((micros - offset * 1_000_000) % DAY_MICROS)

    return read


def _timestamp_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_timestamp(text, target.digits)
    if target.schema.type == "string":
        return _iso_timestamp
    if target.semantic == "MicroTimestamp":
        return lambda text: INFINITE_COUNTS[text] if text in INFINITIES else _count(text, 1)
    if target.semantic == "NanoTimestamp":
        return lambda text: INFINITE_COUNTS[text] if text in INFINITIES else _nanos(text)
    return lambda text: INFINITE_MILLIS[text] if text in INFINITIES else _count(text, 1000)


def _count(text: str, unit: int) -> int:
    """Microseconds since the epoch, or milliseconds (rounded towards the past)."""
    count = _micros(text) // unit
    if not -(2**63) <= count < 2**63:
        raise ValueError("outside the range of a timestamp in microseconds")
    return count


def _micros(text: str) -> int:
    date, micros = parse_timestamp(text)
    return date.epoch_days * DAY_MICROS + micros


def _nanos(text: str) -> int | None:
    """Nanoseconds since the epoch; null beyond 64 bits, as the connector writes it."""
    nanos = _micros(text) * 1000
    return nanos if -(2**63) <= nanos < 2**63 else None


def _iso_timestamp(text: str) -> str:
    if text in INFINITE_ISO:
        return INFINITE_ISO[text]
    date, micros = parse_timestamp(text)
    return f"{date.iso}T{clock(micros)}{fraction(micros)}Z"


def _zoned_timestamp_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_timestamp(text, target.digits, zone=True)

    def read(text: str) -> str:
        if text in INFINITIES:
            return text
        date, micros = parse_timestamp(text)
        return f"{date.iso}T{clock(micros)}{fraction(micros, target.digits)}Z"

    return read


def _interval_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_duration(text, target.digits)
    return _iso_interval if target.schema.type == "string" else _interval_micros


def _interval_micros(text: str) -> int:
    parsed = parse_interval(text)
    micros = (parsed.years * 12 + parsed.months) * MONTH_MICROS + parsed.days * DAY_MICROS + parsed.micros
    return max(-(2**63), min(micros, 2**63 - 1))


def _iso_interval(text: str) -> str:
    parsed = parse_interval(text)
    sign, micros = "-" if parsed.micros < 0 else "", abs(parsed.micros)
    hours, minutes, seconds = micros // 3_600_000_000, micros // 60_000_000 % 60, micros // 1_000_000 % 60
    clock_part = f"{_signed(sign, hours)}H{_signed(sign, minutes)}M"
    second_part = f"{sign if micros % 60_000_000 else ''}{seconds}{fraction(micros)}S"
    return f"P{parsed.years}Y{parsed.months}M{parsed.days}DT{clock_part}{second_part}"


def _signed(sign: str, number: int) -> str:
    return f"{sign}{number}" if number else "0"


# -- time.precision.mode=structured -----------------------------------------------------------------------------------


def _structured_date(text: str) -> dict[str, Any]:
    if text in INFINITIES:
        return {"year": None, "month": None, "day": None, "specialValue": INFINITIES[text]}
    return {**_date_parts(parse_date(text)), "specialValue": None}


def _date_parts(date: CivilDate) -> dict[str, int]:
    return {"year": date.year, "month": date.month, "day": date.day}


def _time_parts(micros: int) -> dict[str, int]:
    seconds = micros // 1_000_000
    return {
        "hour": seconds // 3600,
        "minute": seconds // 60 % 60,
        "second": seconds % 60,
        "nanos": micros % 1_000_000 * 1000,
    }


def _structured_time(micros: int, digits: int) -> dict[str, int] | None:
    """The connector has no form for 24:00, and writes null."""
    return None if micros == DAY_MICROS else {**_time_parts(micros), "precision": digits}


def _structured_zoned_time(micros: int, offset: int, digits: int) -> dict[str, int]:
    return {**_time_parts(micros), "offsetSeconds": offset, "precision": digits}


def _structured_timestamp(text: str, digits: int, zone: bool = False) -> dict[str, Any]:
    infinite = text in INFINITIES
    names = ("year", "month", "day", "hour", "minute", "second", "nanos")
    parts: Mapping[str, Any] = dict.fromkeys(names)
    if not infinite:
        date, micros = parse_timestamp(text)
        parts = {**_date_parts(date), **_time_parts(micros)}
    zoned = {"offsetSeconds": None if infinite else 0, "zoneId": None if infinite else "Z"} if zone else {}
    return {**parts, **zoned, "specialValue": INFINITIES.get(text), "precision": digits}


def _structured_duration(text: str, digits: int) -> dict[str, int]:
    parsed = parse_interval(text)
    sign, micros = -1 if parsed.micros < 0 else 1, abs(parsed.micros)
    return {
        "years": parsed.years,
        "months": parsed.months,
        "days": parsed.days,
        "hours": sign * (micros // 3_600_000_000),
        "minutes": sign * (micros // 60_000_000 % 60),
        "seconds": sign * (micros // 1_000_000 % 60),
        "nanos": sign * (micros % 1_000_000 * 1000),
        "precision": digits,
    }


BY_SEMANTIC: Mapping[str, Choice] = {
    "MicroDuration": _interval_reader,
    "Interval": _interval_reader,
    "StructuredDuration": _interval_reader,
    "ZonedTime": _zoned_time_reader,
    "StructuredZonedTime": _zoned_time_reader,
    "ZonedTimestamp": _zoned_timestamp_reader,
    "StructuredZonedTimestamp": _zoned_timestamp_reader,
}
BY_KIND: Mapping[str, Choice] = {
    "date": _date_reader,
    "time": _time_reader,
    "timestamp": _timestamp_reader,
}
