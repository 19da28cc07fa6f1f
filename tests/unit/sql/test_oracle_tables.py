"""Complete tables of Oracle, against a fake of python-oracledb (``tests/fake_oracle``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from support.sources.oracle_tables import row_source

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.events import TableId
from headrace.ports import TablePart
from headrace_connectors.sql import OracleRowSource, oracle_tables

COLUMNS = (
    OracleColumn("ID", "NUMBER", 9, 0),
    OracleColumn("REGION", "VARCHAR2", length=100),
    OracleColumn("AT", "DATE"),
    OracleColumn("DAYS", "INTERVAL DAY(2) TO SECOND(6)", 2, 6),
    OracleColumn("NAME", "VARCHAR2", length=100),
)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle_tables, "PART_ROWS", 3)


def server_with(*key: str, rows: int = 10) -> OracleServer:
    """Return a server whose table has rows in another order than that of its key."""
    server = OracleServer()
    found = [
        {"ID": Decimal(n % 4), "REGION": f"r{n // 4}", "AT": f"2024-01-{n + 1:02d} 00:00:00", "NAME": f"name {n}"}
        for n in reversed(range(rows))
    ]
    server.add(OracleTable("APP", "T", COLUMNS, key), found)
    return server


def opened(server: OracleServer) -> tuple[OracleRowSource, CatalogTable]:
    source = row_source(server)
    catalog = source.catalog(TableId("ora", "SHOP", "APP", "T"))
    assert catalog is not None
    server.statements.clear()
    return source, catalog


def parts_of(source: OracleRowSource, catalog: CatalogTable) -> Iterator[TablePart]:
    return source.scan_in_parts(catalog, [field for field in source.schema(catalog).fields if field.name == "NAME"])


def names(part: TablePart) -> list[Any]:
    [values] = part.values()
    return list(values)


@pytest.mark.parametrize("key", [("ID", "REGION"), ("REGION", "ID"), ("AT",), ("NAME",)])
def test_each_row_is_in_one_part(key: tuple[str, ...]) -> None:
    """Each part has some rows behind the last key of the one before it, whose values are binds."""
    server = server_with(*key)
    source, catalog = opened(server)
    parts = [names(part) for part in parts_of(source, catalog)]
    assert [len(part) for part in parts] == [3, 3, 3, 1]
    assert sorted(name for part in parts for name in part) == [f"name {n}" for n in range(10)]
    assert len({text for text, _ in server.statements[1:]}) == 1
    assert [sorted(binds) for _, binds in server.statements[1:]] == [[f"k{n + 1}_1" for n in range(len(key))]] * 4
    assert not re.search("nord|r0|2024", "".join(text for text, _ in server.statements))


def test_parts_have_states_of_their_own() -> None:
    """No state is kept while the caller takes its time, so that no undo has to last: a later part is of a later one."""
    server = server_with("ID", "REGION")
    source, catalog = opened(server)
    parts = parts_of(source, catalog)
    names(next(parts))
    assert source.connections().used == 0
    server.commit("APP", "T", {"ID": Decimal(3), "REGION": "x", "NAME": "new"})
    assert [name for part in parts for name in names(part)] == ["new"]


@pytest.mark.parametrize("key", [(), ("DAYS",)])
def test_a_table_without_such_a_key_is_read_by_one_statement(key: tuple[str, ...]) -> None:
    """A table without a primary key has no order, and an interval is no bind as it is read."""
    server = server_with(*key)
    source, catalog = opened(server)
    assert sum(len(names(part)) for part in parts_of(source, catalog)) == 10
    assert len(server.statements) == 1
