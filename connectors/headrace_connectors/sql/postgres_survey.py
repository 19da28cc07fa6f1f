"""Reads what ``postgres_doctor.py`` needs of a database. Nothing is changed.

Tests: ``tests/integration/test_doctor_postgres.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, LiteralString

from psycopg.rows import namedtuple_row

from headrace.core.model.catalog import CatalogTable, SqlType
from headrace.core.model.events import TableId
from headrace.core.reselect.options import ReselectOptions
from headrace_connectors.sql.postgres_catalog import read_catalog
from headrace_connectors.sql.postgres_connection import Connection
from headrace_connectors.sql.postgres_doctor import PostgresSurvey, Slot, Standby, SurveyedTable

_SERVER: LiteralString = """
SELECT pg_catalog.current_setting('wal_level') AS wal_level, CURRENT_USER AS user,
       pg_catalog.pg_is_in_recovery() AS on_standby,
       (SELECT pg_catalog.pg_size_bytes(pg_catalog.current_setting('max_slot_wal_keep_size', true))) AS slot_limit,
       ARRAY(SELECT pubname::text FROM pg_catalog.pg_publication ORDER BY pubname) AS publications
"""
_SLOTS: LiteralString = """
SELECT slot_name::text AS name, plugin::text, active, pg_catalog.to_jsonb(s) ->> 'wal_status' AS wal_status,
       pg_catalog.pg_wal_lsn_diff(
         CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
              ELSE pg_catalog.pg_current_wal_lsn() END, restart_lsn)::pg_catalog.int8 AS retained
FROM pg_catalog.pg_replication_slots s
WHERE slot_type = 'logical' AND database = pg_catalog.current_database() ORDER BY slot_name
"""
_TABLE: LiteralString = """
SELECT c.relreplident::text AS identity,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS has_key,
       EXISTS (SELECT FROM pg_catalog.pg_publication_tables p
               WHERE p.schemaname = n.nspname AND p.tablename = c.relname) AS published,
       pg_catalog.has_table_privilege(c.oid, 'SELECT') AND NOT pg_catalog.row_security_active(c.oid) AS readable
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'p')
"""
_STANDBY: LiteralString = """
SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_wal_receiver) AS receives,
       CASE WHEN pg_catalog.pg_last_wal_receive_lsn() = pg_catalog.pg_last_wal_replay_lsn() THEN 0
            ELSE pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()
                                               - pg_catalog.pg_last_xact_replay_timestamp()) END AS behind
WHERE pg_catalog.pg_is_in_recovery()
"""


def read_slots(connection: Connection) -> Sequence[Slot]:
    """Return the logical replication slots of the database."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        rows: list[Any] = cursor.execute(_SLOTS).fetchall()
    return [Slot(row.name, row.plugin, row.active, row.retained or 0, row.wal_status) for row in rows]


def read_standby(connection: Connection, where: str) -> Standby | None:
    """Return how far a standby is behind; None of a primary."""
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        row: Any = cursor.execute(_STANDBY).fetchone()
    return None if row is None else Standby(where, max(0.0, row.behind or 0.0), row.receives)


def read_survey(
    connection: Connection, where: str, tables: Sequence[TableId], options: ReselectOptions
) -> PostgresSurvey:
    """Return what the database says of its log, its slots and these tables."""
    slots = read_slots(connection)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        server: Any = cursor.execute(_SERVER).fetchone()
        by_pgoutput = bool(slots) and all(slot.plugin == "pgoutput" for slot in slots)
        surveyed = []
        for table in tables:
            row: Any = cursor.execute(_TABLE, (table.schema, table.table)).fetchone()
            if row is None:
                surveyed.append(SurveyedTable(table, exists=False))
                continue
            found = SurveyedTable(
                table, True, row.identity, row.has_key, row.published if by_pgoutput else None, row.readable
            )
            catalog = read_catalog(connection, table) if row.readable else None
            surveyed.append(found if catalog is None else _with_columns(found, catalog, options))
    limit = server.slot_limit
    return PostgresSurvey(
        where=where,
        user=server.user,
        wal_level=server.wal_level,
        slot_limit=None if limit is None or limit < 0 else limit,
        slots=slots,
        publications=server.publications,
        tables=surveyed,
        on_standby=server.on_standby,
    )


def _with_columns(table: SurveyedTable, catalog: CatalogTable, options: ReselectOptions) -> SurveyedTable:
    """Return the table with what happens to the values of its columns."""
    reads = options.source_reads == "all" and options.unavailable_values
    intervals = options.modes.interval == "numeric"
    return replace(
        table,
        absent=[column.name for column in catalog.columns if _has_no_converter(column.type)],
        omitted=[column.name for column in catalog.columns if column.omittable and not reads],
        intervals=[
            column.name for column in catalog.columns if intervals and column.type.base_type().name == "interval"
        ],
    )


def _has_no_converter(sql_type: SqlType) -> bool:
    """Return whether Debezium has no converter for a type, so that no event has such a column (``docs/types.md``)."""
    if sql_type.element is not None:
        return sql_type.element.base is not None or sql_type.element.name in ("money", "interval")
    base = sql_type.base_type()
    return base.kind in ("c", "m") or base.name in ("tsquery", "pg_lsn")
