"""Records of a connector's schema-change topic: which tables were altered, and what no row event tells of it.

Oracle's, MySQL's, MariaDB's and SQL Server's connectors write them, into the topic that is named like ``topic.prefix``.
What was cached of such a table, and what is known of its catalog, is void (``reselect.md`` sections 1.1 and 5.2). The
columns themselves come with the next event of a row; of rows that do not change nothing is said, so the operator is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.connect_data import SchemaAndValue
from headrace.core.converter import parse_plain
from headrace.core.ddl import altered
from headrace.core.errors import BadRecord
from headrace.core.events import TableId
from headrace.core.notes import Note

FIELDS = frozenset({"databaseName", "ddl", "tableChanges"})
"""What a record of a schema change has, and no other."""

_FILL = "; headrace verify --repair fills it where it can read the database, an ad hoc snapshot of the table everywhere"
ADDED = "no event tells what a column that was added with a default has in rows that do not change: it is null" + _FILL
RENAMED = (
    "no event tells that a column was renamed: in rows that do not change the new one is null, and the old one stays"
    + _FILL
)
UNREAD = (
    "a table was altered by a statement that Headrace does not read: what that adds with a default, or renames, is "
    "missing in rows that do not change" + _FILL
)

_PART = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What one record says of one table. ``notes`` are for the operator."""

    table: TableId
    notes: tuple[Note, ...] = ()


def schema_changes(payload: bytes | SchemaAndValue | None) -> list[SchemaChange]:
    """What a record says, table by table; nothing for any other record."""
    try:
        value = None if payload is None else parse_plain(payload)
    except BadRecord:
        return []
    if not isinstance(value, dict) or not value.keys() >= FIELDS:
        return []
    return [_schema_change(value, change) for change in _dicts(value["tableChanges"])]


def _schema_change(value: Mapping[str, Any], change: Mapping[str, Any]) -> SchemaChange:
    source = value.get("source") or {}
    parts = [part.replace('""', '"') for part in _PART.findall(str(change.get("id")))] or [str(change.get("id"))]
    database = value.get("databaseName") or source.get("db") or ""
    table = TableId(str(source.get("name") or ""), str(database), str(value.get("schemaName") or ""), parts[-1])
    of_snapshot = str(source.get("snapshot", "false")).lower() != "false"
    if of_snapshot or change.get("type") != "ALTER":
        return SchemaChange(table)
    return SchemaChange(table, tuple(_notes(table, str(value.get("ddl") or ""), _columns(change))))


def _columns(change: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The table's columns after the change, by name in lower case, as statements may write them."""
    columns = _dicts((change.get("table") or {}).get("columns"))
    return {str(column.get("name")).lower(): column for column in columns}


def _dicts(value: Any) -> Sequence[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _notes(table: TableId, ddl: str, columns: Mapping[str, Mapping[str, Any]]) -> Iterator[Note]:
    name = f"{table.schema or table.database}.{table.table}"
    told = altered(ddl)
    if told is None:
        yield Note(UNREAD, name)
        return
    for added in told.added:
        column = columns.get(added.lower(), {})
        if _has_value(column):
            yield Note(ADDED, f"{name}.{column.get('name', added)}")
    for _, new in told.renamed:
        yield Note(RENAMED, f"{name}.{columns.get(new.lower(), {}).get('name', new)}")


def _has_value(column: Mapping[str, Any]) -> bool:
    """Whether rows that stand get a value in a new column: its default, the one of its type, or a generated one."""
    filled = column.get("defaultValueExpression") is not None or column.get("generated") is True
    return filled or column.get("optional") is not True
