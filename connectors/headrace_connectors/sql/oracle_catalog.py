"""A table of Oracle: its entry in the dictionary, and the ``after`` schema that Debezium's connector sends for it.

Names are exactly those of the events: a name in another case is another table. For a table that the user may not see,
the dictionary returns the same as for one that does not exist.

The schema is for JSON without schemas: events then decode to the same columns as with schemas (``reselect.md`` section
8.2, "Oracle in short"; ``OracleValueConverters.schemaBuilder`` of Debezium 3.6.1). A column whose type the connector
has no converter for has no field.

Tests: ``tests/unit/sql/test_oracle_row_source.py``, ``tests/integration/test_oracle_row_source.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import oracledb

from headrace.core.model.catalog import CatalogColumn, CatalogTable, Dialect, HandlingModes, KeyColumn, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
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
    entry = _rows(connection, _TABLE, table)
    if not entry:
        return None
    rows = [_Row(*row) for row in _rows(connection, _COLUMNS, table)]
    columns = []
    for row in rows:
        kind = _DECLARED.sub("", row.data_type)
        large = kind in _LARGE or row.length > _LONGEST_INLINE.get(kind, row.length)
        integer = kind == "NUMBER" and row.precision is None and row.scale is not None
        columns.append(
            CatalogColumn(
                name=row.name,
                number=row.number,
                type=SqlType(0, "SYS", kind),
                attlen=-1 if large else row.length,
                attstorage="x" if large else "p",
                not_null=row.nullable == "N",
                generated=row.generated == "YES",
                precision=INTEGER_PRECISION if integer else row.precision,
                scale=row.scale,
            )
        )
    primary = _key_names(_rows(connection, _PRIMARY_KEY, table), columns, unique=False)
    names = primary or _key_names(_rows(connection, _UNIQUE_INDEXES, table), columns, unique=True)
    folding = {row.name for row in rows if row.collation not in (None, "USING_NLS_COMP", "BINARY")}
    type_of = {column.name: column.type for column in columns}
    return CatalogTable(
        table=table,
        relkind="r",
        replica_identity="d",
        columns=tuple(columns),
        key=tuple(KeyColumn(name, type_of[name], "SYS", "=", deterministic=name not in folding) for name in names),
        primary_key=bool(primary),
        version=str(entry[0][0]),
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
        # The driver returns the dictionary's integers as Decimal.
        return [
            tuple(value if value is None or isinstance(value, str) else int(value) for value in row)
            for row in cursor.fetchall()
        ]


def _key_names(rows: Sequence[tuple[Any, ...]], columns: Sequence[CatalogColumn], *, unique: bool) -> list[str]:
    """The columns of the primary key, or of the first unique index whose columns all exist and are never null."""
    by_key: dict[str, list[str]] = {}
    for key, column in rows:
        by_key.setdefault(key, []).append(column)
    required = {column.name for column in columns if column.not_null or not unique}
    return next((names for names in by_key.values() if required.issuperset(names)), [])


CONNECT = "org.apache.kafka.connect.data"
DEBEZIUM = "io.debezium.data"
TIME = "io.debezium.time"
INTEGER_WIDTHS = ((3, "int8"), (5, "int16"), (10, "int32"), (19, "int64"))
"""The integer type for numbers with fewer digits than the first entry."""


def connect_schema(catalog: CatalogTable, modes: HandlingModes) -> Schema:
    """Return the schema of ``after`` for a table; columns in their order."""
    table = catalog.table
    schemas = ((column.name, column_schema(column, modes)) for column in catalog.columns if not column.generated)
    fields = tuple(Field(name, schema) for name, schema in schemas if schema is not None)
    return Schema("struct", True, f"{table.name}.{table.schema}.{table.table}.Value", fields=fields)


def column_schema(column: CatalogColumn, modes: HandlingModes) -> Schema | None:
    """Return the schema of one column, None if events lack it."""
    make = _BY_KIND.get(column.type.name)
    return None if make is None else make(column, modes, not column.not_null)


def _number(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema:
    scale, precision = column.scale, column.precision
    if column.type.name == "FLOAT" or scale is None or precision is None:
        if modes.decimal != "precise":
            return _inexact(modes, optional)
        members = (Field("scale", Schema("int32")), Field("value", Schema("bytes")))
        return Schema("struct", optional, f"{DEBEZIUM}.VariableScaleDecimal", 1, fields=members)
    if scale == 0 and modes.decimal != "precise":  # since DBZ-7882
        return _inexact(modes, optional)
    digits = precision - scale
    if scale <= 0 and digits < INTEGER_WIDTHS[-1][0]:
        return Schema(next(kind for limit, kind in INTEGER_WIDTHS if digits < limit), optional)
    if modes.decimal != "precise":
        return _inexact(modes, optional)
    parameters = (("connect.decimal.precision", str(precision)), ("scale", str(scale)))
    return Schema("bytes", optional, f"{CONNECT}.Decimal", 1, parameters)


def _inexact(modes: HandlingModes, optional: bool) -> Schema:
    return Schema("double" if modes.decimal == "double" else "string", optional)


def _timestamp(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema | None:
    mode, digits = modes.time_precision, column.scale or 0
    if mode == "structured":
        return None
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTimestamp", 1)
    if mode == "connect":
        return Schema("int64", optional, f"{CONNECT}.Timestamp", 1)
    if mode in ("microseconds", "nanoseconds"):
        return Schema("int64", optional, f"{TIME}.{'Micro' if mode == 'microseconds' else 'Nano'}Timestamp", 1)
    unit = "Timestamp" if digits <= 3 else "MicroTimestamp" if digits <= 6 else "NanoTimestamp"
    return Schema("int64", optional, f"{TIME}.{unit}", 1)


def _interval(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema:
    if modes.interval == "string":
        return Schema("string", optional, f"{TIME}.Interval", 1)
    return Schema("int64", optional, f"{TIME}.MicroDuration", 1)


Make = Callable[[CatalogColumn, HandlingModes, bool], "Schema | None"]


def _always(type_name: str, name: str | None = None) -> Make:
    return lambda column, modes, optional: Schema(type_name, optional, name, None if name is None else 1)


_BY_KIND: Mapping[str, Make] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), _number),
    "BINARY_FLOAT": _always("float"),
    "BINARY_DOUBLE": _always("double"),
    **dict.fromkeys(("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "ROWID"), _always("string")),
    "XMLTYPE": _always("string", f"{DEBEZIUM}.Xml"),
    "JSON": _always("string", f"{DEBEZIUM}.Json"),
    **dict.fromkeys(
        ("RAW", "BLOB"),
        lambda column, modes, optional: Schema("bytes" if modes.binary == "bytes" else "string", optional),
    ),
    **dict.fromkeys(("DATE", "TIMESTAMP"), _timestamp),
    **dict.fromkeys(
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), _always("string", f"{TIME}.ZonedTimestamp")
    ),
    **dict.fromkeys(("INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"), _interval),
}
