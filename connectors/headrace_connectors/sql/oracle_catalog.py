"""Read a table's catalog from Oracle's dictionary, on a given connection.

Names are exactly those of the events: a name in another case is another table. For a table that the user may not see,
the dictionary returns the same as for one that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import oracledb

from headrace.core.model.catalog import CatalogColumn, CatalogTable, Dialect, KeyColumn, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace_connectors.sql.oracle_errors import UNDO_GONE, error_codes
from headrace_connectors.sql.oracle_query import probe_flashback
from headrace_connectors.sql.query import quoted

_TABLE = """
SELECT TO_CHAR(last_ddl_time, 'SYYYY-MM-DD HH24:MI:SS') FROM all_objects
WHERE owner = :owner AND object_name = :name AND object_type = 'TABLE'
"""
_COLUMNS = """
SELECT column_name, internal_column_id, data_type, data_length, data_precision, data_scale, nullable, virtual_column,
       collation
FROM all_tab_cols WHERE owner = :owner AND table_name = :name AND hidden_column = 'NO' ORDER BY column_id
"""
_PRIMARY_KEY = """
SELECT cc.constraint_name, cc.column_name FROM all_constraints c
JOIN all_cons_columns cc ON cc.owner = c.owner AND cc.constraint_name = c.constraint_name
WHERE c.owner = :owner AND c.table_name = :name AND c.constraint_type = 'P' ORDER BY cc.position
"""
_UNIQUE_INDEXES = """
SELECT ic.index_name, ic.column_name FROM all_indexes i
JOIN all_ind_columns ic ON ic.index_owner = i.owner AND ic.index_name = i.index_name
WHERE i.table_owner = :owner AND i.table_name = :name AND i.uniqueness = 'UNIQUE'
ORDER BY ic.index_name, ic.column_position
"""
STATEMENTS = (_TABLE, _COLUMNS, _PRIMARY_KEY, _UNIQUE_INDEXES)

_LARGE = frozenset({"CLOB", "NCLOB", "BLOB", "XMLTYPE", "JSON"})
_LONGEST_INLINE = {"VARCHAR2": 4000, "NVARCHAR2": 4000, "RAW": 2000}
"""Bytes; longer declarations (``MAX_STRING_SIZE=EXTENDED``) are stored as large objects."""
_DECLARED = re.compile(r"\(\d+\)")
_NO_PRIVILEGE = frozenset({"ORA-00942", "ORA-01031", "ORA-41900"})
INTEGER_PRECISION = 38
"""The precision of ``INTEGER`` and ``NUMBER(*,s)``, for which the dictionary contains only a scale."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of ALL_TAB_COLS."""

    name: str
    number: int
    data_type: str
    length: int
    precision: int | None
    scale: int | None
    nullable: str
    generated: str
    collation: str | None


def read_catalog(connection: Any, table: TableId) -> CatalogTable | None:
    """Return the table's entry; None if there is no such table, or none that the user may see."""
    found = _rows(connection, _TABLE, table)
    if not found:
        return None
    rows = [_Row(*map(_plain, row)) for row in _rows(connection, _COLUMNS, table)]
    columns = tuple(map(_column, rows))
    primary = _key_names(_rows(connection, _PRIMARY_KEY, table), columns, unique=False)
    names = primary or _key_names(_rows(connection, _UNIQUE_INDEXES, table), columns, unique=True)
    folding = {row.name for row in rows if row.collation not in (None, "USING_NLS_COMP", "BINARY")}
    type_of = {column.name: column.type for column in columns}
    return CatalogTable(
        table=table,
        relkind="r",
        replica_identity="d",
        columns=columns,
        key=tuple(KeyColumn(name, type_of[name], "SYS", "=", deterministic=name not in folding) for name in names),
        primary_key=bool(primary),
        version=str(found[0][0]),
        dialect=Dialect.ORACLE,
    )


def check_flashback(connection: Any, table: TableId, where: str, user: str) -> None:
    """Raise ConfigError if the user may not read the table as of an SCN. ``where`` names the database."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(probe_flashback((table.schema, table.table)))
    except oracledb.Error as error:
        codes = error_codes(error)
        if UNDO_GONE.intersection(codes):
            return  # the table is too new for a past state; the user has the privilege
        if not _NO_PRIVILEGE.intersection(codes):
            raise
        name = quoted(table.schema, table.table)
        raise ConfigError(
            f"{where}: the user may not read the past of {name} ({', '.join(codes)}); "
            f"GRANT SELECT, FLASHBACK ON {name} TO {quoted(user)}",
            "reselect.database.user",
        ) from error


def _rows(connection: Any, statement: str, table: TableId) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {"owner": table.schema, "name": table.table})
        return list(cursor.fetchall())


def _plain(value: Any) -> Any:
    """Convert a value of the dictionary, whose integers the driver returns as Decimal."""
    return value if value is None or isinstance(value, str) else int(value)


def _column(row: _Row) -> CatalogColumn:
    kind = _DECLARED.sub("", row.data_type)
    large = kind in _LARGE or row.length > _LONGEST_INLINE.get(kind, row.length)
    number = kind == "NUMBER"
    return CatalogColumn(
        name=row.name,
        number=row.number,
        type=SqlType(0, "SYS", kind),
        attlen=-1 if large else row.length,
        attstorage="x" if large else "p",
        not_null=row.nullable == "N",
        generated=row.generated == "YES",
        precision=INTEGER_PRECISION if number and row.precision is None and row.scale is not None else row.precision,
        scale=row.scale,
    )


def _key_names(rows: Sequence[tuple[Any, ...]], columns: Sequence[CatalogColumn], *, unique: bool) -> list[str]:
    """The columns of the primary key, or of the first unique index whose columns all exist and are never null."""
    by_key: dict[str, list[str]] = {}
    for key, column in rows:
        by_key.setdefault(key, []).append(column)
    required = {column.name for column in columns if column.not_null or not unique}
    return next((names for names in by_key.values() if required.issuperset(names)), [])
