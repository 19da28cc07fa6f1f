"""Oracle's values become what their events carry, and keys find their rows again (``reselect.md`` section 8.2)."""

from __future__ import annotations

import base64
import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import oracledb
import pytest
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from hypothesis import given
from hypothesis import strategies as st
from unit.sql.oracle_cases import (
    BIG,
    CASES,
    CONNECT,
    DURATION,
    HALF_DAY,
    INTERVAL,
    ISO,
    MICROS,
    NANOS,
    NOON,
    OCTETS,
    TEXT,
    TIMESTAMP,
    VARIABLE,
    ZONED,
    at,
    column,
    decimal,
)
from unit.sql.oracle_tables import read_back, read_cell, request, row_source

from headrace.core.model.catalog import HandlingModes
from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.rows import UNREADABLE
from headrace_connectors.sql.oracle_values import parse_time

TABLE = TableId("ora", "SHOP", "APP", "T")


@pytest.mark.parametrize(
    ("stored", "value", "schema", "event"), CASES, ids=lambda case: getattr(case, "data_type", None)
)
def test_value_is_the_events(stored: OracleColumn, value: Any, schema: Schema, event: Any) -> None:
    """Type, scale, unit and text are those that ``OracleValueConverters`` writes."""
    assert read_back(stored, value, schema).to_pylist() == [event]


@pytest.mark.parametrize("kind", ["BLOB", "RAW"])
@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("hex", OCTETS.hex()),
        ("base64", base64.b64encode(OCTETS).decode()),
        ("base64-url-safe", base64.urlsafe_b64encode(OCTETS).decode()),
    ],
)
def test_octets_follow_the_binary_mode(kind: str, mode: str, text: str) -> None:
    """The event's schema says only that it is text."""
    assert read_back(column(kind, length=4000), OCTETS, TEXT, HandlingModes(binary=mode)).to_pylist() == [text]


def test_truncated_columns_are_cut_alike() -> None:
    """``column.truncate.to.N.chars`` counts UTF-16 units."""
    cut = Schema("string", True, parameters=(("truncateLength", "3"),))
    assert read_back(column("VARCHAR2"), "ab🌊c", cut).to_pylist() == ["ab\ufffd"]


@pytest.mark.parametrize(
    ("kind", "value", "schema"),
    [
        ("NUMBER", Decimal("1.5"), Schema("int32", True)),
        ("NUMBER", Decimal(2), Schema("bytes", True)),
        ("LONG", "text", TEXT),
        ("TIMESTAMP(9)", "9999-12-31 00:00:00.000000000", NANOS),
        ("DATE", NOON, Schema("struct", True, "io.debezium.time.StructuredTimestamp")),
        ("TIMESTAMP(6) WITH TIME ZONE", f"{NOON}.500000000 +00:00", MICROS),
    ],
)
def test_what_does_not_fit_stays_open(kind: str, value: Any, schema: Schema) -> None:
    """A value that the event's type cannot hold is no value; the cell goes the way of section 4.4."""
    assert read_cell(column(kind), value, schema) is UNREADABLE


@given(st.datetimes())
def test_times_are_read_as_python_reads_them(moment: datetime.datetime) -> None:
    """Where ``datetime`` reaches, it says the same."""
    time = parse_time(f" {moment.isoformat(' ', 'microseconds')}000")
    assert time.epoch_nanos == (moment - at(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000


def test_years_before_the_first() -> None:
    """Oracle has no year 0: -0001 is the year before 1, which Java counts as 0."""
    assert parse_time("-0001-12-31 00:00:00").date.epoch_days + 1 == parse_time("0001-01-01 00:00:00").date.epoch_days


# -- keys -------------------------------------------------------------------------------------------------------------


KEYS: list[tuple[OracleColumn, Any, Schema, Any, HandlingModes]] = [
    (stored, value, schema, sent, modes)
    for stored, value, schema, sent, modes in [
        (column("CHAR"), "ab ", Schema("string"), "ab", HandlingModes()),
        (column("NCHAR"), "ü  ", Schema("string"), "ü", HandlingModes()),
        (column("VARCHAR2"), "it's", Schema("string"), "it's", HandlingModes()),
        (column("NVARCHAR2"), "ü", Schema("string"), "ü", HandlingModes()),
        (column("NUMBER", 9, 0), Decimal(7), Schema("int32"), 7, HandlingModes()),
        (column("NUMBER", 38, 0), BIG, decimal(38, 0), BIG, HandlingModes()),
        (column("NUMBER"), Decimal("1.50"), VARIABLE, {"scale": 1, "value": Decimal("1.5")}, HandlingModes()),
        (column("NUMBER", 9, 2), Decimal("0.1"), Schema("double"), 0.1, HandlingModes(decimal="double")),
        (column("NUMBER", 9, 2), Decimal("0.1"), Schema("string"), "0.10", HandlingModes(decimal="string")),
        (column("FLOAT", 126), Decimal("0.1"), VARIABLE, {"scale": 1, "value": Decimal("0.1")}, HandlingModes()),
        (column("BINARY_FLOAT"), 0.5, Schema("float"), 0.5, HandlingModes()),
        (column("BINARY_DOUBLE"), 0.1, Schema("double"), 0.1, HandlingModes()),
        (column("RAW"), OCTETS, Schema("bytes"), OCTETS, HandlingModes()),
        (column("RAW"), OCTETS, Schema("string"), OCTETS.hex(), HandlingModes(binary="hex")),
        (column("RAW"), OCTETS, Schema("string"), "APv/", HandlingModes(binary="base64")),
        (column("DATE"), NOON, TIMESTAMP, 1_709_210_096_000, HandlingModes()),
        (column("DATE"), "-0044-03-15 00:00:00", TIMESTAMP, -63_517_824_000_000, HandlingModes()),
        (column("TIMESTAMP(6)", scale=6), f"{NOON}.123456000", MICROS, 1_709_210_096_123_456, HandlingModes()),
        (column("TIMESTAMP(9)", scale=9), f"{NOON}.123456789", NANOS, 1_709_210_096_123_456_789, HandlingModes()),
        (column("TIMESTAMP(6)", scale=6), f"{NOON}.500000000", ISO, "2024-02-29T12:34:56.500Z", HandlingModes()),
        (
            column("TIMESTAMP(6) WITH TIME ZONE", scale=6),
            f"{NOON}.500000000 -05:30",
            ZONED,
            "2024-02-29T12:34:56.500000-05:30",
            HandlingModes(),
        ),
        (
            column("TIMESTAMP(6) WITH LOCAL TIME ZONE", scale=6),
            f"{NOON}.500000000",
            ZONED,
            "2024-02-29T12:34:56.500000Z",
            HandlingModes(),
        ),
        (
            column("INTERVAL YEAR(2) TO MONTH"),
            oracledb.IntervalYM(-3, -6),
            DURATION,
            -110_451_600_000_000,
            HandlingModes(),
        ),
        (column("INTERVAL YEAR(2) TO MONTH"), oracledb.IntervalYM(3, 6), INTERVAL, "P3Y6M0DT0H0M0S", HandlingModes()),
        (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), HALF_DAY, DURATION, 93_784_560_000, HandlingModes()),
        (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), -HALF_DAY, INTERVAL, "P0Y0M-1DT-2H-3M-4.56S", HandlingModes()),
    ]
]


def found_by_key(stored: OracleColumn, value: Any, schema: Schema, sent: Any, modes: HandlingModes) -> bool:
    """Whether the row is found by its event's key, among others of the batch."""
    server = OracleServer()
    server.add(
        OracleTable("APP", "T", (stored, OracleColumn("DOC", "CLOB", length=4000)), ("V",)), [{"V": value, "DOC": "x"}]
    )
    source = row_source(server, modes=modes)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    answer = source.fetch(catalog, request(TABLE, {"V": (schema, [sent, sent])}, {"DOC": TEXT}))
    return bool(np.all(answer.found)) and answer.values[0] == ["x", "x"]


@pytest.mark.parametrize(
    ("stored", "value", "schema", "sent", "modes"), KEYS, ids=lambda case: getattr(case, "data_type", None)
)
def test_row_is_found_by_its_key(
    stored: OracleColumn, value: Any, schema: Schema, sent: Any, modes: HandlingModes
) -> None:
    """``OraclePrimaryKeyLobReselectIT``: every type of a key, in every form that its events have."""
    assert found_by_key(stored, value, schema, sent, modes)


@pytest.mark.parametrize(
    ("stored", "schema", "sent"),
    [
        (column("NUMBER", 20, 2), Schema("double"), 0.1),
        (column("NUMBER"), Schema("double"), 0.1),
        (column("TIMESTAMP(6)", scale=6), CONNECT, 0),
        (column("TIMESTAMP(9)", scale=9), MICROS, 0),
        (column("TIMESTAMP(9) WITH TIME ZONE", scale=9), ZONED, "2024-02-29T12:34:56Z"),
        (column("INTERVAL DAY(2) TO SECOND(9)", 2, 9), DURATION, 1),
        (column("ROWID"), Schema("string"), "AAAR3sAAHAAAACXAAA"),
    ],
)
def test_inexact_key_is_refused(stored: OracleColumn, schema: Schema, sent: Any) -> None:
    """Events that carry less than the key holds would find no row, or another one."""
    with pytest.raises(Fatal, match="key column V cannot identify rows"):
        found_by_key(stored, None, schema, sent, HandlingModes())


# -- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "modes", "schema"),
    [
        *[
            (column("NUMBER", digits, 0), HandlingModes(), Schema(kind, True))
            for digits, kind in [
                (2, "int8"),
                (3, "int16"),
                (4, "int16"),
                (5, "int32"),
                (9, "int32"),
                (10, "int64"),
                (18, "int64"),
            ]
        ],
        (column("NUMBER", 19, 0), HandlingModes(), decimal(19, 0)),
        (column("NUMBER", None, 0), HandlingModes(), decimal(38, 0)),
        (column("NUMBER", 10, 2), HandlingModes(decimal="string"), TEXT),
        (column("NUMBER", 9, 0), HandlingModes(decimal="string"), TEXT),
        (column("NUMBER", 9, -2), HandlingModes(decimal="string"), Schema("int64", True)),
        (column("NUMBER"), HandlingModes(), VARIABLE),
        (column("NUMBER"), HandlingModes(decimal="double"), Schema("double", True)),
        (column("FLOAT", 126), HandlingModes(), VARIABLE),
        (column("DATE"), HandlingModes(), TIMESTAMP),
        (column("TIMESTAMP(6)", scale=6), HandlingModes(), MICROS),
        (column("TIMESTAMP(9)", scale=9), HandlingModes(), NANOS),
        (column("TIMESTAMP(9)", scale=9), HandlingModes(time_precision="connect"), CONNECT),
        (column("TIMESTAMP(9)", scale=9), HandlingModes(time_precision="isostring"), ISO),
        (column("TIMESTAMP(3) WITH TIME ZONE", scale=3), HandlingModes(), ZONED),
        (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), HandlingModes(interval="string"), INTERVAL),
        (column("BLOB"), HandlingModes(binary="hex"), TEXT),
        (column("LONG"), HandlingModes(), None),
        (replace(column("NUMBER", 9, 0), virtual=True), HandlingModes(), None),
    ],
)
def test_schema_is_the_connectors(stored: OracleColumn, modes: HandlingModes, schema: Schema | None) -> None:
    """For JSON without schemas (``OracleValueConverters.schemaBuilder``)."""
    server = OracleServer()
    server.add(OracleTable("APP", "T", (stored,)))
    source = row_source(server, modes=modes)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    assert source.schema(catalog).field("V") == schema
