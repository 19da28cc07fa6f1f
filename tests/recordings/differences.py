"""Cells of a lake table that may differ from the dump of its database: each by name, with its value and the reason.

All of these exist before Headrace reads a record: Debezium or Connect cannot represent the value (``reselect.md``
section 11), or sends none. A cell that is not named here must equal the dump. Most of them are PostgreSQL's; those of
other sources are at the end.

``WIRE`` applies with and without a database for reselect, since only cells without a value are reselected;
``UNRESOLVED`` applies only without one. ``TABLES`` are not compared at all, and ``REFUSED`` rows must not exist.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from recordings.records import AVRO, MARIADB, VARIANTS, Variant, dump, variant

Holds = Callable[[Any], bool]

OF_POSTGRES = (*VARIANTS, AVRO)
MICROS = ("a", "b", "b36", "c4", AVRO)  # time.precision.mode adaptive and adaptive_time_microseconds
DAYS = ("a", "b", "b36", "c1", "c3", "c4", AVRO)
PRECISE = ("a", "b", "b36", "c3", "c4", "c5", AVRO)
DEFAULT_PLACEHOLDER = tuple(name for name in OF_POSTGRES if name != "c4")
JAVA_ADDRESS = re.compile(r"\[Ljava\.lang\.String;@[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Difference:
    """Cells that differ from the dump, and the check that they must pass instead.

    If not ``always``, they may equal the dump as well.
    """

    table: str
    column: str
    rows: tuple[int, ...]
    variants: tuple[str, ...]
    reason: str
    holds: Holds
    always: bool = True


def exactly(value: Any) -> Holds:
    """The cell contains ``value``."""
    return lambda actual: bool(actual == value and type(actual) is type(value))


def addresses(actual: Any) -> bool:
    """The cell contains Java's text for an array: its class and address."""
    return isinstance(actual, list) and all(JAVA_ADDRESS.fullmatch(item) for item in actual)


NULL = exactly(None)

# -- tables and rows --------------------------------------------------------------------------------------------------

TABLES: Mapping[str, str] = {
    "public.no_pk": "no key: a table that events are appended to, which no dump equals",
    "public.ri_index": "replica identity by index: the keys on the wire are wrong (reselect.md section 11)",
    "public.toast_index": "replica identity by index: the keys on the wire are wrong (reselect.md section 11)",
    "public.ddl_t": "its column changes its type from int to text: test_schema_change covers it",
    "public.empty_t": "never had a row, so there is no topic and no table",
    "inv.nopk": "no key: a table that events are appended to (test_keyless)",
}
"""Tables of the dump that are not compared, and why."""

LEAVES = ("public.part_t_2025", "public.part_t_2026")
"""Topics without a table in the dump: the snapshot sends a partition's rows for the root and once more for the leaf."""

REFUSED: Mapping[tuple[str, str], tuple[int, ...]] = {("c1", "public.all_types"): (3, 103)}
"""Rows by variant and table that are bad records: c_ts6 of the year 294276 travels in milliseconds, which is right, but
no timestamp in microseconds holds it, and a value that does not fit is never cut (``merge.md`` section 8)."""

REFUSED_OFFSETS: Mapping[tuple[str, str], frozenset[int]] = {("c1", "public.all_types"): frozenset({2, 8, 14})}
"""The offsets of their records: two inserts, and an update of the second row."""

NO_ARRAY_TYPE: Mapping[str, tuple[str, ...]] = {"public.array_types": ("a_bit",)}
"""Columns that the connector declares as something that they are not: a catalog gives them no type."""

NEVER_TYPED: Mapping[str, tuple[str, ...]] = {"public.array_types": ("a_bit", "a_int4_2d")}
"""Columns that JSON without schemas shows as nulls only: the lake learns of no type, and makes no column."""

# -- values that events cannot represent ------------------------------------------------------------------------------


def _all_types(column: str, rows: Iterable[int], variants: Iterable[str], reason: str, holds: Holds) -> Difference:
    return Difference("public.all_types", column, tuple(rows), tuple(variants), reason, holds)


def _arrays(column: str, rows: Iterable[int], variants: Iterable[str], reason: str, holds: Holds) -> Difference:
    return Difference("public.array_types", column, tuple(rows), tuple(variants), reason, holds)


def _snapshot_dates() -> Iterable[Difference]:
    """Snapshot reads use java.sql.Date: another calendar before 1582, no era, another infinity."""
    reason = "a date of a snapshot goes through java.sql.Date"
    days = {2: 1001860, 3: -622191234, 4: -625821272, 5: -141418}
    texts = {2: "4713-01-01Z", 3: "+292278994-08-16Z", 4: "+292269055-12-02Z", 5: "1582-10-24Z"}
    for row, count in days.items():
        yield _all_types("c_date", [row], DAYS, reason, exactly(count))
        yield _all_types("c_date", [row], ["c2"], reason, exactly(texts[row]))
    for row, year, day in ((2, 4713, 1), (5, 1582, 24)):
        date = {"year": year, "month": 1 if row == 2 else 10, "day": day, "specialValue": None}
        yield _all_types("c_date", [row], ["c5"], reason, exactly(date))


def _infinities() -> Iterable[Difference]:
    reason = "infinity as ISO text or as a count of Debezium 3.6 is a far date"
    yield _all_types("c_date", [103], ["b36"], reason, exactly(-2147472692))
    yield _all_types("c_date", [103], ["c2"], reason, exactly("+5877611-06-21Z"))
    yield _all_types("c_date", [104], ["c2"], reason, exactly("-5877611-06-22Z"))
    yield _all_types("c_ts", [3, 103], ["c2"], reason, exactly("+292278994-08-16T23:00:00Z"))
    yield _all_types("c_ts", [4, 104], ["c2"], reason, exactly("-292275055-05-16T23:00:00Z"))


def _out_of_range() -> Iterable[Difference]:
    wrapped = "a MicroTimestamp after the year 294247 overflows in the connector"
    yield _all_types("c_ts6", [3, 103], MICROS, wrapped, exactly(-9223372036853775810))
    reason = "NanoTimestamp covers 1677 to 2262: null"
    for digit in range(7):
        yield _all_types(f"c_ts{digit}", [3, 103], ["c3"], reason, NULL)
    for digit in (0, 1, 2, 3, 4, 6):
        yield _all_types(f"c_ts{digit}", [4, 104], ["c3"], reason, NULL)


def _times() -> Iterable[Difference]:
    yield _all_types("c_time", [3, 103], ["c2"], "24:00 as ISO text is 00:00", exactly("00:00:00Z"))
    yield _all_types("c_time", [3, 103], ["c5"], "24:00 has no structured form: null", NULL)
    reason = "the driver cuts the elements of time[] to milliseconds"
    yield _arrays("a_time", [1, 101], MICROS, reason, exactly([47655123000, 0]))
    yield _arrays("a_time", [1, 101], ["c2"], reason, exactly(["13:14:15.123Z", "00:00:00Z"]))
    yield _arrays("a_time", [1, 101], ["c3"], reason, exactly([47655123000000, 0]))
    midnight = {"hour": 0, "minute": 0, "second": 0, "nanos": 0, "precision": 6}
    cut = midnight | {"hour": 13, "minute": 14, "second": 15, "nanos": 123000000}
    yield _arrays("a_time", [1, 101], ["c5"], reason, exactly([cut, midnight]))
    yield _arrays("a_timetz", [1, 101], ["b36"], "Debezium 3.6 cuts timetz[] to seconds", exactly(["10:44:15Z"]))


def _numbers() -> Iterable[Difference]:
    rows = (3, 4, 5, 103, 104, 105)
    yield _all_types("c_numeric", rows, PRECISE, "no BigDecimal for NaN and infinities: null", NULL)
    yield _arrays("a_numeric", [3, 103], OF_POSTGRES, "a NaN element nulls the whole numeric[]", NULL)


def _arrays_lost() -> Iterable[Difference]:
    for column, variants in (("a_enum", OF_POSTGRES), ("a_ltree", OF_POSTGRES), ("a_dom", ("c3",))):
        yield _arrays(column, [3, 103], variants, "a NULL element nulls the whole array", NULL)
    yield _arrays("a_bit", [1, 2, 3, 101, 102, 103], OF_POSTGRES, "bit(n)[] is sent as one bit string: null", NULL)
    yield _arrays(
        "a_int4_2d", [1, 101], OF_POSTGRES, "inner arrays of int[][] become null elements", exactly([None, None])
    )
    yield _arrays("a_int4_2d", [3, 103], OF_POSTGRES, "inner arrays of int[][] become null elements", exactly([None]))
    yield _arrays(
        "a_text_2d", [1, 3, 101, 103], OF_POSTGRES, "inner arrays of text[][] become Java addresses", addresses
    )


def _streaming_gaps() -> Iterable[Difference]:
    known = tuple(name for name in OF_POSTGRES if name != "c3")
    yield _all_types("c_name", [101, 103, 104, 105], known, "a column of type name is null while streaming", NULL)
    yield _all_types("c_gen", [103, 104, 105], OF_POSTGRES, "generated columns are not in streamed events", NULL)


WIRE: tuple[Difference, ...] = (
    *_snapshot_dates(),
    *_infinities(),
    *_out_of_range(),
    *_times(),
    *_numbers(),
    *_arrays_lost(),
    *_streaming_gaps(),
)

# -- values that only a database can supply ---------------------------------------------------------------------------

_LITERAL = "the stored value is the placeholder itself, which no reader of the wire can tell from an omitted one"

_DOUBTED = "set to NULL, but in this mode a null of its schema may hide an unchanged value: the stored one is kept"


def _toast(column: str, variants: Iterable[str], reason: str, holds: Holds) -> Difference:
    return Difference("public.toast_t", column, (2,), tuple(variants), reason, holds)


def _kept_before_a_literal() -> Iterable[Difference]:
    """Cells that were set to the placeholder: they look unchanged, so the lake keeps their earlier value."""
    before = {"t": "", "ta": [], "hs": {}, "ia": [number * 7919 for number in range(1, 81)]}
    for column, value in before.items():
        yield _toast(column, DEFAULT_PLACEHOLDER, _LITERAL, exactly(value))


UNRESOLVED: tuple[Difference, ...] = (
    _all_types("c_text", [5, 105], DEFAULT_PLACEHOLDER, _LITERAL, NULL),
    _all_types("c_citext", [4, 104], DEFAULT_PLACEHOLDER, _LITERAL, NULL),
    _all_types("c_hstore", [4, 104], DEFAULT_PLACEHOLDER, _LITERAL, NULL),
    _all_types("c_bytea", [4, 104], DEFAULT_PLACEHOLDER, _LITERAL, NULL),
    *_kept_before_a_literal(),
    _toast("b", ("c1", "c3"), _DOUBTED, lambda actual: isinstance(actual, str)),
    _toast("vb", ("b",), "a bit string without a schema looks like text, whose nulls are believed", NULL),
    _all_types("c_varchar", [101], ("c1", "c3"), _DOUBTED, exactly("varchar ünï")),
    _all_types("c_numeric_10_2", [101], ("c1",), _DOUBTED, exactly(12.34)),
)


RESELECTED: tuple[Difference, ...] = tuple(replace(d, always=False) for d in _kept_before_a_literal())
"""With a database these are read again only where the value before does not stand in the same batch."""

UNTYPED: tuple[Difference, ...] = (
    _all_types("c_real", [5, 105], ["b"], "a double with the digits of Java's Float.toString", exactly(1.4e-45)),
)
"""What differs only where a column's type had to be inferred."""


def _first_lists() -> Iterable[Difference]:
    """Cells with an empty list, in a table of which no list with elements was read before."""
    reason = "an empty list without a schema has no element type: no column before a list with elements (types.md)"
    tables = dump(variant("b").dump_file)
    for column in tables["public.array_types"].types:
        if column.startswith("a_"):
            yield replace(_arrays(column, [2, 102], ["b"], reason, NULL), always=False)


@cache
def of_any_order() -> Sequence[Difference]:
    """The differences that depend on which rows of a table are read first."""
    return tuple(_first_lists())


STOPS_OF_ANY_ORDER: Mapping[tuple[str, str], str] = {
    ("b", "public.all_types"): r"'c_\w+' is (STRING|DOUBLE) in the table and (DOUBLE|STRING) in the events",
    ("b", "public.array_types"): r"'a_\w+' is ARRAY<(STRING|DOUBLE)> in the table and ARRAY<(DOUBLE|STRING)> in the",
}
"""Errors by variant and table that depend on which rows are read first: NaN without a schema looks like text, so the
type of its column is that of the first row (types.md)."""


# -- MariaDB ----------------------------------------------------------------------------------------------------------

STANDING: Mapping[str, tuple[Mapping[str, Any], ...]] = {"inv.trunc_me": ({"id": 1}, {"id": 2})}
"""Rows that were truncated away: ``skipped.operations`` is ``t`` by default, so that nobody is told."""

DROPPED_COLUMNS: Mapping[str, frozenset[str]] = {"inv.customers": frozenset({"email", "vip"})}
"""Columns that a table keeps when its source has dropped or renamed them (``merge.md`` section 8)."""


def _mariadb(table: str, column: str, rows: Iterable[int], reason: str, holds: Holds) -> Difference:
    return Difference(f"inv.{table}", column, tuple(rows), MARIADB, reason, holds)


UNTOLD: tuple[Difference, ...] = (
    _mariadb("customers", "phone", (3, 1001, 1002), "ADD COLUMN ... DEFAULT sends no row events", NULL),
    _mariadb("customers", "mail", (1001,), "a column that is renamed sends no row events", NULL),
    _mariadb(
        "types",
        "uu",
        (1,),
        "the connector moves the bytes of a UUID that it reads from the binlog",
        exactly("00123e45-67e8-9b12-d3a4-564266141740"),
    ),
)
"""What MariaDB's connector does not tell, or tells wrongly."""


def allowed(
    of: Variant, *, reselected: bool, typed: bool, any_order: bool = False
) -> Mapping[tuple[str, str, int], Difference]:
    """The differences of one variant by table, column and row key. ``any_order``: its rows were read in any order."""
    ordered = of_any_order() if any_order else ()
    named = [*ordered, *WIRE, *UNTOLD, *(RESELECTED if reselected else UNRESOLVED), *(() if typed else UNTYPED)]
    return {(d.table, d.column, row): d for d in named if of.name in d.variants for row in d.rows}
