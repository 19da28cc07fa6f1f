"""PostgreSQL's own text forms, read exactly: arrays, hstore, dates and times of any year, intervals, geometry, bits.

Written for the tests and independently of Headrace's readers, so that both do not share an error. Years are
astronomical (0 is 1 BC); days count from 1970-01-01 in the proleptic Gregorian calendar, as PostgreSQL counts them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_TIMESTAMP = re.compile(
    r"(?:(?P<year>\d{4,})-(?P<month>\d\d)-(?P<day>\d\d))?\s?"
    r"(?:(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?:\.(?P<fraction>\d{1,6}))?"
    r"(?P<offset>[+-]\d\d(?::\d\d){0,2})?)?(?P<bc> BC)?"
)
_INTERVAL_PART = re.compile(r"([+-]?\d+) (year|mon|day)")
_INTERVAL_TIME = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?$")
_HSTORE_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")')
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|Infinity|NaN)")


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, time or timestamp as written. ``special`` is ``infinity`` or ``-infinity``; ``offset`` in seconds."""

    year: int = 1970
    month: int = 1
    day: int = 1
    hour: int = 0
    minute: int = 0
    second: int = 0
    micros: int = 0
    offset: int = 0
    special: str | None = None

    @property
    def days(self) -> int:
        """Days since 1970-01-01 (H. Hinnant's days-from-civil: exact for every year)."""
        year = self.year - (self.month <= 2)
        era, of_era = divmod(year, 400)
        of_year = (153 * ((self.month + 9) % 12) + 2) // 5 + self.day - 1
        return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468

    @property
    def nanos(self) -> int:
        """The fraction of a second in nanoseconds."""
        return self.micros * 1000

    @property
    def time_of_day(self) -> int:
        """Microseconds since midnight; 24:00:00 is a full day."""
        return ((self.hour * 60 + self.minute) * 60 + self.second) * 1_000_000 + self.micros

    @property
    def epoch(self) -> int:
        """Microseconds since the epoch: the local time as UTC, minus the offset."""
        return self.days * 86_400_000_000 + self.time_of_day - self.offset * 1_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval in PostgreSQL's three parts."""

    months: int
    days: int
    micros: int


def moment(text: str) -> Moment:
    """Read a date, time, timetz, timestamp or timestamptz."""
    if text in ("infinity", "-infinity"):
        return Moment(special=text)
    match = _TIMESTAMP.fullmatch(text)
    assert match, f"not a date or time: {text!r}"
    parts: dict[str, Any] = {
        name: int(match[name]) for name in ("year", "month", "day", "hour", "minute", "second") if match[name]
    }
    if match["bc"]:
        parts["year"] = 1 - parts["year"]
    return Moment(**parts, micros=_micros(match["fraction"]), offset=_offset(match["offset"]))


def _micros(fraction: str | None) -> int:
    return int((fraction or "").ljust(6, "0"))


def _offset(text: str | None) -> int:
    if not text:
        return 0
    hours, minutes, seconds = (*(int(part) for part in text[1:].split(":")), 0, 0)[:3]
    return (-1 if text[0] == "-" else 1) * (hours * 3600 + minutes * 60 + seconds)


def interval(text: str) -> Interval:
    """Read an interval of ``intervalstyle=postgres``; years count as twelve months."""
    amount = {unit: int(number) for number, unit in _INTERVAL_PART.findall(text)}
    match = _INTERVAL_TIME.search(text)
    micros = 0
    if match:
        sign, hours, minutes, seconds, fraction = match.groups()
        micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + _micros(fraction)
        micros = -micros if sign == "-" else micros
    return Interval(amount.get("year", 0) * 12 + amount.get("mon", 0), amount.get("day", 0), micros)


def array(text: str) -> list[Any]:
    """Read an array: a list of element texts, None for NULL; inner arrays become inner lists."""
    items, rest = _array(text, 0)
    assert rest == len(text), f"trailing text after the array: {text!r}"
    return items


def _array(text: str, at: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at += 1
    while text[at] != "}":
        item, at = _element(text, at)
        items.append(item)
        at += text[at] == ","
    return items, at + 1


def _element(text: str, at: int) -> tuple[Any, int]:
    if text[at] == "{":
        return _array(text, at)
    if text[at] == '"':
        end = _closing_quote(text, at + 1)
        return re.sub(r"\\(.)", r"\1", text[at + 1 : end], flags=re.DOTALL), end + 1
    end = min(index for index in (text.find(",", at), text.find("}", at)) if index >= 0)
    word = text[at:end]
    return (None if word == "NULL" else word), end


def _closing_quote(text: str, at: int) -> int:
    while text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at


def hstore(text: str) -> dict[str, str | None]:
    """Read an hstore."""
    pairs = (match.groups() for match in _HSTORE_PAIR.finditer(text))
    return {_unescape(key): None if value is None else _unescape(value) for key, value in pairs}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def numbers(text: str) -> list[float]:
    """All numbers of a geometric value, in the order in which they are written."""
    return [float(number) for number in _NUMBER.findall(text)]


def points(text: str) -> list[tuple[float, float]]:
    """All points of a geometric value."""
    flat = iter(numbers(text))
    return list(zip(flat, flat, strict=True))


def bits(text: str) -> bytes:
    """A bit string in the form of Debezium: little endian, sized by the highest set bit."""
    value = int(text or "0", 2)
    return value.to_bytes((value.bit_length() + 7) // 8, "little")


def point_wkb(point: tuple[float, float]) -> bytes:
    """A point as little-endian well-known binary."""
    return struct.pack("<BI2d", 1, 1, *point)


def line_wkb(line: list[tuple[float, float]]) -> bytes:
    """A line string as little-endian well-known binary."""
    return struct.pack("<BII", 1, 2, len(line)) + _flat(line)


def ring_wkb(ring: list[tuple[float, float]]) -> bytes:
    """A polygon of one ring, closed if necessary, as little-endian well-known binary."""
    closed = ring if ring[0] == ring[-1] else [*ring, ring[0]]
    return struct.pack("<BIII", 1, 3, 1, len(closed)) + _flat(closed)


def _flat(line: list[tuple[float, float]]) -> bytes:
    coordinates: Iterator[float] = (part for point in line for part in point)
    return struct.pack(f"<{2 * len(line)}d", *coordinates)
