"""Stored values of Oracle and the values of their events, for the fake and for a real server."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import oracledb
from fake_oracle.server import OracleColumn

from headrace.core.model.schema import Field, Schema

TEXT = Schema("string", True)
TIMESTAMP = Schema("int64", True, "io.debezium.time.Timestamp", 1)
MICROS = Schema("int64", True, "io.debezium.time.MicroTimestamp", 1)
NANOS = Schema("int64", True, "io.debezium.time.NanoTimestamp", 1)
CONNECT = Schema("int64", True, "org.apache.kafka.connect.data.Timestamp", 1)
ISO = Schema("string", True, "io.debezium.time.IsoTimestamp", 1)
ZONED = Schema("string", True, "io.debezium.time.ZonedTimestamp", 1)
DURATION = Schema("int64", True, "io.debezium.time.MicroDuration", 1)
INTERVAL = Schema("string", True, "io.debezium.time.Interval", 1)
VARIABLE = Schema(
    "struct",
    True,
    "io.debezium.data.VariableScaleDecimal",
    1,
    fields=(Field("scale", Schema("int32")), Field("value", Schema("bytes"))),
)


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # noqa: DTZ001 - local times have no zone


def decimal(precision: int, scale: int) -> Schema:
    parameters = (("connect.decimal.precision", str(precision)), ("scale", str(scale)))
    return Schema("bytes", True, "org.apache.kafka.connect.data.Decimal", 1, parameters)


def column(data_type: str, precision: int | None = None, scale: int | None = None, length: int = 22) -> OracleColumn:
    return OracleColumn("V", data_type, precision, scale, length=length)


BIG = Decimal("12345678901234567890123456789012345678")
NOON = "2024-02-29 12:34:56"
HALF_DAY = datetime.timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=560_000)
BYTES = b"\x00\xfb\xff"

CASES: list[tuple[OracleColumn, Any, Schema, Any]] = [
    (column("NUMBER", 2, 0), Decimal(-99), Schema("int8", True), -99),
    (column("NUMBER", 18, 0), Decimal(10**18 - 1), Schema("int64", True), 10**18 - 1),
    (column("NUMBER", 38, 0), BIG, decimal(38, 0), BIG),
    (column("NUMBER", 10, 2), Decimal("1.5"), decimal(10, 2), Decimal("1.50")),
    (column("NUMBER", 5, -2), Decimal(12300), Schema("int32", True), 12300),
    (column("NUMBER"), Decimal("1E+3"), VARIABLE, "1000"),
    (column("NUMBER"), Decimal("-0.000000001"), VARIABLE, "-0.000000001"),
    (column("FLOAT", 126), Decimal("0.1"), VARIABLE, "0.1"),
    (column("NUMBER", 10, 2), Decimal("1.5"), Schema("double", True), 1.5),
    (column("NUMBER", 10, 2), Decimal("1.5"), TEXT, "1.50"),
    (column("NUMBER"), Decimal("1E+3"), TEXT, "1000"),
    (column("NUMBER", 1, 0), Decimal(1), Schema("boolean", True), True),
    (column("BINARY_FLOAT"), 0.5, Schema("float", True), 0.5),
    (column("BINARY_DOUBLE"), float("inf"), Schema("double", True), float("inf")),
    (column("CHAR"), "ab  ", TEXT, "ab  "),
    (column("NVARCHAR2"), "süß 🌊", TEXT, "süß 🌊"),
    (column("CLOB", length=4000), "x" * 100_000, TEXT, "x" * 100_000),
    (column("CLOB", length=4000), "", TEXT, None),
    (column("CLOB", length=4000), "", Schema("string"), ""),
    (column("BLOB", length=4000), b"", Schema("bytes", True), None),
    (column("BLOB", length=4000), BYTES * 2000, Schema("bytes", True), BYTES * 2000),
    (column("RAW"), BYTES, Schema("bytes", True), BYTES),
    (column("XMLTYPE", length=2000), "<a/>", Schema("string", True, "io.debezium.data.Xml", 1), "<a/>"),
    (
        column("JSON", length=8200),
        {"a": [1, None]},
        Schema("string", True, "io.debezium.data.Json", 1),
        '{"a":[1,null]}',
    ),
    (column("ROWID"), "AAAR3sAAHAAAACXAAA", TEXT, "AAAR3sAAHAAAACXAAA"),
    (column("DATE"), NOON, TIMESTAMP, at(2024, 2, 29, 12, 34, 56)),
    (column("DATE"), NOON, ISO, "2024-02-29T12:34:56Z"),
    (
        column("TIMESTAMP(3)", scale=3),
        f"{NOON}.123000000",
        TIMESTAMP,
        at(2024, 2, 29, 12, 34, 56, 123_000),
    ),
    (column("TIMESTAMP(6)", scale=6), f"{NOON}.123456000", MICROS, at(2024, 2, 29, 12, 34, 56, 123_456)),
    (
        column("TIMESTAMP(6)", scale=6),
        f"{NOON}.123456000",
        CONNECT,
        at(2024, 2, 29, 12, 34, 56, 123_000),
    ),
    (column("TIMESTAMP(9)", scale=9), f"{NOON}.123456789", NANOS, 1_709_210_096_123_456_789),
    (column("TIMESTAMP(9)", scale=9), f"{NOON}.123456789", ISO, "2024-02-29T12:34:56.123456789Z"),
    (
        column("TIMESTAMP(6) WITH TIME ZONE", scale=6),
        f"{NOON}.500000000 -05:30",
        ZONED,
        datetime.datetime(2024, 2, 29, 18, 4, 56, 500_000, datetime.UTC),
    ),
    (
        column("TIMESTAMP(6) WITH LOCAL TIME ZONE", scale=6),
        f"{NOON}.500000000",
        ZONED,
        datetime.datetime(2024, 2, 29, 12, 34, 56, 500_000, datetime.UTC),
    ),
    (column("INTERVAL YEAR(2) TO MONTH"), oracledb.IntervalYM(-3, -6), DURATION, -42 * 2_629_800_000_000),
    (column("INTERVAL YEAR(2) TO MONTH"), oracledb.IntervalYM(3, 6), INTERVAL, "P3Y6M0DT0H0M0S"),
    (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), HALF_DAY, DURATION, 93_784_560_000),
    (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), -HALF_DAY, INTERVAL, "P0Y0M-1DT-2H-3M-4.56S"),
    (column("INTERVAL DAY(2) TO SECOND(6)", 2, 6), datetime.timedelta(days=-1), INTERVAL, "P0Y0M-1DT0H0M0S"),
]
