"""The table of the row source suite in a fake Oracle server, and requests for rows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from contracts.row_source_suite import ROWS, TABLE
from fake_oracle.driver import FakeDriver
from fake_oracle.server import OracleColumn, OracleServer, OracleTable

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.catalog import HandlingModes
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowRequest
from headrace_connectors.sql import OracleRowSource

DATABASE = DatabaseOptions("db.example", 1521, "READER", "secret", "SHOP")
COLUMNS = (
    OracleColumn("Id", "NUMBER", 9, 0),
    OracleColumn("region", "VARCHAR2", length=100),
    OracleColumn("note", "CLOB", length=4000),
    OracleColumn("blob", "BLOB", length=4000),
    OracleColumn("price", "NUMBER", 10, 2),
)


def orders_server() -> OracleServer:
    """Return a server whose table ``app.Orders`` holds ROWS."""
    server = OracleServer()
    rows = [{**row, "Id": Decimal(row["Id"])} for row in ROWS]
    server.add(OracleTable("app", "Orders", COLUMNS, ("Id", "region")), rows)
    return server


def row_source(server: OracleServer, **options: Any) -> OracleRowSource:
    """Return a row source of the server with options of reselect."""
    return OracleRowSource(ReselectOptions(**{"database": DATABASE, **options}), FakeDriver(server))


def one_column_table(column: OracleColumn, value: Any, name: str = "T") -> OracleTable:
    """Return a table ``APP.<name>`` with a key ID and ``column``; its only row has the key 1."""
    table = OracleTable("APP", name, (OracleColumn("ID", "NUMBER", 9, 0), column), ("ID",))
    table.versions = [(0, [{"ID": Decimal(1), column.name: value}])]
    return table


def request(
    table: TableId, key: dict[str, tuple[Schema, list[Any]]], columns: dict[str, Schema], scns: list[int] | None = None
) -> RowRequest:
    """Return a request for all ``columns`` of the rows with these keys; ``scns`` are their events' commit SCNs."""
    keys = tuple(Column(name, schema, build_array(schema, values)) for name, (schema, values) in key.items())
    wanted = tuple(Column(name, schema, build_array(schema, [])) for name, schema in columns.items())
    count = len(keys[0].values)
    transactions = np.array([-1] * count if scns is None else scns, np.int64)
    return RowRequest(table, keys, wanted, np.ones((count, len(columns)), np.bool_), transactions)


ORDERS_KEY = {"Id": (Schema("int32"), [1]), "region": (Schema("string"), ["nord"])}
NOTE = {"note": Schema("string", True)}


def orders_request(*scns: int) -> RowRequest:
    """Return a request for the note of order 1, once for each SCN."""
    key = {name: (schema, values * len(scns)) for name, (schema, values) in ORDERS_KEY.items()}
    return request(TABLE, key, NOTE, list(scns))


def read_back(column: OracleColumn, stored: Any, schema: Schema, modes: HandlingModes | None = None) -> pa.Array:
    """Read a cell that holds ``stored`` as the Arrow column of an event's ``schema``."""
    return build_array(schema, [read_cell(column, stored, schema, modes)])


def read_cell(column: OracleColumn, stored: Any, schema: Schema, modes: HandlingModes | None = None) -> Any:
    """Read a cell that holds ``stored`` as a Connect value, or UNREADABLE."""
    server = OracleServer()
    server.add(table := one_column_table(column, stored), table.rows(0))
    source = row_source(server, modes=modes or HandlingModes())
    catalog = source.catalog(TableId("ora", "SHOP", "APP", "T"))
    assert catalog is not None
    requested = request(catalog.table, {"ID": (Schema("int32"), [1])}, {column.name: schema})
    answer = source.fetch(catalog, requested)
    assert answer.found.all()
    return answer.values[0][0]
