"""PostgreSQL's text output, parsed exactly: arrays, dates, times, intervals, hstore, bits, shapes.

The texts are those of the types' output functions under ``DateStyle=ISO``, ``IntervalStyle=postgres`` and
``bytea_output=hex``, the same bytes that pgoutput sends. Nothing goes through Python's ``float``, ``datetime`` or
``json`` where that would lose digits or range. Every function raises ValueError for a text that it cannot read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from headrace_connectors.sql.civil import CivilDate

_DATE = re.compile(r"(\d{4,})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?", re.ASCII)
_ZONE = re.compile(r"([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?", re.ASCII)
_TIMESTAMP = re.compile(r"(\d{4,}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,6})?)([+-]\d\d(?::\d\d){0,2})?( BC)?", re.ASCII)
_INTERVAL_UNIT = re.compile(r"([+-]?\d+) (year|mon|day)s?", re.ASCII)
_INTERVAL_TIME = re.compile(r"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?$", re.ASCII)
_HSTORE = re.compile(r'"((?:[^"\\]|\\.)*)"=>(?:NULL|"((?:[^"\\]|\\.)*)")(?:, |$)', re.DOTALL)
_ELEMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)', re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|Infinity|NaN)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval: its parts as PostgreSQL prints them, ``micros`` being the time of day part."""

    years: int = 0
    months: int = 0
    days: int = 0
    micros: int = 0


def parse_date(text: str) -> CivilDate:
    """``2024-02-29``, ``4713-01-01 BC``."""
    match = _full_match(_DATE, text)
    year = int(match[1])
    return CivilDate(1 - year if match[4] else year, int(match[2]), int(match[3]))


def parse_time(text: str) -> int:
    """``13:14:15.123456`` as microseconds; ``24:00:00`` is a whole day."""
    match = _full_match(_TIME, text)
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3])
    return seconds * 1_000_000 + int((match[4] or "").ljust(6, "0"))


def parse_time_zone(text: str) -> tuple[int, int]:
    """``13:14:15.5+02:30`` as microseconds of the day and the offset in seconds."""
    split = max(text.rfind("+"), text.rfind("-"))
    match = _full_match(_ZONE, text[split:])
    offset = int(match[2]) * 3600 + int(match[3] or 0) * 60 + int(match[4] or 0)
    return parse_time(text[:split]), -offset if match[1] == "-" else offset


def parse_timestamp(text: str) -> tuple[CivilDate, int]:
    """``2024-02-29 13:14:15.5`` as date and microseconds of the day. With a zone it must be UTC, as sessions are."""
    match = _full_match(_TIMESTAMP, text)
    if match[3] and parse_time_zone("00:00:00" + match[3])[1]:
        raise ValueError("a timestamp with time zone that was not read in UTC")
    return parse_date(match[1] + (match[4] or "")), parse_time(match[2])


def parse_interval(text: str) -> Interval:
    """``1 year 2 mons -3 days +04:05:06.789012``."""
    parts = {unit: int(number) for number, unit in _INTERVAL_UNIT.findall(text)}
    micros, time = 0, _INTERVAL_TIME.search(text)
    if time is not None:
        seconds = int(time[2]) * 3600 + int(time[3]) * 60 + int(time[4])
        micros = seconds * 1_000_000 + int((time[5] or "").ljust(6, "0"))
        micros = -micros if time[1] == "-" else micros
    if not parts and time is None:
        raise ValueError("not an interval")
    return Interval(parts.get("year", 0), parts.get("mon", 0), parts.get("day", 0), micros)


def parse_bits(text: str) -> bytes:
    """``101`` as little-endian bytes up to the highest set bit."""
    number = int(text, 2) if text else 0
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def parse_bytea(text: str) -> bytes:
    r"""``\x00ff``."""
    if not text.startswith("\\x"):
        raise ValueError("bytea that was not read with bytea_output=hex")
    return bytes.fromhex(text[2:])


def parse_hstore(text: str) -> dict[str, str | None]:
    """``"a"=>"1", "b"=>NULL`` in the order of the text."""
    pairs: dict[str, str | None] = {}
    end = 0
    while end < len(text):
        match = _HSTORE.match(text, end)
        if match is None:
            raise ValueError("not an hstore")
        pairs[_unescape(match[1])] = None if match[2] is None else _unescape(match[2])
        end = match.end()
    return pairs


def java_order(pairs: dict[str, str | None]) -> dict[str, str | None]:
    """Return the pairs in the order of a Java ``HashMap``, in which Debezium writes them."""
    buckets = 16
    while len(pairs) > buckets * 3 // 4:
        buckets *= 2

    def bucket(pair: tuple[str, str | None]) -> int:
        code = 0  # of String.hashCode
        units = pair[0].encode("utf-16-be", "surrogatepass")
        for unit in struct.unpack(f">{len(units) // 2}H", units):
            code = (code * 31 + unit) & 0xFFFFFFFF
        return (code ^ (code >> 16)) & (buckets - 1)

    return dict(sorted(pairs.items(), key=bucket))


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


# -- arrays -----------------------------------------------------------------------------------------------------------


def parse_array(text: str) -> list[str | None]:
    r"""``{a,"b \"c\"",NULL}`` as texts. Arrays of several dimensions are refused: Debezium cannot write them."""
    if text.startswith("["):
        text = text.partition("=")[2]
    if not text.startswith("{") or not text.endswith("}"):
        raise ValueError("not an array")
    body, end = text[1:-1], 0
    elements: list[str | None] = []
    while body:
        match = _ELEMENT.match(body, end)
        if match is None:
            raise ValueError("an array of several dimensions, or not an array")
        is_null = match[1] is None and match[2].upper() == "NULL"
        elements.append(None if is_null else _unescape(match[2] if match[1] is None else match[1]))
        end = match.end()
        if end == len(body):
            break
        if body[end] != ",":
            raise ValueError("not an array")
        end += 1
    return elements


# -- shapes -----------------------------------------------------------------------------------------------------------

Point = tuple[float, float]


def numbers(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def points(text: str) -> list[Point]:
    flat = numbers(text)
    return list(zip(flat[::2], flat[1::2], strict=True))


def wkb_point(point: Point) -> bytes:
    """Return the well-known binary of a point, little-endian."""
    return struct.pack("<BIdd", 1, 1, *point)


def wkb_line(line: Iterable[Point]) -> bytes:
    """Return the well-known binary of a line string."""
    return struct.pack("<BI", 1, 2) + _wkb_points(list(line))


def wkb_polygon(ring: list[Point]) -> bytes:
    """Return the well-known binary of a polygon of one ring, which is closed."""
    closed = ring if ring[0] == ring[-1] else [*ring, ring[0]]
    return struct.pack("<BII", 1, 3, 1) + _wkb_points(closed)


def box_ring(text: str) -> list[Point]:
    """Return the corners of ``(x1,y1),(x2,y2)`` in the order in which Debezium writes them."""
    (x1, y1), (x2, y2) = points(text)
    return [(x1, y1), (x1, y2), (x2, y2), (x2, y1), (x1, y1)]


def _wkb_points(line: list[Point]) -> bytes:
    return struct.pack("<I", len(line)) + b"".join(struct.pack("<dd", *point) for point in line)


def _full_match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not in PostgreSQL's ISO form")
    return match
