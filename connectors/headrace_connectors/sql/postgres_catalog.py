"""Read a table's catalog from PostgreSQL, on a given connection.

Types are resolved through domains and arrays. The key's equality operators come from the operator class of its index:
with a reduced ``search_path`` a plain ``=`` on citext compares texts without an error (``reselect.md`` section 7.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import namedtuple_row

from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace_connectors.sql.query import quoted

Connection = psycopg.Connection[Any]

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
nobody knows; a standby does not show those of its primary.
"""
_COLUMNS: LiteralString = """
SELECT attname AS name, attnum AS number, atttypid AS type, atttypmod AS typmod, attlen, attstorage::text,
       attnotnull AS not_null, attgenerated <> '' AS generated
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
        found: Any = cursor.execute(_TABLE, (table.schema, table.table)).fetchone()
        if found is None:
            return None
        _refuse_hidden_rows(connection, table, found)
        columns: list[Any] = cursor.execute(_COLUMNS, (found.oid,)).fetchall()
        types = _types(cursor.execute(_TYPES, ([column.type for column in columns],)).fetchall())
        key: list[Any] = cursor.execute(_KEY, (found.oid,)).fetchall()
    known = tuple(_column(column, types, found.identity == "f") for column in columns)
    identity = [part for part in key if part.primary_key] or key
    type_of = {column.name: column.type for column in known}
    return CatalogTable(
        table=table,
        relkind=found.kind,
        replica_identity=found.identity,
        columns=known,
        key=tuple(
            KeyColumn(part.name, type_of[part.name], part.operator_schema, part.operator, part.deterministic)
            for part in identity
        ),
        primary_key=any(part.primary_key for part in key),
        identity_index=next((part.index_name for part in key if part.identity and not part.primary_key), None),
        partition=found.partition,
        published=found.published,
    )


def _refuse_hidden_rows(connection: Connection, table: TableId, found: Any) -> None:
    name, user = f"{table.schema}.{table.table}", connection.info.user
    if not found.granted:
        raise ConfigError(
            f'user "{user}" may not read table {name} of database "{connection.info.dbname}"; '
            f"GRANT SELECT ON {quoted(table.schema, table.table)} TO {quoted(user)}",
            "reselect.database.user",
        )
    if found.row_security:
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


def _column(row: Any, types: Mapping[int, SqlType], recoverable: bool) -> CatalogColumn:
    return CatalogColumn(
        name=row.name,
        number=row.number,
        type=types[row.type],
        typmod=row.typmod,
        attlen=row.attlen,
        attstorage=row.attstorage,
        not_null=row.not_null,
        generated=row.generated,
        recoverable=recoverable,
    )
