"""Records of schema-change topics: columns that statements add or rename, their defaults, and notes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.records.envelopes import change, key

from headrace.core.decode.decoded import RoutedEvents, SnapshotBegan, TableAltered
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.schema_changes import (
    ADDED,
    RENAMED,
    UNREAD,
    Added,
    Altered,
    SchemaChange,
    parse_alteration,
    schema_changes,
)
from headrace.core.model.absent_columns import ColumnDefault
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.events import NO_POSITION, TableId
from headrace.core.model.notes import Note
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain
from headrace_dev.memory.feed import MemoryRecord

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


def change_of(ddl: str | None, *columns: dict[str, Any]) -> SchemaChange:
    [change] = schema_changes(json.dumps(payload(ddl, *columns)).encode())
    return change


def test_an_added_column_without_a_known_value_is_noted() -> None:
    """The value of stored rows is unknown for some defaults, serial and generated columns; otherwise it is null."""
    columns = [
        column("A", "x"),
        column("b"),
        column("c", optional=False),
        column("d", generated=True),
        column("e", "1"),
    ]
    added = "add a text default uuid(), add (b int, c int not null), add d serial, add e double default 1"
    found = notes(f"alter table customers {added}", *columns)
    assert found == [Note(ADDED, f"inv.customers.{name}") for name in ("A", "c", "d", "e")]


@pytest.mark.parametrize(
    ("definition", "reported", "default"),
    [
        ("varchar(9) default 'none'", column("c", "none", typeName="VARCHAR"), ("text", "none")),
        ("int default '7'", column("c", "7", typeName="INT UNSIGNED"), ("number", "7")),
        ("boolean default true", column("c", "1", typeName="BOOLEAN"), ("number", "1")),
        ("decimal(9,2) default 1.5", column("c", "1.50", typeName="DECIMAL", scale=2), ("number", "1.50")),
        ("decimal(9,2) default 1.555", column("c", "1.56", typeName="DECIMAL", scale=2), None),
        ("int default 7", column("c", "8", typeName="INT"), None),
        ("varchar(9) default 5", column("c", "5", typeName="VARCHAR"), None),
        ("char(9) default 'a '", column("c", "a ", typeName="CHAR"), None),
        ("time default 100000", column("c", "100000", typeName="TIME"), None),
        ("date default '2024-01-02'", column("c", "2024-01-02", typeName="DATE"), None),
    ],
)
def test_a_default_that_can_be_read_exactly(
    definition: str, reported: dict[str, Any], default: tuple[str, str] | None
) -> None:
    """A default is used if statement and connector agree on it and its type has one text form; others are noted."""
    change, note = (
        change_of(f"alter table customers add column C {definition}", reported),
        Note(ADDED, "inv.customers.c"),
    )
    if default is None:
        assert (change.defaults, change.unless_filled, change.notes) == ((), (), (note,))
    else:
        assert (change.defaults, change.unless_filled, change.notes) == ((ColumnDefault("c", *default),), (note,), ())


def test_the_position_of_a_schema_change() -> None:
    """The position comes from the source block, as that of a row's event; without its fields there is none."""
    source = {"connector": "mariadb", "file": "bin.000003", "pos": 763, "row": 0, "ts_ms": 7}
    change = SchemaChange(CUSTOMERS, source)
    assert change.position(2) == b"00002.0000000003.00000000000000000763.0000000000"
    assert (change.source_time(9), SchemaChange(CUSTOMERS).source_time(9)) == (7000, 9000)
    assert SchemaChange(CUSTOMERS, {"connector": "db2"}).position(0) == NO_POSITION


def test_a_renamed_column_is_noted() -> None:
    """The note of a renamed column has its new name."""
    assert notes("alter table customers change email mail text", column("mail")) == [
        Note(RENAMED, "inv.customers.mail")
    ]


@pytest.mark.parametrize("ddl", [None, "rename table a to customers"])
def test_a_statement_that_is_not_read_is_noted(ddl: str | None) -> None:
    """The decoder adds a note for DDL that it cannot parse, and for a record without DDL, as of SQL Server."""
    assert notes(ddl) == [Note(UNREAD, "inv.customers")]


@pytest.mark.parametrize(
    "record",
    [
        payload("create table customers (a int)", kind="CREATE"),
        payload("alter table x add a int not null", source={"name": "my", "snapshot": "true"}),
    ],
)
def test_created_and_snapshotted_tables_have_no_notes(record: dict[str, Any]) -> None:
    """The rows of a created or snapshotted table arrive with all of its columns."""
    assert schema_changes(SchemaAndValue(None, record)) == [SchemaChange(CUSTOMERS)]


def test_a_table_with_a_schema_and_odd_names() -> None:
    """Identifiers of Oracle and SQL Server have three parts, and may contain quotes."""
    dropped = {"type": "DROP", "id": '"PDB"."APP"."odd""name"', "table": None}
    record = payload("drop table x", databaseName="PDB", schemaName="APP", tableChanges=[dropped])
    assert schema_changes(json.dumps(record).encode()) == [SchemaChange(TableId("my", "PDB", "APP", 'odd"name'))]


NO_TABLES = json.dumps(payload("x", tableChanges=None)).encode()


@pytest.mark.parametrize("other", [None, b"{broken", b"7", b'{"ts_ms":1}', NO_TABLES])
def test_other_records_are_no_schema_changes(other: bytes | None) -> None:
    """Heartbeats, tombstones and unreadable records contain no schema change."""
    assert schema_changes(other) == []


def test_transforms_keep_schema_changes() -> None:
    """A chain that drops a header returns the schema change of the record."""
    drop = chain({"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "h"})
    record = MemoryRecord("my", 0, 3, 7, None, json.dumps(payload("alter table customers add a int")).encode())
    decoded = TransformingDecoder("my", EnvelopeOptions(False, False), drop).decode([record])
    assert [each.change.table for each in decoded.of(TableAltered)] == [CUSTOMERS]


def test_messages_have_the_order_of_the_records() -> None:
    """In a topic with rows and schema changes, a schema change is between the rows before it and after it."""
    schema = {"type": "struct", "name": "io.debezium.connector.mysql.SchemaChangeValue", "fields": []}
    altered = {"schema": schema, "payload": payload("alter table customers add a int")}
    read = change("r", {"id": 1}, 10, snapshot="first_in_data_collection")
    values = [change("u", {"id": 1}, 9), json.dumps(altered).encode(), read]
    records = [MemoryRecord("t", 0, at, 7, key({"id": 1}), value) for at, value in enumerate(values)]
    messages = TopicDecoder("t", EnvelopeOptions()).decode(records).messages
    assert [type(each) for each in messages] == [RoutedEvents, TableAltered, SnapshotBegan, RoutedEvents]


@pytest.mark.parametrize(
    ("ddl", "added"),
    [
        ("alter table t add column c int default 0", ["c"]),
        (
            "ALTER TABLE `inv`.`t` ADD `c, d` varchar(20) DEFAULT 'a, ADD b int' COMMENT 'it''s', ADD d DECIMAL(9,2)",
            ["c, d", "d"],
        ),
        ("alter ignore table if exists t add column if not exists c int first, engine=InnoDB;", ["c"]),
        ("alter table t add (a int, b enum('x','y') default 'x'), drop column c", ["a", "b"]),
        ('ALTER TABLE "APP"."T" ADD ("C#1" NUMBER(9,2) DEFAULT 0, D DATE)', ["C#1", "D"]),
        ("/* who */ alter table t -- why\n add c int # what", ["c"]),
        ("alter table t add index i (a), add unique key u (b), add constraint f foreign key (c) references x (d)", []),
        ("alter table t add primary key (a, b), alter column c set default 5, modify d int, order by a", []),
        ("create index i on t (a)", []),
        ("comment on column t.a is 'x'", []),
    ],
)
def test_columns_that_are_added(ddl: str, added: list[str]) -> None:
    """The parser finds them beside other clauses; texts, comments and quoted names may contain any characters."""
    found = parse_alteration(ddl)
    assert found is not None
    assert ([each.name for each in found.added], found.renamed) == (added, ())


@pytest.mark.parametrize(
    ("definition", "reads", "default"),
    [
        ("int", "null", ""),
        ("int default null", "null", ""),
        ("int not null default -5 after b", "number", "-5"),
        ("decimal(9,2) default +1.50 comment 'x'", "number", "1.50"),
        ("boolean default true", "number", "1"),
        ("varchar(9) default 'it''s' not null", "text", "it's"),
        ("varchar(9) default ''", "text", ""),
        *(
            (f"varchar(9) default {other}", "", "")
            for other in (r"'a\nb'", "'a' 'b'", "uuid()", "(1 + 1)", "b'1'", "x'0a'")
        ),
        *((f"int default {other}", "", "") for other in ("1 + 1", "-(1)", "", "current_timestamp", "1e3", "`a`")),
    ],
)
def test_the_default_of_a_column(definition: str, reads: str, default: str) -> None:
    """The parser returns a literal default, and none for an expression."""
    assert parse_alteration(f"alter table t add c {definition}") == Altered(added=(Added("c", reads, default),))


@pytest.mark.parametrize(
    ("ddl", "renamed"),
    [
        ("alter table customers change column email mail varchar(200)", [("email", "mail")]),
        ("alter table t change `a` `b` int, rename column c to d, rename index i to j", [("a", "b"), ("c", "d")]),
        ("alter table t change a A bigint", []),
        ('alter table "T" rename column A to "b"', [("A", "b")]),
    ],
)
def test_columns_that_are_renamed(ddl: str, renamed: list[tuple[str, str]]) -> None:
    """MySQL's CHANGE renames a column only if the names differ."""
    assert parse_alteration(ddl) == Altered(renamed=tuple(renamed))


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "N/A", "rename table a to b", "exec sp_rename 'a', 'b'", "alter table"),
        *("alter table t add", "alter table t add a int, b int", "alter table t frobnicate c"),
        *("alter table t rename to u", "alter table t rename column a"),
    ],
)
def test_other_statements_are_not_parsed(ddl: str) -> None:
    """The parser returns None instead of a guess."""
    assert parse_alteration(ddl) is None
