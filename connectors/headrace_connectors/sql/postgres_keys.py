"""Key columns of a batch as PostgreSQL input text: the inverse of ``postgres_values.py``, for the types of keys.

A key must identify its row exactly. A type whose events contain less than the database (milliseconds of a
``timestamp(6)``, a ``numeric`` as double) is refused, because "row not found" would be a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.core.model.catalog import CatalogColumn, HandlingModes
from headrace.core.model.events import Column
from headrace_connectors.sql.cells import EXACT_DIGITS, bytes_of, inexact_key
from headrace_connectors.sql.civil import DAY_MICROS, CivilDate, clock, fraction
from headrace_connectors.sql.postgres_values import INFINITE_COUNTS, INFINITE_DAYS, INFINITE_MILLIS, NUMERIC_SPECIALS

Writer = Callable[[Any], str]

_TIME_UNITS = {"Time": 1000, "MicroTime": 1}
_INFINITE_MICROS = {count: text for counts in (INFINITE_COUNTS, INFINITE_MILLIS) for text, count in counts.items()}
_INFINITE_DAYS = {count: text for text, count in INFINITE_DAYS.items()}
_NUMBERS: Mapping[str, str] = {name: text for text, name in NUMERIC_SPECIALS.items()}


def key_texts(column: Column, stored: CatalogColumn, modes: HandlingModes) -> list[str | None]:
    """Return one text per row. Raises Fatal for a type that cannot be compared exactly."""
    kind = column.values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        truncated = (column.schema.name or "").endswith("data.Timestamp") and _digits(stored) > 3
        if pa.types.is_timestamp(kind) and truncated:
            raise inexact_key(column.name, column.schema, stored)
        counts = column.values.view(pa.int64() if pa.types.is_timestamp(kind) else pa.int32()).to_pylist()
        write: Writer = _timestamp_text if pa.types.is_timestamp(kind) else _date_text
        return [None if count is None else write(count) for count in counts]
    write = _writer(column, stored, modes)
    return [None if value is None else write(value) for value in column.values.to_pylist()]


def _writer(column: Column, stored: CatalogColumn, modes: HandlingModes) -> Writer:
    kind, semantic = column.values.type, column.schema.semantic
    base = stored.type.base_type().name
    if semantic in ("Time", "MicroTime", "NanoTime"):
        if (column.schema.name or "").startswith("org.apache.kafka") and _digits(stored) > 3:
            raise inexact_key(column.name, column.schema, stored)
        if semantic == "NanoTime":
            return lambda nanos: clock(nanos // 1000) + fraction(nanos // 1000)
        unit = _TIME_UNITS[semantic]
        return lambda count: clock(count * unit) + fraction(count * unit)
    if pa.types.is_boolean(kind):
        return lambda value: "t" if value else "f"
    if pa.types.is_integer(kind):
        return str
    if pa.types.is_decimal(kind):
        return lambda value: format(Decimal(value), "f")
    if pa.types.is_binary(kind) and base == "bytea":
        return lambda value: "\\x" + value.hex()
    # A double distinguishes all values of ``numeric`` with up to 15 digits.
    digits = ((stored.typmod - 4) >> 16) & 0xFFFF if stored.typmod >= 4 else EXACT_DIGITS + 1
    if pa.types.is_floating(kind) and (base in ("float4", "float8") or (base == "numeric" and digits <= EXACT_DIGITS)):
        return repr
    if pa.types.is_string(kind):
        if base == "bytea":
            return lambda text: "\\x" + bytes_of(text, modes).hex()
        if base == "numeric":
            return lambda text: _NUMBERS.get(str(text), str(text))
        return _iso_text if base in ("date", "timestamp") else str
    raise inexact_key(column.name, column.schema, stored)


def _iso_text(text: str) -> str:
    """``isostring`` dates and timestamps: years before 1 become BC, the final Z is removed."""
    plain = text.removesuffix("Z").removeprefix("+")
    if not plain.startswith("-"):
        return plain
    year, _, rest = plain[1:].partition("-")
    return f"{int(year) + 1:04d}-{rest} BC"


def _digits(column: CatalogColumn) -> int:
    return column.typmod if column.typmod >= 0 else 6


def _date_text(days: int) -> str:
    return _INFINITE_DAYS.get(days) or _civil(days)


def _timestamp_text(micros: int) -> str:
    """Also for a ``timestamptz``: sessions run in UTC."""
    if micros in _INFINITE_MICROS:
        return _INFINITE_MICROS[micros]
    days, rest = divmod(micros, DAY_MICROS)
    day, _, era = _civil(days).partition(" ")
    return f"{day} {clock(rest)}{fraction(rest)}{' ' + era if era else ''}"


def _civil(days: int) -> str:
    """The ISO date of days since 1970-01-01, for any year."""
    date = CivilDate.from_epoch_days(days)
    text = f"{date.month:02d}-{date.day:02d}"
    return f"{date.year:04d}-{text}" if date.year > 0 else f"{1 - date.year:04d}-{text} BC"
