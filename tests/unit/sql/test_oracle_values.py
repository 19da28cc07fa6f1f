"""Oracle's values are converted to those of events, and keys to bind values (``reselect.md`` section 8.2)."""

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
from support.sources.oracle_cases import (
    BIG,
    BYTES,
    CASES,
    CONNECT,
    DURATION,
    HALF_DAY,
    INTERVAL,
    ISO,
    MICROS,
    NANOS,
    NOON,
    TEXT,
    TIMESTAMP,
    VARIABLE,
    ZONED,
    at,
    column,
    decimal,
)
from support.sources.oracle_tables import read_back, read_cell, request, row_source

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
def test_value_equals_the_events(stored: OracleColumn, value: Any, schema: Schema, event: Any) -> None:
    """Type, scale, unit and text of a value are those that ``OracleValueConverters`` writes."""
    assert read_back(stored, value, schema).to_pylist() == [event]


@pytest.mark.parametrize("data_type", ["BLOB", "RAW"])
@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("hex", BYTES.hex()),
        ("base64", base64.b64encode(BYTES).decode()),
        ("base64-url-safe", base64.urlsafe_b64encode(BYTES).decode()),
    ],
)
def test_binary_values_follow_the_binary_handling_mode(data_type: str, mode: str, text: str) -> None:
    """A binary value of an event with a string schema is encoded by ``binary.handling.mode``."""
    assert read_back(column(data_type, length=4000), BYTES, TEXT, HandlingModes(binary=mode)).to_pylist() == [text]


def test_truncated_columns_are_cut_at_utf_16_units() -> None:
    """A value is truncated as by ``column.truncate.to.N.chars``, which counts UTF-16 units."""
    cut = Schema("string", True, parameters=(("truncateLength", "3"),))
    assert read_back(column("VARCHAR2"), "ab🌊c", cut).to_pylist() == ["ab\ufffd"]


@pytest.mark.parametrize(
    ("data_type", "value", "schema"),
    [
        ("NUMBER", Decimal("1.5"), Schema("int32", True)),
        ("NUMBER", Decimal(2), Schema("bytes", True)),
        ("LONG", "text", TEXT),
        ("TIMESTAMP(9)", "9999-12-31 00:00:00.000000000", NANOS),
        ("DATE", NOON, Schema("struct", True, "io.debezium.time.StructuredTimestamp")),
        ("TIMESTAMP(6) WITH TIME ZONE", f"{NOON}.500000000 +00:00", MICROS),
    ],
)
def test_values_that_the_schema_cannot_hold_are_unreadable(data_type: str, value: Any, schema: Schema) -> None:
    """A value that the event's type cannot hold is UNREADABLE and is handled as section 4.4 describes."""
    assert read_cell(column(data_type), value, schema) is UNREADABLE


@given(st.datetimes())
def test_times_equal_those_of_datetime(moment: datetime.datetime) -> None:
    """Times of the years 1 to 9999 have the nanoseconds since 1970 that ``datetime`` computes."""
    time = parse_time(f" {moment.isoformat(' ', 'microseconds')}000")
    assert time.epoch_nanos == (moment - at(1970, 1, 1)) // datetime.timedelta(microseconds=1) * 1000


def test_years_before_christ() -> None:
    """Oracle has no year 0: the day after -0001-12-31 is 0001-01-01."""
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
        (column("RAW"), BYTES, Schema("bytes"), BYTES, HandlingModes()),
        (column("RAW"), BYTES, Schema("string"), BYTES.hex(), HandlingModes(binary="hex")),
        (column("RAW"), BYTES, Schema("string"), "APv/", HandlingModes(binary="base64")),
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
    """Return whether the row is found by its event's key, in a request with two keys."""
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
    """Every type of key finds its row in every representation of an event (``OraclePrimaryKeyLobReselectIT``)."""
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
    """A key whose event has less precision than the column raises Fatal, because it may find no or another row."""
    with pytest.raises(Fatal, match="key column V cannot identify rows"):
        found_by_key(stored, None, schema, sent, HandlingModes())


# -- schemas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stored", "modes", "schema"),
    [
        *[
            (column("NUMBER", digits, 0), HandlingModes(), Schema(integer_type, True))
            for digits, integer_type in [
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
def test_schema_equals_the_connectors(stored: OracleColumn, modes: HandlingModes, schema: Schema | None) -> None:
    """A column has the schema of ``OracleValueConverters.schemaBuilder``, for JSON events without schemas."""
    server = OracleServer()
    server.add(OracleTable("APP", "T", (stored,)))
    source = row_source(server, modes=modes)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    assert source.schema(catalog).field("V") == schema
