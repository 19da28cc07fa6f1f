"""Dates, times, timestamps and intervals in every ``time.precision.mode`` and ``interval.handling.mode``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from recordings import postgres_text as text
from recordings.forms import Form, same
from recordings.records import Variant

_INFINITIES = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
_LIMITS = {"infinity": 2**63 - 1, "-infinity": -(2**63)}  # how Debezium 3.7 sends an infinite timestamp without zone
_INFINITE_DAYS = {"infinity": 2146033979, "-infinity": -2147472691}  # and an infinite date in a streamed event


def _date(_: int, of: Variant) -> Form:
    if of.times == "isostring":
        return Form(lambda value: f"{_iso_date(text.moment(value))}Z")
    if of.times == "structured":
        return Form(lambda value: _structured(text.moment(value), ("year", "month", "day"), special=True))
    return Form(lambda value: _INFINITE_DAYS[value] if value in _INFINITE_DAYS else text.moment(value).days)


def _time(digits_: int, of: Variant) -> Form:
    def count(value: str) -> int:
        return text.moment(value).time_of_day

    if of.times == "isostring":
        return Form(lambda value: f"{_iso_time(text.moment(value), 0)}Z")
    if of.times == "structured":
        return Form(lambda value: _structured(text.moment(value), _CLOCK, precision=digits_))
    if of.times == "nanoseconds":
        return Form(lambda value: count(value) * 1000)
    if of.times == "connect" or (of.times == "adaptive" and digits_ <= 3):
        return Form(lambda value: count(value) // 1000)
    return Form(count)


def _timestamp(digits_: int, of: Variant) -> Form:
    infinite = _INFINITIES if of.release == "3.6" or of.times == "connect" else _LIMITS

    def micros(value: str) -> int:
        return infinite[value] if value in infinite else text.moment(value).epoch

    if of.times == "isostring":
        return Form(lambda value: f"{_iso_date(text.moment(value))}T{_iso_time(text.moment(value), 0)}Z")
    if of.times == "structured":
        return Form(lambda value: _structured(text.moment(value), _CALENDAR + _CLOCK, special=True, precision=digits_))
    if of.times == "nanoseconds":
        return Form(lambda value: infinite[value] if value in infinite else micros(value) * 1000)
    if of.times == "connect":
        return Form(lambda value: infinite[value] if value in infinite else micros(value) // 1000 * 1000)
    return Form(micros, bare=(lambda value: value // 1000) if digits_ <= 3 else same)


def _zoned_timestamp(digits_: int, of: Variant) -> Form:
    if of.times == "structured":
        fields = (*_CALENDAR, *_CLOCK)
        return Form(lambda value: _zoned(_structured(text.moment(value), fields, special=True, precision=digits_)))
    return Form(text.moment, _zoned_micros, lambda value: _zoned_text(value, digits_))


def _zoned(parts: dict[str, Any]) -> dict[str, Any]:
    finite = parts["specialValue"] is None
    return parts | {"offsetSeconds": 0 if finite else None, "zoneId": "Z" if finite else None}


def _zoned_micros(value: text.Moment) -> int:
    return _INFINITIES[value.special] if value.special else value.epoch


def _zoned_text(value: text.Moment, digits_: int) -> str:
    return value.special or f"{_iso_date(value)}T{_iso_time(value, digits_)}Z"


def _zoned_time(digits_: int, of: Variant) -> Form:
    if of.times == "structured":
        return Form(lambda value: _offset_time(text.moment(value), digits_))
    return Form(lambda value: f"{_iso_time(_utc(text.moment(value)), 0)}Z")


def _offset_time(value: text.Moment, digits_: int) -> dict[str, Any]:
    return _structured(value, _CLOCK, precision=digits_) | {"offsetSeconds": value.offset}


def _utc(value: text.Moment) -> text.Moment:
    seconds, micros = divmod(value.time_of_day - value.offset * 1_000_000, 1_000_000)
    minutes, second = divmod(seconds % 86400, 60)
    return text.Moment(hour=minutes // 60, minute=minutes % 60, second=second, micros=micros)


def _interval(_: int, of: Variant) -> Form:
    if of.times == "structured":
        return Form(lambda value: _structured_interval(text.interval(value)))
    if of.intervals == "string":
        return Form(lambda value: _iso_interval(text.interval(value)))
    return Form(lambda value: _interval_micros(text.interval(value)))


def _interval_micros(value: text.Interval) -> int:
    """The length of an interval: a month is a twelfth of 365.25 days, and the result is limited to 64 bits."""
    micros = value.months * 2_629_800_000_000 + value.days * 86_400_000_000 + value.micros
    return max(-(2**63), min(2**63 - 1, micros))


def _interval_parts(value: text.Interval) -> tuple[int, int, int, int, int, int, int]:
    """Years, months, days, hours, minutes, seconds, microseconds, each with the sign of its group."""
    month_sign, time_sign = (-1 if part < 0 else 1 for part in (value.months, value.micros))
    years, months = divmod(abs(value.months), 12)
    seconds, micros = divmod(abs(value.micros), 1_000_000)
    clock = (seconds // 3600, seconds // 60 % 60, seconds % 60, micros)
    return (years * month_sign, months * month_sign, value.days, *(part * time_sign for part in clock))  # type: ignore[return-value]  # seven parts


def _iso_interval(value: text.Interval) -> str:
    years, months, days, hours, minutes, seconds, micros = _interval_parts(value)
    sign = "-" if value.micros < 0 else ""
    second = f"{sign}{abs(seconds)}" + (f".{abs(micros):06d}".rstrip("0") if micros else "")
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{second if seconds or micros else 0}S"


def _structured_interval(value: text.Interval) -> dict[str, Any]:
    names = ("years", "months", "days", "hours", "minutes", "seconds")
    *parts, micros = _interval_parts(value)
    return {**dict(zip(names, parts, strict=True)), "nanos": micros * 1000, "precision": 6}


def _iso_date(value: text.Moment) -> str:
    sign = "-" if value.year < 0 else "+" if value.year > 9999 else ""
    return f"{sign}{abs(value.year):04d}-{value.month:02d}-{value.day:02d}"


def _iso_time(value: text.Moment, digits_: int) -> str:
    """``HH:MM:SS`` with as few fraction digits as needed, but at least ``digits_``."""
    fraction = f"{value.micros:06d}".rstrip("0").ljust(digits_, "0")
    return f"{value.hour:02d}:{value.minute:02d}:{value.second:02d}" + (f".{fraction}" if fraction else "")


_CALENDAR = ("year", "month", "day")
_CLOCK = ("hour", "minute", "second", "nanos")
_SPECIAL = {"infinity": "POSITIVE_INFINITY", "-infinity": "NEGATIVE_INFINITY"}


def _structured(
    value: text.Moment, fields: tuple[str, ...], *, special: bool = False, precision: int | None = None
) -> dict[str, Any]:
    parts: dict[str, Any] = {name: None if value.special else getattr(value, name) for name in fields}
    if special:
        parts["specialValue"] = _SPECIAL[value.special] if value.special else None
    return parts if precision is None else parts | {"precision": precision}


TIMES: Mapping[str, Callable[[int, Variant], Form]] = {
    "date": _date,
    "time without time zone": _time,
    "time with time zone": _zoned_time,
    "timestamp without time zone": _timestamp,
    "timestamp with time zone": _zoned_timestamp,
    "interval": _interval,
}
