"""Oracle's values as the Connect values that Debezium would have sent (``reselect.md`` section 8.2, "Oracle in short").

The event's own schema determines the target type. The handling modes and the catalog determine what the schema does not
contain (the encoding of bytes as text, the fraction digits). The driver returns times as text (``oracle_query.py``),
numbers as Decimal, and large objects complete. The conversions are those of Debezium 3.6.1, ``OracleValueConverters``.

``reader`` selects the conversion of a column once. The conversion is called for each value, and raises ValueError for a
value that the target type cannot contain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import ROUND_DOWN, Decimal

from headrace.core.model.catalog import CatalogColumn, HandlingModes
from headrace.core.model.schema import Schema
from headrace_connectors.sql.cells import Reader, bytes_writer, truncating
from headrace_connectors.sql.civil import MONTH_MICROS, CivilDate, clock

_NANOS_PER_SECOND = 1_000_000_000

_TIME_TEXT = re.compile(
    r" ?(-?\d{4})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?: ([+-])(\d\d):(\d\d))?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class OracleTime:
    """A parsed DATE or TIMESTAMP; ``offset`` in seconds east of UTC, None without a zone."""

    date: CivilDate
    second: int
    nanos: int
    offset: int | None = None

    @property
    def epoch_nanos(self) -> int:
        """Return nanoseconds since the epoch; a local time without a zone is UTC."""
        return (self.date.epoch_days * 86400 + self.second - (self.offset or 0)) * _NANOS_PER_SECOND + self.nanos


def parse_time(text: str) -> OracleTime:
    """Parse a text of ``oracle_query.TIME_FORMATS``. Oracle's years before 1 are negative, and it has no year 0."""
    match = _TIME_TEXT.fullmatch(text)
    if match is None:
        raise ValueError("not a time in the requested format")
    year = int(match[1])
    date = CivilDate(year + 1 if year < 0 else year, int(match[2]), int(match[3]))
    second = int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    offset = None
    if match[8] is not None:
        offset = (-1 if match[8] == "-" else 1) * (int(match[9]) * 3600 + int(match[10]) * 60)
    return OracleTime(date, second, int((match[7] or "").ljust(9, "0")), offset)


def reader(schema: Schema, column: CatalogColumn, modes: HandlingModes) -> Reader:
    """Return the conversion for a column with ``schema`` in its events. For unsupported types it rejects all values."""
    choose = _BY_TYPE.get(column.type.name, _refusing_reader)
    return truncating(choose(Target(schema, column, modes)), schema)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a value: the Connect schema, the database's column, and the connector's modes."""

    schema: Schema
    column: CatalogColumn
    modes: HandlingModes

    @property
    def digits(self) -> int:
        """The declared fraction digits of a time."""
        return self.column.scale or 0


def _refusing_reader(target: Target) -> Reader:
    def refuse(value: object) -> object:
        raise ValueError("a type that Debezium's Oracle connector has no converter for")

    return refuse


# -- numbers ----------------------------------------------------------------------------------------------------------

_INTEGERS = frozenset({"int8", "int16", "int32", "int64"})


def _number_reader(target: Target) -> Reader:
    schema = target.schema
    if schema.type in _INTEGERS:
        return _integer
    if schema.type == "boolean":  # the connector's NumberOneToBooleanConverter
        return lambda number: _integer(number) != 0
    if schema.type in ("double", "float"):
        return float
    if schema.type == "string":
        return lambda number: _plain_text(number, max(target.column.scale or 0, 0))
    if target.schema.semantic == "VariableScaleDecimal":
        return lambda number: {"scale": 0, "value": Decimal(number)}
    if target.schema.semantic == "Decimal":
        return Decimal
    return _refusing_reader(target)


def _integer(number: Decimal) -> int:
    if number != int(number):
        raise ValueError("not a whole number")
    return int(number)


def _plain_text(number: Decimal, scale: int) -> str:
    """Format without an exponent, with at least ``scale`` fraction digits (``BigDecimal.toPlainString``)."""
    text = format(number, "f")
    whole, _, digits = text.partition(".")
    digits = digits.rstrip("0").ljust(scale, "0")
    return f"{whole}.{digits}" if digits else whole


# -- texts and bytes --------------------------------------------------------------------------------------------------


def _text_reader(target: Target) -> Reader:
    def require_text(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("not a text")
        return value

    return require_text


def _bytes_reader(target: Target) -> Reader:
    if target.schema.type == "string" and target.modes.binary == "bytes":
        return lambda data: bytes(data).decode()  # the connector's RawToStringConverter
    write = bytes_writer(target.schema, target.modes)
    return lambda data: write(bytes(data))


def _empty_as_null(choose: Callable[[Target], Reader]) -> Callable[[Target], Reader]:
    """Convert empty large objects (``EMPTY_CLOB()``) to null if the column may be null, as Debezium's events do."""

    def choose_nullable(target: Target) -> Reader:
        read = choose(target)
        return (lambda value: read(value) if len(value) else None) if target.schema.optional else read

    return choose_nullable


# -- times ------------------------------------------------------------------------------------------------------------

_UNITS = {"Timestamp": 1_000_000, "MicroTimestamp": 1000, "NanoTimestamp": 1}
"""Nanoseconds per unit."""


def _timestamp_reader(target: Target) -> Reader:
    if target.schema.semantic in _UNITS and target.schema.type == "int64":
        unit = _UNITS[target.schema.semantic]

        def to_count(text: str) -> int:
            count = parse_time(text).epoch_nanos // unit
            if not -(2**63) <= count < 2**63:
                raise ValueError("outside the range of a timestamp in this unit")
            return count

        return to_count
    # The type has no zone, and Debezium formats it in UTC with as few digits as are exact.
    return (lambda text: _iso_time(parse_time(text))) if target.schema.type == "string" else _refusing_reader(target)


def _zoned_timestamp_reader(target: Target) -> Reader:
    if target.schema.type != "string":
        return _refusing_reader(target)
    return lambda text: _iso_time(parse_time(text), target.digits)


def _iso_time(time: OracleTime, digits: int = 0) -> str:
    """Format as ISO with exactly ``digits``, or for 0 with as few as are exact. A time without a zone is in UTC."""
    fraction = f".{time.nanos:09d}"[: digits + 1] if digits else _shortest(time.nanos)
    offset = time.offset or 0
    sign, minutes = "-" if offset < 0 else "+", abs(offset) // 60
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if offset else "Z"
    return f"{time.date.iso}T{clock(time.second * 1_000_000)}{fraction}{zone}"


def _shortest(nanos: int) -> str:
    """Return the fraction with its point in groups of three digits, as Java's ISO formats print it; empty for 0."""
    if not nanos:
        return ""
    digits = f"{nanos:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    return f".{digits}"


# -- intervals --------------------------------------------------------------------------------------------------------


def _months_reader(target: Target) -> Reader:
    if target.schema.type == "string":
        return lambda value: f"P{value.years}Y{value.months}M0DT0H0M0S"
    return lambda value: (value.years * 12 + value.months) * MONTH_MICROS


def _micros(value: timedelta) -> int:
    return (value.days * 86400 + value.seconds) * 1_000_000 + value.microseconds


def _iso_duration(value: timedelta) -> str:
    """Every part has the interval's sign; the seconds are converted to a double, as in the connector."""
    total = _micros(value)
    sign, micros = -1 if total < 0 else 1, abs(total)
    seconds, rest = divmod(micros, 1_000_000)
    exact = Decimal(repr(sign * (float(seconds % 60) + rest / 1_000_000)))
    shown = _plain_text(exact.quantize(Decimal("0.000001"), ROUND_DOWN), 0)
    parts = [sign * part for part in (seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60)]
    return f"P0Y0M{parts[0]}DT{parts[1]}H{parts[2]}M{'0' if shown == '-0' else shown}S"


_BY_TYPE: Mapping[str, Callable[[Target], Reader]] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), _number_reader),
    **dict.fromkeys(("BINARY_FLOAT", "BINARY_DOUBLE"), lambda target: str if target.schema.type == "string" else float),
    **dict.fromkeys(("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "ROWID", "XMLTYPE", "JSON"), _text_reader),
    **dict.fromkeys(("CLOB", "NCLOB"), _empty_as_null(_text_reader)),
    "RAW": _bytes_reader,
    "BLOB": _empty_as_null(_bytes_reader),
    **dict.fromkeys(("DATE", "TIMESTAMP"), _timestamp_reader),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), _zoned_timestamp_reader),
    "INTERVAL YEAR TO MONTH": _months_reader,
    "INTERVAL DAY TO SECOND": lambda target: _iso_duration if target.schema.type == "string" else _micros,
}
"""The conversions by type name. Events do not contain LONG, LONG RAW, BFILE, UROWID or object types."""
KNOWN_TYPES = frozenset(_BY_TYPE)
