"""The end state of the recorded database, loaded from its dump, for reselect in the tests.

Transaction ids and log positions are those of the new server, which requires ``reselect.visibility.check=off``.
"""

from __future__ import annotations

import json
from typing import Any, cast

import psycopg
from psycopg import sql
from recordings.records import POSTGRES, Variant, dump

_TYPES_AND_TABLES = "00_schema.sql"
_CREATED_WHILE_STREAMING = "CREATE TABLE public.created_later (id int PRIMARY KEY, v text)"
_NOT_LOADED = frozenset(
    {"public.ddl_t"}
)  # its columns were altered while streaming; test_schema_change needs no database


def load(connection: psycopg.Connection[Any], of: Variant) -> None:
    """Fill an empty database (superuser, contrib extensions available) with the end state of the recording ``of``."""
    connection.execute(cast(Any, (POSTGRES / "sql" / _TYPES_AND_TABLES).read_text()))
    connection.execute(_CREATED_WHILE_STREAMING)
    generated = _generated(of)
    with connection.transaction():
        connection.execute("SET LOCAL lc_monetary = 'C'")
        for name, table in dump(of.dump_file).items():
            if name in _NOT_LOADED or not table.rows:
                continue
            columns = [column for column in table.types if (name, column) not in generated]
            _insert(connection, table.schema, table.table, columns, [[row[c] for c in columns] for row in table.rows])


def _insert(connection: psycopg.Connection[Any], schema: str, table: str, columns: list[str], rows: list[Any]) -> None:
    """Insert text as unknown literals: PostgreSQL reads them by each column's own input function."""
    statement = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})").format(
        sql.Identifier(schema, table),
        sql.SQL(", ").join(map(sql.Identifier, columns)),
        sql.SQL(", ").join(sql.Placeholder() for _ in columns),
    )
    with connection.cursor() as cursor:
        cursor.executemany(statement, rows)


def _generated(of: Variant) -> frozenset[tuple[str, str]]:
    tables = json.loads(of.dump_file.read_text(encoding="utf-8"))
    return frozenset(
        (name, column["name"]) for name, table in tables.items() for column in table["columns"] if column["generated"]
    )
