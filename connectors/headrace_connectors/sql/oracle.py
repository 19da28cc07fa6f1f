"""Oracle as a RowSource: python-oracledb in thin mode (``reselect.md`` sections 7.3 and 7.4).

Rows are read as of the highest commit SCN of the requesting events, so that the result contains all of them. If that
state is not available any more (undo, DDL), the current state is read instead, and counted. Large objects are fetched
completely in the same scope, because they fail first. Sessions only read; no transaction is ever open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import oracledb

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition
from headrace_connectors.sql.cells import FoundRows
from headrace_connectors.sql.oracle_catalog import check_flashback, read_catalog
from headrace_connectors.sql.oracle_errors import SCN_INVALID, UNDO_GONE, error_codes
from headrace_connectors.sql.oracle_read import OracleRead, readable_columns
from headrace_connectors.sql.oracle_scan import log_position, table_values
from headrace_connectors.sql.oracle_schema import connect_schema
from headrace_connectors.sql.oracle_server import OracleServer

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class _NotOnStandby(Fatal):
    """The server is no primary, and only a primary can answer."""


class OracleRowSource:
    """Reads rows of one Oracle database again. Connections are made on demand.

    ``driver`` is python-oracledb, or an object with the same interface.
    """

    def __init__(self, options: ReselectOptions, driver: Any = oracledb) -> None:
        if options.database is None:
            raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
        self._options = options
        self._servers = [
            OracleServer(options.database, address, options.database_query_timeout_ms, driver)
            for address in options.database.servers
        ]

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, service, standby), Retriable for others."""
        self._ask(self._check_server)

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's catalog entry. Raises ConfigError if the user may not read its state as of an SCN.

        None for a table that the user may not see at all: the dictionary does not distinguish it from an absent one.
        """
        return self._ask(lambda server: _catalog(server, table))

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the ``after`` schema of the table's events."""
        return connect_schema(catalog, self._options.modes)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Run SELECTs of up to 512 keys, all as of one SCN. Raises Fatal if a key has several rows.

        If a server does not answer, or is a standby behind that SCN (N3), the next one is used. Raises the last one's
        error.
        """
        read = OracleRead.of(catalog, request, self._options.modes)
        rows, fallbacks = self._ask(lambda server: self._fetch_from(server, read))
        values = read.readable.values(rows.values, len(request))
        return RowAnswer(rows.found, values, proven=read.scn >= 0, flashback_fallbacks=fallbacks)

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield every row as of the beginning of the scan. Raises Retriable if undo does not last that long."""
        readable = readable_columns(catalog, columns, self._options.modes)
        with self._ask(self._usable).connection() as connection:
            for given in table_values(connection, catalog, readable):
                yield readable.values(given, len(given[0]))

    def log_position(self) -> LogPosition:
        """Return the current SCN of the primary, or of the standby that is read."""
        with self._ask(self._usable).connection() as connection:
            return log_position(connection)

    def connections(self) -> Connections:
        """Return the connections to all servers."""
        return sum((server.connections() for server in self._servers), Connections())

    def close(self) -> None:
        """Close the pools. Idempotent."""
        for server in self._servers:
            server.close()

    # -- servers ------------------------------------------------------------------------------------------------------

    def _ask(self, call: Callable[[OracleServer], _T]) -> _T:
        """The answer of the first server that can give one."""
        *others, last = self._servers
        for server in others:
            try:
                return call(server)
            except (Retriable, _NotOnStandby) as error:
                log.info("Reselect: a server failed, the next one is read: %s", error)
        return call(last)

    def _check_server(self, server: OracleServer) -> None:
        server.check()
        if server.standby and self._options.read_from == "primary":
            raise self._wrong_role(server)

    def _wrong_role(self, server: OracleServer) -> ConfigError | Retriable:
        """With one server the option is wrong; with several, another one may be the primary, or become it."""
        message = (
            f"{server.where} is a standby; name the primary, or read from standbys with reselect.read.from=replica"
        )
        return ConfigError(message, "reselect.database.hostname") if len(self._servers) == 1 else Retriable(message)

    def _usable(self, server: OracleServer) -> OracleServer:
        with server.connection():
            if server.standby and self._options.read_from == "primary":
                raise self._wrong_role(server)
        return server

    def _fetch_from(self, server: OracleServer, read: OracleRead) -> tuple[FoundRows, Mapping[str, int]]:
        with server.connection() as connection:
            if server.standby and self._options.read_from == "primary":
                raise self._wrong_role(server)
            if server.standby and read.scn < 0:
                raise _NotOnStandby(
                    f"{server.where}: events of {read.where} contain no commit SCN, so a standby may be behind them; "
                    "list the primary in reselect.database.hostname too"
                )
            return _rows(server, connection, read)


def _catalog(server: OracleServer, table: TableId) -> CatalogTable | None:
    with server.connection() as connection:
        catalog = read_catalog(connection, table)
        if catalog is not None:
            check_flashback(connection, table, server.where, server.user)
            return catalog
    log.warning(
        "%s: table %s.%s does not exist, or the user may not SELECT from it; its cells are not read again",
        server.where,
        table.schema,
        table.table,
    )
    return None


def _rows(server: OracleServer, connection: Any, read: OracleRead) -> tuple[FoundRows, Mapping[str, int]]:
    """All rows as of the SCN; if that is impossible, all current rows, and the code of the error."""
    if read.scn < 0:
        return _select(connection, read, as_of_scn=False), {}
    try:
        return _select(connection, read, as_of_scn=True), {}
    except oracledb.Error as error:
        code = _fallback_code(server, error)
        if code is None:
            raise
    log.info("%s: the current rows are read instead of those as of the events' SCN (%s)", read.where, code)
    return _select(connection, read, as_of_scn=False), {code: 1}


def _fallback_code(server: OracleServer, error: BaseException) -> str | None:
    """Return the cause if the state as of the SCN cannot be read and the current one may be read instead; else None."""
    codes = error_codes(error)
    if SCN_INVALID in codes and server.standby:
        raise Retriable(f"{server.where} is behind the events' SCN ({SCN_INVALID})") from error
    return next((code for code in codes if code in UNDO_GONE or code == SCN_INVALID), None)


def _select(connection: Any, read: OracleRead, *, as_of_scn: bool) -> FoundRows:
    rows = FoundRows(read.catalog.table, len(read.request), len(read.cells))
    for statement in read.statements(as_of_scn=as_of_scn):
        with connection.cursor() as cursor:
            cursor.arraysize = cursor.prefetchrows = statement.slots + 1  # all rows in one round trip
            cursor.setinputsizes(**statement.bind_types)
            cursor.execute(statement.text, statement.binds, fetch_lobs=False, fetch_decimals=True)
            for ordinal, *values in cursor.fetchall():
                rows.put(statement.begin + int(ordinal) - 1, values)
    return rows
