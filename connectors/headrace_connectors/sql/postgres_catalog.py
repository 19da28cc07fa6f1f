"""A table of PostgreSQL: its catalog, and the ``after`` schema that Debezium's connector sends for it.

Types are resolved through domains and arrays. The key's equality operators come from the operator class of its index:
with a reduced ``search_path`` a plain ``=`` on citext compares texts without an error (``reselect.md`` section 7.1).

The schema is for JSON without schemas: events then decode to the same columns as with schemas. A column whose type the
connector has no converter for has no field (section 8.2, last row). A generated column is in snapshot reads only.

Tests: ``tests/integration/test_postgres_row_source.py``, ``tests/recordings``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString

from psycopg.rows import namedtuple_row

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes, KeyColumn, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace_connectors.sql.postgres_connection import Connection
from headrace_connectors.sql.query import quoted

_TABLE: LiteralString = """
SELECT c.oid, c.relkind::text AS kind, c.relreplident::text AS identity,
       pg_catalog.row_security_active(c.oid) AS row_security,
       pg_catalog.has_table_privilege(c.oid, 'SELECT')
         OR pg_catalog.has_any_column_privilege(c.oid, 'SELECT') AS granted,
       c.relispartition AS partition,
       EXISTS (SELECT FROM pg_catalog.pg_publication_tables p
               WHERE p.schemaname = n.nspname AND p.tablename = c.relname)
         OR NOT coalesce((SELECT pg_catalog.bool_and(plugin = 'pgoutput') FROM pg_catalog.pg_replication_slots
                          WHERE database = pg_catalog.current_database()), false) AS published
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
"""A table is certainly not published only if pgoutput reads the log: other plug-ins ignore publications. Without a slot
the plug-in is unknown; a standby does not show the slots of its primary.
"""
_COLUMNS: LiteralString = """
SELECT attname AS name, attnum AS number, atttypid AS type, atttypmod AS typmod, attlen, attstorage::text,
       attnotnull AS not_null, attgenerated <> '' AS generated, atthasdef AS has_default
FROM pg_catalog.pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_TYPES: LiteralString = """
WITH RECURSIVE needed(oid) AS (
  SELECT unnest(%s::pg_catalog.oid[])
  UNION
  SELECT part FROM needed JOIN pg_catalog.pg_type t USING (oid),
         unnest(ARRAY[t.typbasetype, CASE WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END]) AS part WHERE part <> 0
)
SELECT t.oid, n.nspname AS schema, t.typname AS name, t.typtype::text AS kind, t.typbasetype AS base,
       t.typtypmod AS typmod, CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem ELSE 0 END AS element,
       ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = t.oid ORDER BY enumsortorder) AS labels
FROM needed JOIN pg_catalog.pg_type t USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""
_KEY: LiteralString = """
SELECT i.indisprimary AS primary_key, i.indisreplident AS identity, ic.relname AS index_name, a.attname AS name,
       opn.nspname AS operator_schema, op.oprname AS operator, coalesce(co.collisdeterministic, true) AS deterministic
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey::pg_catalog.int2[], i.indclass::pg_catalog.oid[], i.indcollation::pg_catalog.oid[])
  WITH ORDINALITY AS k(number, opclass, collation_oid, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
JOIN pg_catalog.pg_opclass oc ON oc.oid = k.opclass
JOIN pg_catalog.pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amopstrategy = 3
  AND ao.amoplefttype = oc.opcintype AND ao.amoprighttype = oc.opcintype
JOIN pg_catalog.pg_operator op ON op.oid = ao.amopopr
JOIN pg_catalog.pg_namespace opn ON opn.oid = op.oprnamespace
LEFT JOIN pg_catalog.pg_collation co ON co.oid = k.collation_oid
WHERE i.indrelid = %s AND (i.indisprimary OR i.indisreplident) AND i.indisvalid AND k.place <= i.indnkeyatts
ORDER BY i.indisprimary DESC, i.indexrelid, k.place
"""


def read_catalog(connection: Connection, table: TableId) -> CatalogTable | None:
    """Return the table's entry; None if there is no such table. Raises ConfigError if some rows cannot be read."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        entry: Any = cursor.execute(_TABLE, (table.schema, table.table)).fetchone()
        if entry is None:
            return None
        _refuse_hidden_rows(connection, table, entry)
        rows: list[Any] = cursor.execute(_COLUMNS, (entry.oid,)).fetchall()
        types = _types(cursor.execute(_TYPES, ([row.type for row in rows],)).fetchall())
        key: list[Any] = cursor.execute(_KEY, (entry.oid,)).fetchall()
    columns = tuple(
        CatalogColumn(
            name=row.name,
            number=row.number,
            type=types[row.type],
            typmod=row.typmod,
            attlen=row.attlen,
            attstorage=row.attstorage,
            not_null=row.not_null,
            generated=row.generated,
            recoverable=entry.identity == "f",
            has_default=row.has_default,
        )
        for row in rows
    )
    identity = [part for part in key if part.primary_key] or key
    type_of = {column.name: column.type for column in columns}
    return CatalogTable(
        table=table,
        relkind=entry.kind,
        replica_identity=entry.identity,
        columns=columns,
        key=tuple(
            KeyColumn(part.name, type_of[part.name], part.operator_schema, part.operator, part.deterministic)
            for part in identity
        ),
        primary_key=any(part.primary_key for part in key),
        identity_index=next((part.index_name for part in key if part.identity and not part.primary_key), None),
        partition=entry.partition,
        published=entry.published,
    )


def _refuse_hidden_rows(connection: Connection, table: TableId, entry: Any) -> None:
    name, user = f"{table.schema}.{table.table}", connection.info.user
    if not entry.granted:
        raise ConfigError(
            f'user "{user}" may not read table {name} of database "{connection.info.dbname}"; '
            f"GRANT SELECT ON {quoted(table.schema, table.table)} TO {quoted(user)}",
            "reselect.database.user",
        )
    if entry.row_security:  # proven: N4
        raise ConfigError(
            f'row security hides rows of {name} from user "{user}", so a row that is not found would look deleted; '
            f"let the user bypass it (ALTER ROLE {quoted(user)} BYPASSRLS) or read as another user",
            "reselect.database.user",
        )


def _types(rows: Sequence[Any]) -> Mapping[int, SqlType]:
    by_oid = {row.oid: row for row in rows}

    def make(oid: int) -> SqlType | None:
        row = by_oid.get(oid)
        if row is None:
            return None
        element, base = make(row.element), make(row.base)
        return SqlType(oid, row.schema, row.name, row.kind, element, base, row.typmod, tuple(row.labels))

    return {oid: made for oid in by_oid if (made := make(oid)) is not None}


CONNECT = "org.apache.kafka.connect.data"
DEBEZIUM = "io.debezium.data"
TIME = "io.debezium.time"
GEOMETRY = "io.debezium.data.geometry"
DEFAULT_DIGITS = 6

INT8, INT32, INT64 = Schema("int8"), Schema("int32"), Schema("int64")
TEXT = Schema("string", optional=True)


def connect_schema(catalog: CatalogTable, modes: HandlingModes) -> Schema:
    """Return the schema of ``after`` for a table; columns in their order."""
    table = catalog.table
    schemas = ((column.name, column_schema(column, modes)) for column in catalog.columns)
    fields = [Field(name, schema) for name, schema in schemas if schema is not None]
    return Schema("struct", True, f"{table.name}.{table.schema}.{table.table}.Value", fields=tuple(fields))


def column_schema(column: CatalogColumn, modes: HandlingModes) -> Schema | None:
    """Return the schema of one column, None if events lack it."""
    return type_schema(*without_domains(column.type, column.typmod), modes, optional=not column.not_null)


def without_domains(sql_type: SqlType, typmod: int) -> tuple[SqlType, int]:
    """Return the type below all domains, and its modifier, which a domain may declare."""
    while sql_type.base is not None:
        sql_type, typmod = sql_type.base, sql_type.typmod if typmod < 0 else typmod
    return sql_type, typmod


def type_schema(sql_type: SqlType, typmod: int, modes: HandlingModes, optional: bool = True) -> Schema | None:
    """Return the schema of a type, None if the connector has no converter for it."""
    if sql_type.element is not None:
        element = sql_type.element
        if element.base is not None or element.name in _NO_ARRAYS or element.name in _SHAPES:
            return None
        items = type_schema(element, typmod, modes)
        return None if items is None else Schema("array", optional, items=items)
    if sql_type.kind == "e":
        allowed = (("allowed", ",".join(sql_type.labels)),)
        return Schema("string", optional, f"{DEBEZIUM}.Enum", 1, allowed)
    if sql_type.name in _FIXED:
        wire, name = _FIXED[sql_type.name]
        return Schema(wire, optional, name, None if name is None else 1)
    make = _BY_MODE.get(sql_type.name)
    return None if make is None else make(typmod, modes, optional)


_NO_ARRAYS = frozenset({"money", "interval", "xml", "tsvector", "bit", "varbit", "name", "vector"})


_FIXED: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name", "citext"), ("string", None)),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "isbn"), ("string", None)),
    **dict.fromkeys(("int4range", "int8range", "numrange"), ("string", None)),
    **dict.fromkeys(("tsrange", "tstzrange", "daterange"), ("string", None)),
    **dict.fromkeys(("json", "jsonb"), ("string", f"{DEBEZIUM}.Json")),
    "xml": ("string", f"{DEBEZIUM}.Xml"),
    "uuid": ("string", f"{DEBEZIUM}.Uuid"),
    "ltree": ("string", f"{DEBEZIUM}.Ltree"),
    "tsvector": ("string", f"{DEBEZIUM}.Tsvector"),
    "bool": ("boolean", None),
    "int2": ("int16", None),
    "int4": ("int32", None),
    "int8": ("int64", None),
    "oid": ("int64", None),
    "float4": ("float", None),
    "float8": ("double", None),
}

Make = Callable[[int, HandlingModes, bool], Schema]


def _hstore(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.hstore == "map":
        return Schema("map", optional, keys=Schema("string"), values=TEXT)
    return Schema("string", optional, f"{DEBEZIUM}.Json", 1)


def _numeric(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.decimal != "precise":
        return Schema("double" if modes.decimal == "double" else "string", optional)
    if typmod < 4:
        members = (Field("scale", INT32), Field("value", Schema("bytes")))
        return Schema("struct", optional, f"{DEBEZIUM}.VariableScaleDecimal", 1, fields=members)
    precision, scale = ((typmod - 4) >> 16) & 0xFFFF, (typmod - 4) & 0x7FF
    return _decimal(scale, (("connect.decimal.precision", str(precision)),), optional)


def _money(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.decimal != "precise":
        return Schema("double" if modes.decimal == "double" else "string", optional)
    return _decimal(modes.money_fraction_digits, (), optional)


def _decimal(scale: int, parameters: tuple[tuple[str, str], ...], optional: bool) -> Schema:
    return Schema("bytes", optional, f"{CONNECT}.Decimal", 1, (*parameters, ("scale", str(scale))))


def _bit(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if typmod == 1:
        return Schema("boolean", optional)
    length = str(typmod if typmod > 0 else 2**31 - 1)
    return Schema("bytes", optional, f"{DEBEZIUM}.Bits", 1, (("length", length),))


def _date(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode = modes.time_precision
    if mode == "structured":
        return _structured("StructuredDate", ("year", "month", "day"), (), optional, special=True)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoDate", 1)
    return Schema("int32", optional, f"{CONNECT if mode == 'connect' else TIME}.Date", 1)


def _time(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode, digits = modes.time_precision, typmod if typmod >= 0 else DEFAULT_DIGITS
    if mode == "structured":
        return _structured("StructuredTime", _CLOCK, ("precision",), optional)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTime", 1)
    if mode == "connect":
        return Schema("int32", optional, f"{CONNECT}.Time", 1)
    if mode == "nanoseconds":
        return Schema("int64", optional, f"{TIME}.NanoTime", 1)
    if mode == "adaptive" and digits <= 3:
        return Schema("int32", optional, f"{TIME}.Time", 1)
    return Schema("int64", optional, f"{TIME}.MicroTime", 1)


def _timestamp(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode, digits = modes.time_precision, typmod if typmod >= 0 else DEFAULT_DIGITS
    if mode == "structured":
        names = ("year", "month", "day", *_CLOCK)
        return _structured("StructuredTimestamp", names, ("precision",), optional, special=True)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTimestamp", 1)
    if mode == "connect":
        return Schema("int64", optional, f"{CONNECT}.Timestamp", 1)
    if mode in ("nanoseconds", "microseconds"):
        return Schema("int64", optional, f"{TIME}.{'Nano' if mode == 'nanoseconds' else 'Micro'}Timestamp", 1)
    return Schema("int64", optional, f"{TIME}.{'Timestamp' if digits <= 3 else 'MicroTimestamp'}", 1)


def _timestamptz(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision != "structured":
        return Schema("string", optional, f"{TIME}.ZonedTimestamp", 1)
    names = ("year", "month", "day", *_CLOCK, "offsetSeconds")
    return _structured("StructuredZonedTimestamp", names, ("precision",), optional, special=True, zone=True)


def _timetz(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision != "structured":
        return Schema("string", optional, f"{TIME}.ZonedTime", 1)
    return _structured("StructuredZonedTime", (*_CLOCK, "offsetSeconds"), ("precision",), optional)


def _interval(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision == "structured":
        names = ("years", "months", "days", "hours", "minutes", "seconds", "nanos")
        return _structured("StructuredDuration", names, ("precision",), optional)
    if modes.interval == "string":
        return Schema("string", optional, f"{TIME}.Interval", 1)
    return Schema("int64", optional, f"{TIME}.MicroDuration", 1)


_CLOCK = ("hour", "minute", "second", "nanos")
_WIDTHS = dict.fromkeys(("month", "day", "hour", "minute", "second"), "int8") | {"seconds": "int64"}


def _structured(
    name: str, parts: tuple[str, ...], last: tuple[str, ...], optional: bool, special: bool = False, zone: bool = False
) -> Schema:
    texts = (("zoneId",) if zone else ()) + (("specialValue",) if special else ())
    members = [Field(part, Schema(_WIDTHS.get(part, "int32"), True)) for part in parts]
    members += [Field(text, TEXT) for text in texts] + [Field(part, Schema("int32", True)) for part in last]
    return Schema("struct", optional, f"{TIME}.{name}", 1, fields=tuple(members))


_DOUBLE = Schema("double")
_SRID = Field("srid", Schema("int32", True))
_POINT = (Field("x", _DOUBLE), Field("y", _DOUBLE), Field("wkb", Schema("bytes", True)), _SRID)
_EXTENSIONS = Schema("map", True, keys=Schema("string"), values=TEXT)
_GEOMETRY = (Field("wkb", Schema("bytes")), _SRID, Field("extensions", _EXTENSIONS))
_CIRCLE = (Field("center", Schema("struct", False, f"{GEOMETRY}.Point", 1, fields=_POINT)), Field("radius", _DOUBLE))
_SHAPES: Mapping[str, tuple[str, tuple[Field, ...]]] = {
    "point": ("Point", _POINT),
    "line": ("Line", tuple(Field(name, _DOUBLE) for name in "abc")),
    "circle": ("Circle", _CIRCLE),
    **dict.fromkeys(("lseg", "box", "path", "polygon"), ("Geometry", _GEOMETRY)),
    "geometry": ("Geometry", _GEOMETRY[:2]),
    "geography": ("Geography", _GEOMETRY[:2]),
}


def _geometry(name: str, members: tuple[Field, ...]) -> Make:
    return lambda typmod, modes, optional: Schema("struct", optional, f"{GEOMETRY}.{name}", 1, fields=members)


_BY_MODE: Mapping[str, Make] = {
    "bytea": lambda typmod, modes, optional: Schema("bytes" if modes.binary == "bytes" else "string", optional),
    "hstore": _hstore,
    "numeric": _numeric,
    "money": _money,
    "bit": _bit,
    "varbit": _bit,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "timetz": _timetz,
    "interval": _interval,
    **{name: _geometry(*definition) for name, definition in _SHAPES.items()},
}
