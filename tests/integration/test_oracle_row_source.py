"""Tests with a real Oracle, if HEADRACE_TEST_ORACLE_DSN (``host:port/service``), _USER and _PASSWORD are set.

The user needs CREATE SESSION, CREATE TABLE and a quota; the tables are its own and are dropped again. The tests cover
what the fake (``tests/fake_oracle``) cannot prove: a server accepts the statements and returns the stored values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import oracledb
import pytest
from contracts.row_source_suite import ROWS, TABLE, RowSourceSuite
from fake_oracle.server import OracleColumn
from support.sources.oracle_cases import CASES
from support.sources.oracle_tables import request

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace_connectors.sql import OracleRowSource

DSN = os.environ.get("HEADRACE_TEST_ORACLE_DSN", "")
USER = os.environ.get("HEADRACE_TEST_ORACLE_USER", "")
PASSWORD = os.environ.get("HEADRACE_TEST_ORACLE_PASSWORD", "")

pytestmark = pytest.mark.skipif(not DSN, reason="HEADRACE_TEST_ORACLE_DSN names no Oracle server")

ORDERS = """
CREATE TABLE "Orders" ("Id" NUMBER(9), "region" VARCHAR2(100), "note" CLOB, "blob" BLOB, "price" NUMBER(10, 2),
PRIMARY KEY ("Id", "region"))
"""
DECLARED = {"RAW": "RAW(2000)", "CHAR": "CHAR(4)", "NVARCHAR2": "NVARCHAR2(100)", "VARCHAR2": "VARCHAR2(100)"}
WRITTEN = {
    "DATE": "TO_DATE(:v, 'SYYYY-MM-DD HH24:MI:SS')",
    "TIMESTAMP": "TO_TIMESTAMP(:v, 'SYYYY-MM-DD HH24:MI:SS.FF9')",
    "TIMESTAMP(6) WITH TIME ZONE": "TO_TIMESTAMP_TZ(:v, 'SYYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM')",
    "XMLTYPE": "XMLTYPE(:v)",
}
UNWRITTEN = ("JSON", "ROWID")
"""Types that not every release has, or that nobody can write; neither are binds of empty values, which are nulls."""


@pytest.fixture(scope="module")
def connection() -> Iterator[Any]:
    """A session of the tables' owner."""
    with oracledb.connect(user=USER, password=PASSWORD, dsn=DSN) as connection:
        connection.cursor().execute("ALTER SESSION SET TIME_ZONE = '+00:00'")
        yield connection


@pytest.fixture
def source() -> Iterator[OracleRowSource]:
    """A row source of the server."""
    address, _, service = DSN.partition("/")
    host, _, port = address.partition(":")
    database = DatabaseOptions(host, int(port or 1521), USER, PASSWORD, service, type="oracle")
    source = OracleRowSource(ReselectOptions(database=database))
    yield source
    source.close()


def recreate(connection: Any, name: str, statement: str) -> None:
    with connection.cursor() as cursor:
        with suppress(oracledb.DatabaseError):
            cursor.execute(f'DROP TABLE "{name}" PURGE')
        cursor.execute(statement)


def insert(connection: Any, name: str, rows: Sequence[dict[str, Any]]) -> None:
    names = ", ".join(f'"{each}"' for each in rows[0])
    binds = ", ".join(f":{number}" for number in range(1, len(rows[0]) + 1))
    with connection.cursor() as cursor:
        cursor.executemany(f'INSERT INTO "{name}" ({names}) VALUES ({binds})', [[*row.values()] for row in rows])
    connection.commit()


class TestLiveOracle(RowSourceSuite):
    """The suite of row sources."""

    table = TableId(TABLE.name, TABLE.database, USER.upper(), TABLE.table)
    empty_text = None
    empty_octets = None
    key = {"Id": (Schema("int32"), [1]), "region": (Schema("string"), ["nord"])}  # noqa: RUF012 - it is never changed

    @pytest.fixture
    def source(self, source: OracleRowSource, connection: Any) -> Iterator[OracleRowSource]:
        """A row source of the server, whose table holds ROWS."""
        recreate(connection, "Orders", ORDERS)
        insert(connection, "Orders", ROWS)
        yield source
        connection.cursor().execute('DROP TABLE "Orders" PURGE')

    def test_check_passes(self, source: OracleRowSource) -> None:
        """The server is recent enough and a primary."""
        source.check()

    def test_rows_are_read_as_of_an_scn(self, source: OracleRowSource, connection: Any) -> None:
        """A read returns the state before the update, unless the table is too young for a flashback query."""
        with connection.cursor() as cursor:
            scn = int(cursor.execute("SELECT TIMESTAMP_TO_SCN(SYSTIMESTAMP) FROM DUAL").fetchone()[0])
            cursor.execute('UPDATE "Orders" SET "note" = :1', ["later"])
        connection.commit()
        answer = source.fetch(
            self.catalog(source), request(self.table, self.key, {"note": Schema("string", True)}, [scn])
        )
        assert (answer.values[0] == ["later"]) is bool(answer.flashback_fallbacks)

    def test_hundreds_of_keys_are_one_statement(self, source: OracleRowSource) -> None:
        """512 slots with their binds; missing rows are reported as not found."""
        key = {"Id": (Schema("int32"), [*range(512)]), "region": (Schema("string"), ["nord"] * 512)}
        answer = source.fetch(self.catalog(source), request(self.table, key, {"note": Schema("string", True)}))
        assert np.flatnonzero(answer.found).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("stored", "value", "schema", "event"),
    [case for case in CASES if case[0].data_type not in UNWRITTEN and case[1] not in ("", b"")],
)
def test_value_is_the_events(
    connection: Any, source: OracleRowSource, stored: OracleColumn, value: Any, schema: Schema, event: Any
) -> None:
    """Every case of the fake, stored and read."""
    recreate(connection, "HEADRACE", f'CREATE TABLE HEADRACE (ID NUMBER(9) PRIMARY KEY, "V" {declared(stored)})')
    written = WRITTEN.get(stored.data_type) or WRITTEN.get(stored.data_type.partition("(")[0], ":v")
    with connection.cursor() as cursor:
        cursor.execute(f'INSERT INTO HEADRACE (ID, "V") VALUES (1, {written})', {"v": value})
    connection.commit()
    catalog = source.catalog(TableId("ora", "SHOP", USER.upper(), "HEADRACE"))
    assert catalog is not None
    answer = source.fetch(catalog, request(catalog.table, {"ID": (Schema("int32"), [1])}, {"V": schema}))
    assert build_array(schema, answer.values[0]).to_pylist() == [event]


def declared(stored: OracleColumn) -> str:
    """The column's type in DDL."""
    if stored.data_type == "NUMBER" and stored.scale is not None:
        return f"NUMBER({stored.precision or '*'}, {stored.scale})"
    return DECLARED.get(stored.data_type, stored.data_type)
