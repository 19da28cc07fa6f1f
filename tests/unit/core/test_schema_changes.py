"""What records of schema-change topics say of tables; the recordings hold those of a real connector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.core.connect_data import SchemaAndValue
from headrace.core.events import TableId
from headrace.core.notes import Note
from headrace.core.schema_changes import ADDED, RENAMED, UNREAD, SchemaChange, schema_changes

CUSTOMERS = TableId("my", "inv", "", "customers")


def payload(ddl: str | None, *columns: dict[str, Any], kind: str = "ALTER", **other: Any) -> dict[str, Any]:
    source = {"connector": "mariadb", "name": "my", "db": "inv", "snapshot": "false"}
    change = {"type": kind, "id": '"inv"."customers"', "table": {"columns": list(columns)}}
    return {"source": source, "databaseName": "inv", "schemaName": None, "ddl": ddl, "tableChanges": [change]} | other


def column(name: str, default: str | None = None, **other: Any) -> dict[str, Any]:
    return {"name": name, "optional": True, "defaultValueExpression": default, "generated": False} | other


def notes(ddl: str | None, *columns: dict[str, Any]) -> list[Note]:
    [change] = schema_changes(json.dumps(payload(ddl, *columns)).encode())
    assert change.table == CUSTOMERS
    return list(change.notes)


def test_a_column_with_a_default_is_noted() -> None:
    """Also the default of a type that is not null, and a number that counts up; a plain column is null everywhere."""
    told = [column("A", "0"), column("b"), column("c", optional=False), column("d", generated=True)]
    found = notes(
        "alter table customers add a int default 0, add (b int, c int not null), add d int auto_increment", *told
    )
    assert found == [Note(ADDED, f"inv.customers.{name}") for name in ("A", "c", "d")]


def test_a_renamed_column_is_noted() -> None:
    """By its new name."""
    assert notes("alter table customers change email mail text", column("mail")) == [
        Note(RENAMED, "inv.customers.mail")
    ]


@pytest.mark.parametrize("ddl", [None, "rename table a to customers"])
def test_a_statement_that_is_not_read_is_noted(ddl: str | None) -> None:
    """SQL Server's connector sends none."""
    assert notes(ddl) == [Note(UNREAD, "inv.customers")]


@pytest.mark.parametrize(
    "said",
    [
        payload("create table customers (a int)", kind="CREATE"),
        payload("alter table x add a int not null", source={"name": "my", "snapshot": "true"}),
    ],
)
def test_tables_that_are_made_or_read_are_told_without_notes(said: dict[str, Any]) -> None:
    """They have no rows yet, or their rows come with all columns."""
    assert schema_changes(SchemaAndValue(None, said)) == [SchemaChange(CUSTOMERS)]


def test_a_table_with_a_schema_and_odd_names() -> None:
    """Oracle's and SQL Server's identifiers have three parts."""
    dropped = {"type": "DROP", "id": '"PDB"."APP"."odd""name"', "table": None}
    said = payload("drop table x", databaseName="PDB", schemaName="APP", tableChanges=[dropped])
    assert schema_changes(json.dumps(said).encode()) == [SchemaChange(TableId("my", "PDB", "APP", 'odd"name'))]


NO_TABLES = json.dumps(payload("x", tableChanges=None)).encode()


@pytest.mark.parametrize("other", [None, b"{broken", b"7", b'{"ts_ms":1}', NO_TABLES])
def test_other_records_say_nothing(other: bytes | None) -> None:
    """Heartbeats, tombstones and what cannot be read."""
    assert schema_changes(other) == []
