"""The batched SELECT of reselect for Oracle: its text, and its keys as binds (``reselect.md`` section 7.3).

The keys are a derived table of binds, a row of DUAL each, with an ordinal that assigns an answer to its request. The
number of rows is padded to one of ``SLOTS``, so that a table and column set need few statements; unused rows have null
keys, which match nothing. No key and no SCN is ever a literal, because the server would keep a cursor for each
(DBZ-7479).

A key must identify its row exactly. A type whose events contain less than the database is refused, because "row not
found" would be a wrong answer. The SQL around a bind converts it to the column's type at its full width, so that it is
not truncated or rounded to another key; ``CHAR`` then compares blank-padded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes
from headrace.core.model.events import Column
from headrace_connectors.sql.cells import EXACT_DIGITS, bytes_of, inexact_key
from headrace_connectors.sql.civil import DAY_MICROS, MONTH_MICROS, CivilDate, clock
from headrace_connectors.sql.query import MASK_BITS, mask_count, quoted

SLOTS = (1, 8, 64, 512)
"""Numbers of keys per statement; more keys need several statements."""
SCN = "scn"
"""The name of the bind with the SCN."""


@dataclass(frozen=True, slots=True)
class KeyBind:
    """How one key column is compared: its name, its type, and the SQL that converts a bind to the type."""

    name: str
    type_name: str
    template: str


def slots_for(keys: int) -> int:
    """Return the smallest number of slots for ``keys``, or the largest there is."""
    return next((size for size in SLOTS if size >= keys), SLOTS[-1])


def select_rows(
    table: tuple[str, str], key: Sequence[KeyBind], cells: Sequence[str], slots: int, *, as_of_scn: bool
) -> str:
    """Return the SELECT of ``cells`` (``cell_expression``) for up to ``slots`` keys.

    Binds: ``key_bind`` and ``need_bind`` for each slot, and SCN if ``as_of_scn``. The result contains the ordinal, from
    1, and the cells. Cells that a row does not need are null, and their large objects are not read.
    """
    matches = [f"t.{quoted(part.name)} = k.k{number}" for number, part in enumerate(key, 1)]
    wanted = [
        f"CASE WHEN BITAND(k.need{number // MASK_BITS + 1}, {1 << number % MASK_BITS}) <> 0 THEN {cell} END"
        for number, cell in enumerate(cells)
    ]
    source = f"{quoted(*table)}{f' AS OF SCN :{SCN}' if as_of_scn else ''} t"
    # One row of the derived table per slot. The first one names the columns.
    selects = []
    for slot in range(1, slots + 1):
        values = [("ord", str(slot))]
        values += [(f"k{n}", part.template.format(f":{key_bind(n, slot)}")) for n, part in enumerate(key, 1)]
        need_binds = (need_bind(n, slot) for n in range(1, mask_count(len(cells)) + 1))
        values += [(f"need{n}", f"CAST(:{bind} AS NUMBER)") for n, bind in enumerate(need_binds, 1)]
        texts = [f"{value} AS {name}" if slot == 1 else value for name, value in values]
        selects.append(f"SELECT {', '.join(texts)} FROM DUAL")
    rows = " UNION ALL ".join(selects)
    return f"SELECT {', '.join(['k.ord', *wanted])} FROM ({rows}) k JOIN {source} ON {' AND '.join(matches)}"


def part_key(catalog: CatalogTable) -> Sequence[KeyBind] | None:
    """Return the columns of the primary key by which a table is read in parts.

    None without a primary key, and for one whose order is not that of its bytes (a collation), or that has a type whose
    values, as ``cell_expression`` reads them, are no binds.
    """
    types = {column.name: column.type.name for column in catalog.columns}
    names = [column.name for column in catalog.key]
    if not catalog.primary_key or not all(column.deterministic for column in catalog.key):
        return None
    if not all(types[name] in _TEMPLATES and not types[name].startswith("INTERVAL") for name in names):
        return None
    return [KeyBind(name, types[name], _TEMPLATES[types[name]]) for name in names]


def select_part(table: tuple[str, str], key: Sequence[KeyBind], cells: Sequence[str], rows: int, *, after: bool) -> str:
    """Return the SELECT of ``cells`` and of the key for the next ``rows`` rows in the order of the key.

    With ``after``, the rows behind the key in the binds of slot 1. The first condition is the range that the server
    reads of the key's index.
    """
    names = [f"t.{quoted(column.name)}" for column in key]
    binds = [column.template.format(f":{key_bind(number, 1)}") for number, column in enumerate(key, 1)]
    behind = ""
    for name, bind in reversed(list(zip(names, binds, strict=True))):
        behind = f"({name} > {bind} OR ({name} = {bind} AND {behind}))" if behind else f"{name} > {bind}"
    where = f" WHERE {names[0]} >= {binds[0]} AND {behind}" if after else ""
    order, last = ", ".join(names), [cell_expression(column.name, column.type_name) for column in key]
    return (
        f"SELECT {', '.join([*cells, *last])} FROM {quoted(*table)} t{where} ORDER BY {order} "
        f"FETCH FIRST {rows} ROWS ONLY"
    )


def key_bind(number: int, slot: int) -> str:
    """Return the name of the bind of the key's column ``number`` (from 1) in a slot (from 1)."""
    return f"k{number}_{slot}"


def need_bind(number: int, slot: int) -> str:
    """Return the name of the bind of need mask ``number`` (from 1) in a slot (from 1)."""
    return f"n{number}_{slot}"


def probe_flashback(table: tuple[str, str]) -> str:
    """Return a query that needs the same privileges as a read ``AS OF SCN``, and reads nothing."""
    return f"SELECT 1 FROM {quoted(*table)} AS OF TIMESTAMP SYSTIMESTAMP WHERE 1 = 0"


# -- cells ------------------------------------------------------------------------------------------------------------

LOCAL_TIME = "SYYYY-MM-DD HH24:MI:SS"
"""Format of a DATE. Text loses nothing: the driver's ``datetime`` has microseconds, and no years before 1."""
TIME_FORMATS = {
    "DATE": LOCAL_TIME,
    "TIMESTAMP": f"{LOCAL_TIME}.FF9",
    "TIMESTAMP WITH TIME ZONE": f"{LOCAL_TIME}.FF9 TZH:TZM",
    "TIMESTAMP WITH LOCAL TIME ZONE": f"{LOCAL_TIME}.FF9",
}
"""By type; local time zones are printed in the session's time zone, which is UTC."""


def cell_expression(column: str, type_name: str) -> str:
    """Return the SQL that reads a column without loss in the driver. ``type_name`` is the name of its type."""
    cell = f"t.{quoted(column)}"
    if type_name in TIME_FORMATS:
        return f"TO_CHAR({cell}, '{TIME_FORMATS[type_name]}')"
    if type_name == "XMLTYPE":
        return f"{cell}.getClobVal()"
    if type_name == "JSON":
        return f"JSON_SERIALIZE({cell} RETURNING CLOB)"
    return cell


MICRO_DIGITS = 6

_TEMPLATES: Mapping[str, str] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), "CAST({} AS NUMBER)"),
    "BINARY_FLOAT": "CAST({} AS BINARY_FLOAT)",
    "BINARY_DOUBLE": "CAST({} AS BINARY_DOUBLE)",
    "CHAR": "CAST({} AS CHAR(2000))",
    "VARCHAR2": "CAST({} AS VARCHAR2(4000))",
    "NCHAR": "CAST({} AS NCHAR(1000))",
    "NVARCHAR2": "CAST({} AS NVARCHAR2(2000))",
    "RAW": "CAST({} AS RAW(2000))",
    "DATE": f"TO_DATE({{}}, '{LOCAL_TIME}')",
    "TIMESTAMP": f"TO_TIMESTAMP({{}}, '{TIME_FORMATS['TIMESTAMP']}')",
    **dict.fromkeys(
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"),
        f"TO_TIMESTAMP_TZ({{}}, '{TIME_FORMATS['TIMESTAMP WITH TIME ZONE']}')",
    ),
    "INTERVAL YEAR TO MONTH": "NUMTOYMINTERVAL({}, 'MONTH')",
    "INTERVAL DAY TO SECOND": "NUMTODSINTERVAL({}, 'SECOND')",
}

Writer = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class _Source:
    """A key column of the events with its column in the database."""

    column: Column
    catalog: CatalogColumn
    modes: HandlingModes

    @property
    def digits(self) -> int:
        return self.catalog.scale or 0


def key_bind_sql(column: Column, catalog: CatalogColumn) -> KeyBind:
    """Return how the column is compared. Raises Fatal for a type that cannot be a key."""
    template = _TEMPLATES.get(catalog.type.name)
    if template is None:
        raise inexact_key(column.name, column.schema, catalog)
    return KeyBind(catalog.name, catalog.type.name, template)


def key_values(column: Column, catalog: CatalogColumn, modes: HandlingModes) -> list[object]:
    """Return one bind value per row. Raises Fatal for a type that cannot be compared exactly."""
    choose = _BY_KIND.get(catalog.type.name)
    write = None if choose is None else choose(_Source(column, catalog, modes))
    if write is None:
        raise inexact_key(column.name, column.schema, catalog)
    values = column.values
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())  # counts cover every year
    return [None if value is None else write(value) for value in values.to_pylist()]


def _number(source: _Source) -> Writer | None:
    kind = source.column.values.type
    if pa.types.is_floating(kind):
        precise = source.catalog.precision is not None and source.catalog.precision <= EXACT_DIGITS
        return (lambda value: Decimal(repr(value))) if precise else None
    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_string(kind)
    return Decimal if is_exact else None


def _bytes(source: _Source) -> Writer | None:
    if pa.types.is_binary(source.column.values.type):
        return bytes
    return lambda text: bytes_of(text, source.modes)


def _local_time(source: _Source) -> Writer | None:
    """The unit of an event's count is microseconds in a lake column, or the nanoseconds that Debezium sent."""
    kind = source.column.values.type
    fraction = source.catalog.type.name != "DATE"
    if pa.types.is_timestamp(kind):
        event_digits = MICRO_DIGITS if source.column.schema.semantic == "MicroTimestamp" else 3
        return None if source.digits > event_digits else lambda micros: _time_text(micros * 1000, fraction)
    if pa.types.is_integer(kind) and source.column.schema.semantic == "NanoTimestamp":
        return lambda nanos: _time_text(nanos, fraction)
    if pa.types.is_string(kind) and source.column.schema.semantic == "IsoTimestamp":
        return lambda text: _time_text(_iso_nanos(text), fraction)
    return None


def _zoned_time(source: _Source) -> Writer | None:
    if not pa.types.is_timestamp(source.column.values.type) or source.digits > MICRO_DIGITS:
        return None
    return lambda micros: f"{_time_text(micros * 1000, True)} +00:00"


def _time_text(nanos: int, fraction: bool) -> str:
    """Format nanoseconds since the epoch as a text of ``TIME_FORMATS``."""
    micros, rest = divmod(nanos, 1000)
    days, of_day = divmod(micros, DAY_MICROS)
    date = CivilDate.from_epoch_days(days)
    year = f"-{1 - date.year:04d}" if date.year <= 0 else f"{date.year:04d}"
    digits = f".{of_day % 1_000_000:06d}{rest:03d}" if fraction else ""
    return f"{year}-{date.month:02d}-{date.day:02d} {clock(of_day)}{digits}"


_ISO_TIME = re.compile(r"\+?(-?\d{4,})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


def _iso_nanos(text: str) -> int:
    match = _ISO_TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a timestamp as Debezium writes it")
    days = CivilDate(int(match[1]), int(match[2]), int(match[3])).epoch_days
    second = days * 86400 + int(match[4]) * 3600 + int(match[5]) * 60 + int(match[6])
    return second * 1_000_000_000 + int((match[7] or "").ljust(9, "0"))


_ISO_INTERVAL = re.compile(r"P(-?\d+)Y(-?\d+)M(-?\d+)DT(-?\d+)H(-?\d+)M(-?[\d.]+)S", re.ASCII)


def _months(source: _Source) -> Writer | None:
    if pa.types.is_integer(source.column.values.type):
        return lambda micros: micros // MONTH_MICROS

    def months(text: str) -> int:
        years, rest, *_ = _interval_parts(text)
        return int(years) * 12 + int(rest)

    return months


def _seconds(source: _Source) -> Writer | None:
    if source.digits > MICRO_DIGITS:
        return None
    if pa.types.is_integer(source.column.values.type):
        return lambda micros: Decimal(micros) / 1_000_000

    def seconds(text: str) -> Decimal:
        parts = _interval_parts(text)
        days, hours, minutes = map(int, parts[2:5])
        return Decimal((days * 24 + hours) * 3600 + minutes * 60) + Decimal(parts[5])

    return seconds


def _interval_parts(text: str) -> Sequence[str]:
    match = _ISO_INTERVAL.fullmatch(text)
    if match is None:
        raise ValueError("not an interval as Debezium writes it")
    return match.groups()


_BY_KIND: Mapping[str, Callable[[_Source], Writer | None]] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), _number),
    **dict.fromkeys(
        ("BINARY_FLOAT", "BINARY_DOUBLE"),
        lambda source: float if pa.types.is_floating(source.column.values.type) else None,
    ),
    **dict.fromkeys(
        ("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2"),
        lambda source: str if pa.types.is_string(source.column.values.type) else None,
    ),
    "RAW": _bytes,
    **dict.fromkeys(("DATE", "TIMESTAMP"), _local_time),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), _zoned_time),
    "INTERVAL YEAR TO MONTH": _months,
    "INTERVAL DAY TO SECOND": _seconds,
}
