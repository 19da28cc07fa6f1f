"""PostgreSQL as a RowSource: psycopg 3 and a bounded pool (``reselect.md`` sections 7.1, 7.2 and 7.4).

Every statement has its own snapshot (autocommit, READ COMMITTED, read-only). With ``reselect.read.from=replica``
standbys are queried first, and the primary, if it is listed, for what they cannot answer. Values are the server's raw
text, which pgoutput sends as well.

Before rows are read, the transactions of the events must be visible to the connection that reads them. A transaction
that is committed in the log need not be visible yet: a primary may wait for a synchronous standby, and a standby may
have replayed the event's record without the commit that follows it. So the positions of events prove nothing, and
``pg_visible_in_snapshot`` is wrong on standbys; ``pg_xact_status`` is right on both. After it returns ``committed``,
every *later* snapshot of the same server sees the transaction: check first, then read, on one connection.

`headrace verify` reads a complete table through a cursor in one transaction, so that the rows belong to one snapshot,
without a sort. While it is open, vacuum keeps the rows of the snapshot, as it does for Debezium's own snapshot.

Tests: tests/contracts (row sources), tests/integration/test_postgres_row_source.py, tests/unit/sql/test_postgres.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import RawCursor
from psycopg.pq.abc import PGresult
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from headrace.core.doctor import versions
from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.findings import Finding
from headrace.core.doctor.versions import POSTGRESQL, Software
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition, ReplicationSlot, TablePart
from headrace_connectors.sql import postgres_doctor
from headrace_connectors.sql.cells import FoundRows, ReadableColumns, Reader, Wanted, key_column
from headrace_connectors.sql.postgres_catalog import connect_schema, read_catalog
from headrace_connectors.sql.postgres_connection import Connection
from headrace_connectors.sql.postgres_keys import key_texts
from headrace_connectors.sql.postgres_server import PostgresServer, Role
from headrace_connectors.sql.postgres_signals import PostgresSignalTable
from headrace_connectors.sql.postgres_survey import read_slots, read_standby, read_survey
from headrace_connectors.sql.postgres_tables import cells_of, log_position, next_page, read_pages, table_texts, texts_of
from headrace_connectors.sql.postgres_values import reader
from headrace_connectors.sql.query import KeyTerm, array_literal, masks, select_rows

log = logging.getLogger(__name__)


class PostgresRowSource:
    """Reads rows of one PostgreSQL database again. Connections are made on demand."""

    def __init__(self, options: ReselectOptions) -> None:
        if options.database is None:
            raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
        self._options = options
        self._visibility = VisibilityCheck(options.visibility_timeout_ms / 1000)
        roles = [Role.PRIMARY]
        if options.read_from == "replica":
            roles = [Role.REPLICA, Role.PRIMARY] if len(options.database.servers) > 1 else [Role.REPLICA]
        timeout_ms = options.database_query_timeout_ms
        self._servers = [PostgresServer(options.database, role, timeout_ms) for role in roles]  # in the order of use

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, database, standby), Retriable for others."""
        self._servers[0].check()

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's entry in the catalog. Raises ConfigError if rows are hidden (grant, row security)."""
        with self._servers[0].connection() as connection:
            return read_catalog(connection, table)

    def schema(self, catalog: CatalogTable) -> Schema:
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

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[object]]]:
        """Yield every row in one snapshot, which stays open until the last row."""
        readable = self._readable(catalog, columns)
        with self._servers[-1].connection() as connection:
            for texts in table_texts(connection, catalog, readable.names):
                yield readable.values(texts, len(texts[0]))

    def scan_in_parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        """Yield the rows of a few pages at a time; those of a partitioned table as ``scan`` does."""
        server, readable = self._servers[-1], self._readable(catalog, columns)
        begin = 0
        while True:
            with server.connection() as connection:
                end = next_page(connection, catalog, begin)
                result = None if end is None else read_pages(connection, catalog, readable.names, begin, end)
            if end is None or result is None:
                break
            if result.ntuples:
                yield TablePart(result.ntuples, partial(self._values, readable, result))
            begin = end
        if not begin:
            for values in self.scan(catalog, columns):
                yield TablePart(len(values[0]), partial(list, values))

    def log_position(self) -> LogPosition:
        """Return the end of the log, and the position that logical replication slots of the database have confirmed."""
        with self._servers[-1].connection() as connection:
            return log_position(connection)

    def findings(self, tables: Sequence[TableId]) -> Sequence[Finding]:
        """Check the log, the replication slots and these tables, and the standby if reselect reads one."""
        server = self._servers[-1]
        with server.connection() as connection:
            survey = read_survey(connection, server.where, tables, self._options)
            version = connection.info.server_version
        found = list(postgres_doctor.findings(survey))
        found += versions.findings([Software(POSTGRESQL, f"{version // 10000}.{version % 10000}")])
        if self._servers[0].role is Role.REPLICA:
            with self._servers[0].connection() as connection:
                standby = read_standby(connection, self._servers[0].where)
            if standby is not None:
                found += postgres_doctor.standby_findings(standby, self._options.visibility_timeout_ms / 1000)
        return found

    def clock(self, now: Callable[[], float]) -> ClockReading:
        server = self._servers[-1]
        with server.connection() as connection:
            before = now()
            [there] = connection.execute(_CLOCK).fetchone() or [before]
            return ClockReading(server.where, before, float(there), now())

    def signal_table(self, name: str) -> PostgresSignalTable:
        return PostgresSignalTable(self._servers[-1], name)

    def slots(self) -> Sequence[ReplicationSlot]:
        """Return the logical slots of the primary, or of the last standby."""
        server = self._servers[-1]
        with server.connection() as connection:
            found = read_slots(connection)
        return [ReplicationSlot(server.where, slot.name, slot.active, slot.retained) for slot in found]

    def connections(self) -> Connections:
        return sum((server.connections() for server in self._servers), Connections())

    def close(self) -> None:
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
        needs = masks(request.needs[:, readable.indexes])
        parameters = [array_literal(texts) for texts in keys] + [array_literal([*map(str, mask)]) for mask in needs]
        rows = FoundRows(catalog.table, len(request), len(readable.columns))
        waited = 0.0
        with server.connection() as connection:
            if self._options.visibility_check:
                transactions = np.unique(request.transactions[request.transactions >= 0]).tolist()
                waited = self._visibility.wait(connection, transactions, server.where)  # proven: S15
            with RawCursor(connection) as cursor:
                cursor.execute(cast(Any, text), parameters, prepare=True)
                result = cast(PGresult, cursor.pgresult)  # a SELECT has one
                ordinals, *cells = cells_of(result, 1 + len(readable.columns))
                rows.put_all(np.array([int(ordinal or 0) - 1 for ordinal in ordinals], np.int64), cells)
        proven = self._options.visibility_check and bool((request.transactions >= 0).all())
        texts = [
            texts_of_column(request.columns[column.index].schema, column.read, cells)
            for column, cells in zip(readable.columns, rows.values, strict=True)
        ]
        values = readable.values(texts, len(request))
        return RowAnswer(rows.found, values, proven, waited=waited)

    # -- statements ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _values(readable: ReadableColumns, result: PGresult) -> Sequence[Sequence[object]]:
        return readable.values(texts_of(result, max(len(readable.names), 1)), result.ntuples)

    def _readable(self, catalog: CatalogTable, wanted: Sequence[Wanted]) -> ReadableColumns:
        return ReadableColumns.of(
            wanted, catalog.column, lambda schema, column: reader(schema, column, self._options.modes)
        )


def texts_of_column(schema: Schema, read: Reader, cells: Sequence[Any]) -> Sequence[Any]:
    """Return the server's texts of a column, as an Arrow array if they are the values (``RowAnswer``)."""
    if read is str and schema.type == "string":
        texts: Any = pa.array(cells, pa.string())
        if isinstance(texts, pa.Array):  # not if they exceed what one array can hold
            return cast(Sequence[Any], texts)
    return [None if cell is None else cell.decode() for cell in cells]


def _key_term(catalog: CatalogTable, name: str) -> KeyTerm:
    column = key_column(catalog, name)
    base = column.type.base_type()
    part = next((part for part in catalog.key if part.name == column.name), None)
    # Without an index: operators of an extension's types are in the schema of the type.
    operator = (base.schema, "=") if part is None else (part.operator_schema, part.operator)
    if part is None and base.kind == "e":
        operator = ("pg_catalog", "=")
    return KeyTerm(column.name, (base.schema, base.name), operator)


_CLOCK = "SELECT pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())"

FIRST_NORMAL_ID = 3
"""The ids below are PostgreSQL's own (bootstrap, frozen) and always visible."""

# txid_… are the names that PostgreSQL 12 has as well; pg_xact_status of later versions is the same function.
_NEXT_ID = "SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())"
_STATES = "SELECT DISTINCT pg_catalog.txid_status(id) FROM unnest(%s::pg_catalog.int8[]) AS id"  # proven: N1


class NotVisible(Retriable):
    """An event's transaction is not yet visible on the queried server."""


@dataclass(frozen=True, slots=True)
class VisibilityCheck:
    """Waits, with back-off, for at most ``timeout`` seconds per call."""

    timeout: float

    def wait(self, connection: Connection, transactions: Sequence[int], where: str) -> float:
        """Return once all ``transactions`` (32-bit ids, as in events) are visible to later statements.

        Returns the seconds of waiting for them. Raises NotVisible after the time-out, and ConfigError if one was
        aborted, because then this is another server.
        """
        if not transactions:
            return 0.0
        retrying = Retrying(
            retry=retry_if_exception_type(NotVisible),
            stop=stop_after_delay(self.timeout),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        retrying(_check, connection, transactions, where)
        return float(retrying.statistics["idle_for"])


def full_transaction_id(number: int, next_id: int) -> int:
    """Return the 64-bit id nearest to ``next_id`` of a 32-bit id (signed difference, as PostgreSQL compares)."""
    difference = (number - next_id) & 0xFFFFFFFF
    return next_id + (difference - (1 << 32) if difference >= 1 << 31 else difference)


def _check(connection: Connection, transactions: Sequence[int], where: str) -> None:
    row = connection.execute(_NEXT_ID).fetchone()
    next_id = int(row[0]) if row is not None else 0
    full_ids = [full_transaction_id(number, next_id) for number in transactions]
    queried = [number for number in full_ids if number >= FIRST_NORMAL_ID]
    try:
        # Null is too old for a status, and so visible.
        states = {row[0] for row in connection.execute(_STATES, (queried,))}
    except psycopg.errors.InvalidParameterValue as error:  # "transaction ID … is in the future"
        raise NotVisible(
            f"{where} does not know transaction {max(full_ids) & 0xFFFFFFFF} yet; if it is a copy or was restored, "
            "its transaction ids are not those of the events; set reselect.visibility.check=off"
        ) from error
    if "in progress" in states:  # proven: S16
        raise NotVisible(f"{where}: a transaction of the events is not visible yet")
    if "aborted" in states:
        raise ConfigError(
            f"{where}: a transaction of the events was aborted here, so they come from another server; "
            "correct reselect.database.*, or set reselect.visibility.check=off for a copy",
            "reselect.database.hostname",
        )
