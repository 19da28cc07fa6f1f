"""PostgreSQL's text as the Connect value that Debezium would have sent (``reselect.md`` section 8).

The event's own schema decides the target: its logical name and parameters identify the decimal, time, hstore and
interval modes. The handling modes and the catalog supply what a schema does not contain (the text form of ``bytea``,
the digits of a ``timestamptz``). Observed on Debezium 3.7.0.Final; section 11 of the page lists its peculiar values.

``reader`` selects the conversion of a column once. The conversion is called per value, and raises ValueError for a text
that the target cannot contain.

Tests: ``tests/unit/sql/test_postgres.py``, ``tests/unit/sql/test_postgres_text.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from headrace.core.model.catalog import CatalogColumn, HandlingModes, SqlType
from headrace.core.model.schema import Schema
from headrace_connectors.sql.cells import Reader, bytes_writer, truncating
from headrace_connectors.sql.civil import DAY_MICROS, MONTH_MICROS, CivilDate, clock, fraction
from headrace_connectors.sql.postgres_catalog import without_domains
from headrace_connectors.sql.postgres_text import (
    box_ring,
    java_order,
    numbers,
    parse_array,
    parse_bits,
    parse_bytea,
    parse_date,
    parse_hstore,
    parse_interval,
    parse_time,
    parse_time_zone,
    parse_timestamp,
    points,
    wkb_line,
    wkb_point,
    wkb_polygon,
)

POSITIVE_INFINITY, NEGATIVE_INFINITY = "POSITIVE_INFINITY", "NEGATIVE_INFINITY"
"""The infinities of numbers, dates and timestamps in Debezium's form."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a text: the Connect schema, the database's type and modifier, and the connector's modes."""

    schema: Schema
    kind: SqlType
    typmod: int
    modes: HandlingModes
    element: bool = False

    @property
    def digits(self) -> int:
        """The fraction digits of a time type; 6 if none were declared."""
        return self.typmod if self.typmod >= 0 else 6


Choice = Callable[[Target], Reader]
"""Selects the conversion for a target."""


def always(read: Reader) -> Choice:
    return lambda target: read


INFINITIES = {"infinity": POSITIVE_INFINITY, "-infinity": NEGATIVE_INFINITY}
INFINITE_DAYS = {"infinity": 2146033979, "-infinity": -2147472691}
INFINITE_DATES = {"infinity": "+5877611-06-21Z", "-infinity": "-5877611-06-22Z"}
INFINITE_MILLIS = {"infinity": 9223372036825200000, "-infinity": -9223372036832400000}
INFINITE_COUNTS = {"infinity": 2**63 - 1, "-infinity": -(2**63)}
INFINITE_ISO = {"infinity": "+292278994-08-16T23:00:00Z", "-infinity": "-292275055-05-16T23:00:00Z"}


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

        def to_struct(text: str) -> dict[str, int] | None:
            micros = parse_time(text) // unit * unit
            # The connector has no form for 24:00, and writes null.
            return None if micros == DAY_MICROS else {**_time_parts(micros), "precision": target.digits}

        return to_struct
    if target.schema.type == "string":
        return lambda text: _iso_time(parse_time(text) // unit * unit % DAY_MICROS)
    if target.schema.semantic == "MicroTime":
        return lambda text: parse_time(text) // unit * unit
    if target.schema.semantic == "NanoTime":
        return lambda text: parse_time(text) // unit * unit * 1000
    return lambda text: parse_time(text) // 1000


def _iso_time(micros: int) -> str:
    return f"{clock(micros)}{fraction(micros)}Z"


def _zoned_time_reader(target: Target) -> Reader:
    if target.schema.type == "struct":

        def to_struct(text: str) -> dict[str, int]:
            micros, offset = parse_time_zone(text)
            return {**_time_parts(micros), "offsetSeconds": offset, "precision": target.digits}

        return to_struct

    def to_iso(text: str) -> str:
        micros, offset = parse_time_zone(text)
        if micros == DAY_MICROS and not offset:
            return "24:00:00Z"
        return _iso_time((micros - offset * 1_000_000) % DAY_MICROS)

    return to_iso


def _timestamp_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_timestamp(text, target.digits)
    if target.schema.type == "string":

        def to_iso(text: str) -> str:
            if text in INFINITE_ISO:
                return INFINITE_ISO[text]
            date, micros = parse_timestamp(text)
            return f"{date.iso}T{clock(micros)}{fraction(micros)}Z"

        return to_iso
    if target.schema.semantic == "MicroTimestamp":
        return lambda text: INFINITE_COUNTS[text] if text in INFINITIES else _count(text, 1)
    if target.schema.semantic == "NanoTimestamp":
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


def _zoned_timestamp_reader(target: Target) -> Reader:
    if target.schema.type == "struct":
        return lambda text: _structured_timestamp(text, target.digits, zone=True)

    def to_iso(text: str) -> str:
        if text in INFINITIES:
            return text
        date, micros = parse_timestamp(text)
        return f"{date.iso}T{clock(micros)}{fraction(micros, target.digits)}Z"

    return to_iso


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


def _structured_date(text: str) -> dict[str, object]:
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


def _structured_timestamp(text: str, digits: int, zone: bool = False) -> dict[str, object]:
    infinite = text in INFINITIES
    names = ("year", "month", "day", "hour", "minute", "second", "nanos")
    parts: Mapping[str, object] = dict.fromkeys(names)
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


def _point(text: str) -> dict[str, object]:
    ((x, y),) = points(text)
    return {"x": x, "y": y, "wkb": wkb_point((x, y)), "srid": None}


def _line(text: str) -> dict[str, float]:
    a, b, c = numbers(text)
    return {"a": a, "b": b, "c": c}


def _circle(text: str) -> dict[str, object]:
    x, y, radius = numbers(text)
    return {"center": _point(f"({x!r},{y!r})"), "radius": radius}


def _shape(wkb: bytes, type_name: str, **extensions: str) -> dict[str, object]:
    return {"wkb": wkb, "srid": None, "extensions": {"type": type_name, **extensions}}


def _shape_reader(target: Target) -> Reader:
    shapes: dict[str, Reader] = {
        "lseg": lambda text: _shape(wkb_line(points(text)), "lseg"),
        "box": lambda text: _shape(wkb_polygon(box_ring(text)), "box"),
        "path": lambda text: _shape(wkb_line(points(text)), "path", closed=str(text.startswith("(")).lower()),
        "polygon": lambda text: _shape(wkb_polygon(points(text)), "polygon"),
    }
    return shapes.get(target.kind.name, _postgis)


def _postgis(text: str) -> dict[str, object]:
    """Parse PostGIS's EWKB in hex; the spatial reference, if any, is in its fifth to ninth byte."""
    wkb = bytes.fromhex(text)
    order: Literal["little", "big"] = "little" if wkb[0] == 1 else "big"
    has_srid = int.from_bytes(wkb[1:5], order) & 0x20000000
    return {"wkb": wkb, "srid": int.from_bytes(wkb[5:9], order) if has_srid else None}


def _sparse_vector(text: str) -> dict[str, object]:
    """``{1:1.5,3:2}/5``."""
    pairs, _, dimensions = text.strip("{").partition("}/")
    entries = [pair.split(":") for pair in pairs.split(",") if pair]
    return {"dimensions": int(dimensions), "vector": {int(index): float(value) for index, value in entries}}


NUMERIC_SPECIALS = {"NaN": "NAN", "Infinity": POSITIVE_INFINITY, "-Infinity": NEGATIVE_INFINITY}


def reader(schema: Schema, column: CatalogColumn, modes: HandlingModes) -> Reader:
    return truncating(_reader(Target(schema, *without_domains(column.type, column.typmod), modes)), schema)


def _reader(target: Target) -> Reader:
    schema = target.schema
    if schema.type == "array" and target.kind.element is not None:
        return _array_reader(target)
    if target.schema.semantic in _BY_SEMANTIC:
        return _BY_SEMANTIC[target.schema.semantic](target)
    if target.kind.name in _BY_KIND:
        return _BY_KIND[target.kind.name](target)
    if schema.type in _BY_TYPE:
        return _BY_TYPE[schema.type]
    if target.kind.name in _TEXTS or target.kind.kind == "e":
        return str
    return _unknown_reader(target)


def _array_reader(target: Target) -> Reader:
    declared, items_schema = target.kind.element, target.schema.items
    if declared is None or items_schema is None:
        raise ValueError("an array without the type of its elements")
    items = Target(items_schema, *without_domains(declared, target.typmod), target.modes, element=True)
    read = _unknown_reader(items) if declared.base is not None else _reader(items)
    precise = items.schema.semantic in ("Decimal", "VariableScaleDecimal")

    def read_all(text: str) -> list[object] | None:
        texts = parse_array(text)
        if precise and any(part in NUMERIC_SPECIALS for part in texts):
            return None  # the connector cannot write them: the complete array is null
        return [None if part is None else read(part) for part in texts]

    return read_all


_TEXTS = frozenset(
    {"text", "varchar", "bpchar", "char", "name", "citext", "json", "jsonb", "xml", "uuid", "ltree", "tsvector"}
    | {"inet", "cidr", "macaddr", "macaddr8", "isbn", "int4range", "int8range", "numrange"}
    | {"tsrange", "tstzrange", "daterange"}
)


def _unknown_reader(target: Target) -> Reader:
    """``include.unknown.datatypes``: the text's bytes, written like ``bytea``."""
    write = bytes_writer(target.schema, target.modes)
    return lambda text: write(text.encode())


def _bytea_reader(target: Target) -> Reader:
    write = bytes_writer(target.schema, target.modes)
    return lambda text: write(parse_bytea(text))


def _number_reader(target: Target) -> Reader:
    """``numeric`` and ``money`` by decimal mode."""
    clean = _money if target.kind.name == "money" else str
    if target.schema.type in ("double", "float"):
        return lambda text: float(clean(text))
    if target.schema.type == "string":
        negative_scale = target.typmod >= 4 and (target.typmod - 4) & 0x400 != 0
        zeros = "." + "0" * 2046 if negative_scale else ""  # Debezium reads the scale's eleven bits as about 2046
        return lambda text: NUMERIC_SPECIALS.get(text) or clean(text) + zeros
    if target.schema.semantic == "VariableScaleDecimal":
        return lambda text: None if text in NUMERIC_SPECIALS else {"scale": 0, "value": Decimal(clean(text))}
    return lambda text: None if text in NUMERIC_SPECIALS else Decimal(clean(text))


def _money(text: str) -> str:
    """``-$1,234.56`` under ``lc_monetary=C``."""
    negative = "-" in text or "(" in text
    return ("-" if negative else "") + "".join(letter for letter in text if letter.isdigit() or letter == ".")


def _boolean(text: str) -> bool:
    if text not in ("t", "f", "1", "0"):
        raise ValueError("not a boolean or a bit")
    return text in ("t", "1")


def _hstore_reader(target: Target) -> Reader:
    if target.schema.type == "map":
        return lambda text: java_order(parse_hstore(text))
    return lambda text: json.dumps(java_order(parse_hstore(text)), ensure_ascii=False, separators=(",", ":"))


_BY_SEMANTIC: Mapping[str, Choice] = {
    "Decimal": _number_reader,
    "VariableScaleDecimal": _number_reader,
    "Bits": always(parse_bits),
    "Json": lambda target: _hstore_reader(target) if target.kind.name == "hstore" else str,
    "MicroDuration": _interval_reader,
    "Interval": _interval_reader,
    "StructuredDuration": _interval_reader,
    "ZonedTime": _zoned_time_reader,
    "StructuredZonedTime": _zoned_time_reader,
    "ZonedTimestamp": _zoned_timestamp_reader,
    "StructuredZonedTimestamp": _zoned_timestamp_reader,
    "Point": always(_point),
    "Line": always(_line),
    "Circle": always(_circle),
    "Geometry": _shape_reader,
    "Geography": always(_postgis),
    "DoubleVector": always(numbers),
    "FloatVector": always(numbers),
    "SparseDoubleVector": always(_sparse_vector),
}
_BY_KIND: Mapping[str, Choice] = {
    "numeric": _number_reader,
    "money": _number_reader,
    "bytea": _bytea_reader,
    "hstore": _hstore_reader,
    "date": _date_reader,
    "time": _time_reader,
    "timestamp": _timestamp_reader,
}
_BY_TYPE: Mapping[str, Reader] = {
    "boolean": _boolean,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "float": float,
    "double": float,
}
