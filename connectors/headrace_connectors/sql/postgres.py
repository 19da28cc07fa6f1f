"""PostgreSQL as a RowSource: psycopg 3 and a bounded pool (``reselect.md`` sections 7.1, 7.2 and 7.4).

Every statement has its own snapshot (autocommit, READ COMMITTED, read-only). Before rows are read, the transactions of
the events must be known as committed: a synchronous replication wait delays visibility after the log has been decoded.
Values are taken as the server's raw text, which is what pgoutput sends too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import psycopg
import psycopg_pool
from psycopg import RawCursor
from psycopg.conninfo import make_conninfo
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from headrace.core.catalog import CatalogColumn, CatalogTable
from headrace.core.errors import ConfigError, Fatal, Retriable
from headrace.core.events import TableId
from headrace.core.reselect import UNREADABLE, DatabaseOptions, ReselectOptions, RowAnswer, RowRequest
from headrace.core.schema import Schema
from headrace_connectors.sql.postgres_catalog import read_catalog
from headrace_connectors.sql.postgres_errors import translated
from headrace_connectors.sql.postgres_keys import key_texts
from headrace_connectors.sql.postgres_schema import connect_schema
from headrace_connectors.sql.postgres_values import Reader, reader
from headrace_connectors.sql.query import KeyTerm, array_literal, masks, select_rows

Connection = psycopg.Connection[Any]

SETTINGS = {
    "default_transaction_read_only": "on",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "lc_monetary": "C",
}
"""Under these the server's text is that of pgoutput."""
CONNECT_SECONDS = 10
IDLE_SECONDS, LIFETIME_SECONDS = 300.0, 3600.0
OLDEST_VERSION = 120000


class NotVisible(Retriable):
    """An event's transaction is not yet visible on the server that was asked."""


class PostgresRowSource:
    """Reads rows of one PostgreSQL database again. Connections are made when they are first needed."""

    def __init__(self, options: ReselectOptions) -> None:
        if options.database is None:
            raise ConfigError("reselect.database.hostname is missing", "reselect.database.hostname")
        self._options = options
        self._database = options.database
        self._pool = psycopg_pool.ConnectionPool(
            _conninfo(options.database),
            kwargs={"autocommit": True, "options": _settings(options)},
            min_size=0,
            max_size=max(options.database.pool_max_size, 1),
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            check=psycopg_pool.ConnectionPool.check_connection,
            open=False,
        )

    def check(self) -> None:
        """Connect once: ConfigError for what will not pass (password, database, standby), Retriable for the rest."""
        with translated(self._where), self._connect() as connection:
            version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
            standby = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
        if version < OLDEST_VERSION or encoding != "UTF8":
            raise ConfigError(
                f"{self._where}: reselect needs PostgreSQL 12 or later with encoding UTF8, this is {version // 10000} "
                f"with {encoding}",
                "reselect.database.hostname",
            )
        if standby is not None and standby[0]:
            raise ConfigError(
                f"{self._where} is a standby; reselect reads from the primary (reselect.read.from=primary)",
                "reselect.database.hostname",
            )

    def catalog(self, table: TableId) -> CatalogTable | None:
        """The table's catalog entry. Raises ConfigError where rows are hidden from the user (grant, row security)."""
        with self._connection() as connection:
            return read_catalog(connection, table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """The ``after`` schema of the table's events."""
        return connect_schema(catalog, self._options.modes)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """One SELECT after the events' transactions are known as committed. Raises Fatal if a key has several rows."""
        columns = [catalog.column(column.name) for column in request.columns]
        readable = [number for number, column in enumerate(columns) if column is not None]
        text = self._select(catalog, request, [columns[number] for number in readable])
        parameters = self._parameters(catalog, request, readable)
        with self._connection() as connection:
            if self._options.visibility_check:
                self._await_visible(connection, request)
            with RawCursor(connection) as cursor:
                cursor.execute(cast(Any, text), parameters, prepare=True)
                found, texts = _raw_rows(cursor, len(request), len(readable), catalog.table)
        return RowAnswer(found, self._values(request, columns, readable, texts), proven=self._options.visibility_check)

    def close(self) -> None:
        """Close the pool. Idempotent."""
        self._pool.close()

    # -- statements ---------------------------------------------------------------------------------------------------

    def _select(self, catalog: CatalogTable, request: RowRequest, columns: Sequence[CatalogColumn | None]) -> str:
        names = [column.name for column in columns if column is not None]
        table = (catalog.table.schema, catalog.table.table)
        terms = [_key_term(catalog, column.name) for column in request.key]
        return select_rows(table, terms, names, only=catalog.relkind == "r")

    def _parameters(self, catalog: CatalogTable, request: RowRequest, readable: Sequence[int]) -> list[str]:
        keys = [key_texts(column, _known(catalog, column.name), self._options.modes) for column in request.key]
        needs = masks(request.needs[:, list(readable)])
        return [array_literal(texts) for texts in keys] + [array_literal([*map(str, mask)]) for mask in needs]

    def _values(
        self,
        request: RowRequest,
        columns: Sequence[CatalogColumn | None],
        readable: Sequence[int],
        texts: Sequence[Sequence[str | None]],
    ) -> tuple[Sequence[Any], ...]:
        values: list[Sequence[Any]] = [[UNREADABLE] * len(request) for _ in columns]
        for place, number in enumerate(readable):
            known = columns[number]
            if known is not None:
                read = reader(request.columns[number].schema, known, self._options.modes)
                values[number] = [_value(read, text) for text in texts[place]]
        return tuple(values)

    # -- visibility (section 7.2) -------------------------------------------------------------------------------------

    def _await_visible(self, connection: Connection, request: RowRequest) -> None:
        transactions = sorted({int(number) for number in request.transactions if number >= 0})
        if not transactions:
            return
        retrying = Retrying(
            retry=retry_if_exception_type(NotVisible),
            stop=stop_after_delay(self._options.visibility_timeout_ms / 1000),
            wait=wait_exponential(multiplier=0.01, max=0.5),
            reraise=True,
        )
        retrying(self._check_visible, connection, transactions)

    def _check_visible(self, connection: Connection, transactions: Sequence[int]) -> None:
        row = connection.execute("SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())").fetchone()
        next_id = int(row[0]) if row is not None else 0
        states = self._states(connection, [full_transaction_id(number, next_id) for number in transactions])
        if "in progress" in states:
            raise NotVisible(f"{self._where}: a transaction of the events is not visible yet")
        if "aborted" in states:
            raise ConfigError(
                f"{self._where}: a transaction of the events was aborted here, so they come from another server; "
                "correct reselect.database.*, or set reselect.visibility.check=off for a copy",
                "reselect.database.hostname",
            )

    def _states(self, connection: Connection, full_ids: Sequence[int]) -> set[str | None]:
        """What became of the transactions; null is too long ago to tell, and so visible."""
        statement = "SELECT pg_catalog.txid_status(id) FROM unnest(%s::pg_catalog.int8[]) AS id"
        try:
            return {row[0] for row in connection.execute(statement, ([number for number in full_ids if number > 2],))}
        except psycopg.errors.InvalidParameterValue as error:  # "transaction ID … is in the future"
            raise NotVisible(
                f"{self._where} does not know transaction {max(full_ids) & 0xFFFFFFFF} yet; if it is a copy or was "
                "restored, its transaction ids say nothing: set reselect.visibility.check=off"
            ) from error

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        options = self._database
        return f'database "{options.dbname}" at {options.hostname}:{options.port} (user "{options.user}")'

    def _connect(self) -> Connection:
        return psycopg.connect(_conninfo(self._database), autocommit=True, options=_settings(self._options))

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection of the pool. A failed connection is discarded with its statements by the pool."""
        with translated(self._where):
            self._pool.open()
            try:
                with self._pool.connection() as connection:
                    yield connection
            except psycopg_pool.PoolTimeout:
                self._connect().close()  # says why there is no connection
                raise


def full_transaction_id(number: int, next_id: int) -> int:
    """The 64-bit id nearest to ``next_id`` of a 32-bit transaction id (signed difference, as PostgreSQL compares)."""
    difference = (number - next_id) & 0xFFFFFFFF
    return next_id + (difference - (1 << 32) if difference >= 1 << 31 else difference)


def _raw_rows(
    cursor: RawCursor[Any], rows: int, columns: int, table: TableId
) -> tuple[np.ndarray[Any, np.dtype[np.bool_]], list[list[str | None]]]:
    """Which rows were found, and the texts of each column by row."""
    result = cursor.pgresult
    assert result is not None  # noqa: S101 - a SELECT has a result
    found = np.zeros(rows, np.bool_)
    texts: list[list[str | None]] = [[None] * rows for _ in range(columns)]
    for number in range(result.ntuples):
        place = int(result.get_value(number, 0) or 0) - 1
        if found[place]:
            raise Fatal(
                f"several rows of {table.schema}.{table.table} have the same key, so it does not identify a row; "
                "set primary.key.fields to columns that do"
            )
        found[place] = True
        for column in range(columns):
            octets = result.get_value(number, column + 1)
            texts[column][place] = None if octets is None else bytes(octets).decode()
    return found, texts


def _value(read: Reader, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return read(text)
    except (ValueError, KeyError, ArithmeticError):
        return UNREADABLE


def _key_term(catalog: CatalogTable, name: str) -> KeyTerm:
    known = _known(catalog, name)
    base = known.type.resolved()
    part = next((part for part in catalog.key if part.name == known.name), None)
    # Without an index: operators of an extension's types live in the schema of the type.
    operator = (base.schema, "=") if part is None else (part.operator_schema, part.operator)
    if part is None and base.kind == "e":
        operator = ("pg_catalog", "=")
    return KeyTerm(known.name, (base.schema, base.name), operator)


def _known(catalog: CatalogTable, name: str) -> CatalogColumn:
    known = catalog.column(name)
    if known is None:
        raise Fatal(f"key column {name} is not in table {catalog.table.schema}.{catalog.table.table} any more")
    return known


def _conninfo(database: DatabaseOptions) -> str:
    given: dict[str, Any] = {
        "host": database.hostname,
        "port": database.port,
        "user": database.user,
        "password": database.password,
        "dbname": database.dbname,
        "sslmode": database.sslmode,
        "sslrootcert": database.sslrootcert,
        "sslcert": database.sslcert,
        "sslkey": database.sslkey,
    }
    options = {key: value for key, value in given.items() if value}
    return make_conninfo(**options, connect_timeout=CONNECT_SECONDS, application_name="headrace-reselect")


def _settings(options: ReselectOptions) -> str:
    timeouts = dict.fromkeys(("statement_timeout", "lock_timeout"), str(options.database_query_timeout_ms))
    return " ".join(f"-c {key}={value}" for key, value in {**SETTINGS, **timeouts}.items())
