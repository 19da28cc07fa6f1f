"""PostgreSQL as a RowSource: psycopg 3 and a bounded pool (``reselect.md`` sections 7.1, 7.2 and 7.4).

Every statement has its own snapshot (autocommit, READ COMMITTED, read-only). Before rows are read, the transactions of
the events must be committed on the queried server (``postgres_visibility.py``). With ``reselect.read.from=replica``
standbys are queried first, and the primary, if it is listed, for what they cannot answer. Values are the server's raw
text, which pgoutput sends as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, cast

import psycopg
from psycopg import RawCursor

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition
from headrace_connectors.sql.cells import FoundRows, ReadableColumns, Wanted, key_column
from headrace_connectors.sql.postgres_catalog import read_catalog
from headrace_connectors.sql.postgres_keys import key_texts
from headrace_connectors.sql.postgres_scan import log_position, table_texts
from headrace_connectors.sql.postgres_schema import connect_schema
from headrace_connectors.sql.postgres_server import PostgresServer, Role
from headrace_connectors.sql.postgres_values import reader
from headrace_connectors.sql.postgres_visibility import VisibilityCheck
from headrace_connectors.sql.query import KeyTerm, array_literal, masks, select_rows

Connection = psycopg.Connection[Any]

log = logging.getLogger(__name__)


class PostgresRowSource:
    """Reads rows of one PostgreSQL database again. Connections are made on demand."""

    def __init__(self, options: ReselectOptions) -> None:
        if options.database is None:
            raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
        self._options = options
        self._visibility = VisibilityCheck(options.visibility_timeout_ms / 1000)
        self._servers = _servers(options.database, options)

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, database, standby), Retriable for others."""
        self._servers[0].check()

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's entry in the catalog. Raises ConfigError if rows are hidden (grant, row security)."""
        with self._servers[0].connection() as connection:
            return read_catalog(connection, table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the ``after`` schema of the table's events."""
        return connect_schema(catalog, self._options.modes)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Run one SELECT after the events' transactions are committed. Raises Fatal if a key has several rows.

        If a server does not answer, or is behind for too long, the next one is used. Raises the last one's error.
        """
        *others, last = self._servers_for(request)
        for server in others:
            try:
                return self._fetch_from(server, catalog, request)
            except Retriable as error:
                log.info("Reselect: a replica failed, the primary is read: %s", error)
        return self._fetch_from(last, catalog, request)

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield every row in one snapshot, which stays open until the last row."""
        readable = self._readable(catalog, columns)
        with self._servers[-1].connection() as connection:
            for texts in table_texts(connection, catalog, readable.names):
                yield readable.values(texts, len(texts[0]))

    def log_position(self) -> LogPosition:
        """Return the end of the log, and the position that logical replication slots of the database have confirmed."""
        with self._servers[-1].connection() as connection:
            return log_position(connection)

    def connections(self) -> Connections:
        """Return the connections to all servers."""
        return sum((server.connections() for server in self._servers), Connections())

    def close(self) -> None:
        """Close the pools. Idempotent."""
        for server in self._servers:
            server.close()

    def _servers_for(self, request: RowRequest) -> Sequence[PostgresServer]:
        """Without a transaction id nothing is proven: only the primary is certainly not behind the events."""
        if not self._options.visibility_check or (request.transactions >= 0).all():
            return self._servers
        primaries = [server for server in self._servers if server.role is Role.PRIMARY]
        if not primaries:
            raise Fatal(
                f"{self._servers[0].where}: events of {request.table.schema}.{request.table.table} contain no "
                "transaction id, so a standby may be behind them; list the primary in reselect.database.hostname too"
            )
        return primaries

    def _fetch_from(self, server: PostgresServer, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        readable = self._readable(catalog, request.columns)
        table = (catalog.table.schema, catalog.table.table)
        terms = [_key_term(catalog, column.name) for column in request.key]
        text = select_rows(table, terms, readable.names, only=catalog.relkind == "r")
        keys = [key_texts(column, key_column(catalog, column.name), self._options.modes) for column in request.key]
        needs = masks(request.needs[:, list(readable.places)])
        parameters = [array_literal(texts) for texts in keys] + [array_literal([*map(str, mask)]) for mask in needs]
        waited = 0.0
        with server.connection() as connection:
            if self._options.visibility_check:
                transactions = sorted({int(number) for number in request.transactions if number >= 0})
                waited = self._visibility.wait(connection, transactions, server.where)
            with RawCursor(connection) as cursor:
                cursor.execute(cast(Any, text), parameters, prepare=True)
                rows = _raw_rows(cursor, len(request), len(readable.columns), catalog.table)
        proven = self._options.visibility_check and bool((request.transactions >= 0).all())
        values = readable.values(rows.values, len(request))
        return RowAnswer(rows.found, values, proven, waited=waited)

    # -- statements ---------------------------------------------------------------------------------------------------

    def _readable(self, catalog: CatalogTable, wanted: Sequence[Wanted]) -> ReadableColumns:
        return ReadableColumns.of(
            wanted, catalog.column, lambda schema, column: reader(schema, column, self._options.modes)
        )


def _servers(database: DatabaseOptions, options: ReselectOptions) -> tuple[PostgresServer, ...]:
    """The servers in the order of queries."""
    roles = [Role.PRIMARY]
    if options.read_from == "replica":
        roles = [Role.REPLICA, Role.PRIMARY] if len(database.servers) > 1 else [Role.REPLICA]
    return tuple(PostgresServer(database, role, options.database_query_timeout_ms) for role in roles)


def _raw_rows(cursor: RawCursor[Any], rows: int, columns: int, table: TableId) -> FoundRows:
    """The texts of each column by row."""
    result = cursor.pgresult
    assert result is not None  # noqa: S101 - a SELECT has a result
    found = FoundRows(table, rows, columns)
    for number in range(result.ntuples):
        cells = [result.get_value(number, column) for column in range(columns + 1)]
        texts = [None if each is None else bytes(each).decode() for each in cells[1:]]
        found.put(int(cells[0] or 0) - 1, texts)
    return found


def _key_term(catalog: CatalogTable, name: str) -> KeyTerm:
    known = key_column(catalog, name)
    base = known.type.resolved()
    part = next((part for part in catalog.key if part.name == known.name), None)
    # Without an index: operators of an extension's types are in the schema of the type.
    operator = (base.schema, "=") if part is None else (part.operator_schema, part.operator)
    if part is None and base.kind == "e":
        operator = ("pg_catalog", "=")
    return KeyTerm(known.name, (base.schema, base.name), operator)
