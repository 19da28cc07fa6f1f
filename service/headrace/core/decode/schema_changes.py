"""Read records of a connector's schema-change topic: altered tables, and changes without row events.

Oracle's, MySQL's, MariaDB's and SQL Server's connectors write them, into the topic that is named like ``topic.prefix``.
The cached rows and the catalog of such a table are invalid (``reselect.md`` sections 1.1 and 5.2). The
columns themselves come with the next event of a row. What rows that do not change have in a column that is added is its
default, if the statement names one that can be read exactly; all else is for the operator to hear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.core.decode.ddl import Added, altered
from headrace.core.decode.json_types import parse_plain
from headrace.core.model.absent_columns import NUMBER, TEXT, ColumnDefault
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import TableId
from headrace.core.model.notes import Note
from headrace.core.model.positions import position_format, positions

FIELDS = frozenset({"databaseName", "ddl", "tableChanges"})
"""The fields that only records of schema changes have."""

_FILL = "; headrace verify --repair fills it where it can read the database, an ad hoc snapshot of the table everywhere"
ADDED = "a column was added with a default, which no event contains: in rows that do not change it is null" + _FILL
RENAMED = (
    "a column was renamed without an event: in rows that do not change, the new one is null, and the old one stays"
    + _FILL
)
UNREAD = (
    "a table was altered by a statement that Headrace does not read: what that adds with a default, or renames, is "
    "missing in rows that do not change" + _FILL
)

_NUMBERS = frozenset(
    {"BOOL", "BOOLEAN", "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "DEC", "DECIMAL", "NUMERIC"}
)
_TEXTS = frozenset({"CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"})
"""Types of MySQL and MariaDB whose values events show as statements write them. A FLOAT is not: it is rounded."""
_PART = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What one record says of one table. ``notes`` are for the operator; so are ``unless_filled``, if nobody fills in
    the ``defaults``. ``source`` is the record's source block.
    """

    table: TableId
    source: Mapping[str, Any] = field(default_factory=dict)
    defaults: tuple[ColumnDefault, ...] = ()
    unless_filled: tuple[Note, ...] = ()
    notes: tuple[Note, ...] = ()

    def position(self, epoch: int) -> bytes:
        """The position of the change among those of rows, NO_POSITION without one. Raises BadRecord."""
        form = position_format(str(self.source.get("connector") or ""))
        fields = [[self.source.get(part.field)] for part in form.parts]
        return bytes(positions(form, epoch, fields, 1)[0])

    def source_time(self, timestamp: int) -> int:
        """The time of the change, in microseconds; ``timestamp`` is the record's, in milliseconds."""
        micros, millis = self.source.get("ts_us"), self.source.get("ts_ms")
        return int(micros) if micros is not None else int(timestamp if millis is None else millis) * 1000


def schema_changes(payload: bytes | SchemaAndValue | None) -> list[SchemaChange]:
    """Return the schema changes in a record, by table; nothing for any other record."""
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
    columns = _dicts((change.get("table") or {}).get("columns"))  # after the change
    by_name = {str(column.get("name")).lower(): column for column in columns}  # statements may use any case
    return _altered(SchemaChange(table, source), str(value.get("ddl") or ""), by_name)


def _altered(change: SchemaChange, ddl: str, columns: Mapping[str, Mapping[str, Any]]) -> SchemaChange:
    name = f"{change.table.schema or change.table.database}.{change.table.table}"
    alteration = altered(ddl)
    if alteration is None:
        return replace(change, notes=(Note(UNREAD, name),))
    defaults, unless_filled, notes = [], [], []
    for added in alteration.added:
        column = columns.get(added.name.lower(), {})
        default, note = _default(added, column), Note(ADDED, f"{name}.{column.get('name', added.name)}")
        if default is not None:
            defaults.append(default)
            unless_filled.append(note)
        elif added.reads != "null" or column.get("optional") is not True or column.get("generated") is True:
            notes.append(note)
    notes += [Note(RENAMED, f"{name}.{columns.get(new.lower(), {}).get('name', new)}") for _, new in alteration.renamed]
    return replace(change, defaults=tuple(defaults), unless_filled=tuple(unless_filled), notes=tuple(notes))


def _dicts(value: Any) -> Sequence[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _default(added: Added, column: Mapping[str, Any]) -> ColumnDefault | None:
    """Return the column's default, if statement and connector agree and events show it as the statement does."""
    said, kind = column.get("defaultValueExpression"), str(column.get("typeName") or "").upper().partition(" ")[0]
    name = str(column.get("name"))
    if not added.reads or added.reads == "null" or said is None:
        return None
    if kind in _TEXTS:
        sound = added.reads == TEXT and said == added.default and not said.endswith(" ")
        return ColumnDefault(name, TEXT, added.default) if sound else None
    number = _exactly(added.default, column.get("scale") or 0) if kind in _NUMBERS else None
    if number is None or _exactly(str(said), column.get("scale") or 0) != number:
        return None
    return ColumnDefault(name, NUMBER, number)


def _exactly(text: str, scale: int) -> str | None:
    """Format a number with so many decimal places; None for any other text and for more digits."""
    try:
        number = Decimal(text)
        rounded = number.quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    return f"{rounded:f}" if rounded == number else None
