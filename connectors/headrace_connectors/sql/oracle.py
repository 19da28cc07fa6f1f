"""Oracle as a RowSource: python-oracledb in thin mode (``reselect.md`` sections 7.3 and 7.4).

Rows are read as of the highest commit SCN of the requesting events, so that the result contains all of them. If that
state is not available any more (undo, DDL), the current state is read instead, and counted. Large objects are fetched
completely in the same scope, because they fail first. Sessions only read; no transaction is ever open.

`oracle_tables.py` reads complete tables for `headrace verify`.

Tests: tests/unit/sql/test_oracle_row_source.py, tests/integration/test_oracle_row_source.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import oracledb

from headrace.core.doctor.clocks import ClockReading
from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition, TablePart
from headrace_connectors.sql.cells import FoundRows, ReadableColumns, Wanted, key_column
from headrace_connectors.sql.oracle_catalog import check_flashback, connect_schema, read_catalog
from headrace_connectors.sql.oracle_errors import SCN_INVALID, UNDO_GONE, error_codes
from headrace_connectors.sql.oracle_query import (
    SCN,
    SLOTS,
    KeyBind,
    cell_expression,
    key_bind,
    key_bind_sql,
    key_values,
    need_bind,
    select_rows,
    slots_for,
)
from headrace_connectors.sql.oracle_server import OracleServer, bind_type
from headrace_connectors.sql.oracle_tables import Rows, TableParts, log_position, table_values
from headrace_connectors.sql.oracle_values import KNOWN_TYPES, reader
from headrace_connectors.sql.query import masks

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
        return self._ask(lambda server: self._catalog_of(server, table))

    def schema(self, catalog: CatalogTable) -> Schema:
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

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[object]]]:
        """Yield every row as of the beginning of the scan. Raises Retriable if undo does not last that long."""
        readable = readable_columns(catalog, columns, self._options.modes)
        with self._ask(self._usable).connection() as connection:
            for given in table_values(connection, catalog, readable):
                yield readable.values(given, len(given[0]))

    def scan_in_parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        """Yield some rows at a time in the order of the primary key; those of a table without one as ``scan`` does."""
        readable = readable_columns(catalog, columns, self._options.modes)
        parts = TableParts.of(catalog, readable)
        if parts is None:
            for values in self.scan(catalog, columns):
                yield TablePart(len(values[0]), partial(list, values))
            return
        while True:
            with self._ask(self._usable).connection() as connection:
                rows = parts.next(connection)
            if not rows:
                return
            yield TablePart(len(rows), partial(_values, readable, rows))

    def log_position(self) -> LogPosition:
        """Return the current SCN of the primary, or of the standby that is read."""
        with self._ask(self._usable).connection() as connection:
            return log_position(connection)

    def clock(self, now: Callable[[], float]) -> ClockReading:
        """Return the clock of the primary, or of the standby that is read."""
        server = self._ask(self._usable)
        with server.connection() as connection, connection.cursor() as cursor:
            before = now()
            cursor.execute(CLOCK)
            [(text,)] = cursor.fetchall()
            after = now()
        return ClockReading(server.where, before, datetime.fromisoformat(f"{text[1:27]}+00:00").timestamp(), after)

    def connections(self) -> Connections:
        return sum((server.connections() for server in self._servers), Connections())

    def close(self) -> None:
        for server in self._servers:
            server.close()

    # -- servers ------------------------------------------------------------------------------------------------------

    def _ask(self, call: Callable[[OracleServer], _T]) -> _T:
        """Return the answer of the first server that can be read, or raise the error of the last one."""
        *others, last = self._servers
        for server in others:
            try:
                return call(server)
            except (Retriable, _NotOnStandby) as error:
                log.info("Reselect: a server failed, the next one is read: %s", error)
        return call(last)

    def _check_server(self, server: OracleServer) -> None:
        server.check()
        self._check_role(server)

    def _check_role(self, server: OracleServer) -> None:
        """With one server the option is wrong; with several, another one may be the primary, or become it."""
        if not server.standby or self._options.read_from != "primary":
            return
        message = (
            f"{server.where} is a standby; name the primary, or read from standbys with reselect.read.from=replica"
        )
        if len(self._servers) == 1:
            raise ConfigError(message, "reselect.database.hostname")
        raise Retriable(message)

    def _usable(self, server: OracleServer) -> OracleServer:
        with server.connection():
            self._check_role(server)
        return server

    def _catalog_of(self, server: OracleServer, table: TableId) -> CatalogTable | None:
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

    def _fetch_from(self, server: OracleServer, read: OracleRead) -> tuple[FoundRows, Mapping[str, int]]:
        """All rows as of the SCN; if that is impossible, all current rows, and the code of the error."""
        with server.connection() as connection:
            self._check_role(server)
            if server.standby and read.scn < 0:
                raise _NotOnStandby(
                    f"{server.where}: events of {read.where} contain no commit SCN, so a standby may be behind them; "
                    "list the primary in reselect.database.hostname too"
                )
            if read.scn < 0:
                return _select(connection, read, as_of_scn=False), {}
            try:
                return _select(connection, read, as_of_scn=True), {}
            except oracledb.Error as error:
                codes = error_codes(error)
                if SCN_INVALID in codes and server.standby:  # proven: N3
                    raise Retriable(f"{server.where} is behind the events' SCN ({SCN_INVALID})") from error
                code = next((code for code in codes if code in UNDO_GONE or code == SCN_INVALID), None)
                if code is None:
                    raise
            log.info("%s: the current rows are read instead of those as of the events' SCN (%s)", read.where, code)
            return _select(connection, read, as_of_scn=False), {code: 1}


def _values(readable: ReadableColumns, rows: Rows) -> Sequence[Sequence[object]]:
    """Convert rows, which also have the columns of the key behind the readable ones."""
    columns = list(zip(*rows, strict=True))[: len(readable.columns)]
    return readable.values(columns, len(rows))


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


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT for one part of a request, whose first row has ordinal 1 and is request row ``begin``."""

    begin: int
    slots: int
    text: str
    binds: dict[str, object]
    bind_types: dict[str, oracledb.DbType]


def readable_columns(catalog: CatalogTable, wanted: Sequence[Wanted], modes: HandlingModes) -> ReadableColumns:
    """No expression for a type that none may contain: a LONG would fail the complete SELECT."""

    def find(name: str) -> CatalogColumn | None:
        column = catalog.column(name)
        return column if column is not None and column.type.name in KNOWN_TYPES else None

    return ReadableColumns.of(wanted, find, lambda schema, column: reader(schema, column, modes))


@dataclass(frozen=True, slots=True)
class OracleRead:
    """A request, ready for execution: ``cells`` read its ``readable`` columns.

    ``keys`` and ``needs`` contain the values of each key column and need mask by row.
    """

    catalog: CatalogTable
    request: RowRequest
    readable: ReadableColumns
    cells: tuple[str, ...]
    key: tuple[KeyBind, ...]
    key_types: tuple[oracledb.DbType, ...]
    keys: tuple[Sequence[object], ...]
    needs: tuple[Sequence[int], ...]

    @staticmethod
    def of(catalog: CatalogTable, request: RowRequest, modes: HandlingModes) -> OracleRead:
        """Prepare a request. Raises Fatal if the key's columns cannot be compared exactly."""
        readable = readable_columns(catalog, request.columns, modes)
        key = [(column, key_column(catalog, column.name)) for column in request.key]
        return OracleRead(
            catalog,
            request,
            readable,
            cells=tuple(cell_expression(column.catalog.name, column.catalog.type.name) for column in readable.columns),
            key=tuple(key_bind_sql(*pair) for pair in key),
            key_types=tuple(bind_type(column.type.name) for _, column in key),
            keys=tuple(key_values(*pair, modes) for pair in key),
            needs=tuple(mask.tolist() for mask in masks(request.needs[:, readable.indexes])),
        )

    @property
    def where(self) -> str:
        return f"{self.catalog.table.schema}.{self.catalog.table.table}"

    @property
    def scn(self) -> int:
        """Return the highest commit SCN of the rows; -1 if one is unknown, because it may be higher than all others."""
        scns = self.request.transactions
        return int(scns.max()) if len(scns) and scns.min() >= 0 else -1

    def statements(self, *, as_of_scn: bool) -> Iterator[Statement]:
        """Return the SELECTs that answer the complete request, of up to ``SLOTS[-1]`` keys each."""
        table = (self.catalog.table.schema, self.catalog.table.table)
        for begin in range(0, len(self.request), SLOTS[-1]):
            end = min(begin + SLOTS[-1], len(self.request))
            slots = slots_for(end - begin)
            binds: dict[str, object] = {SCN: self.scn} if as_of_scn else {}
            # A type for every bind, also for a null one: other types would need other cursors of the statement.
            types: dict[str, oracledb.DbType] = {}
            for slot in range(1, slots + 1):
                row = begin + slot - 1
                used = row < end  # slots without a row have null keys, which match nothing
                binds |= {key_bind(n, slot): values[row] if used else None for n, values in enumerate(self.keys, 1)}
                binds |= {need_bind(n, slot): mask[row] if used else 0 for n, mask in enumerate(self.needs, 1)}
                types |= {key_bind(n, slot): key_type for n, key_type in enumerate(self.key_types, 1)}
                types |= {need_bind(n, slot): oracledb.DB_TYPE_NUMBER for n in range(1, len(self.needs) + 1)}
            text = select_rows(table, self.key, self.cells, slots, as_of_scn=as_of_scn)
            yield Statement(begin, slots, text, binds, types)


CLOCK = "SELECT TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'SYYYY-MM-DD HH24:MI:SS.FF9') FROM DUAL"
