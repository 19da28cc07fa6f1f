"""The connections to one Oracle server: a bounded pool, a circuit breaker, and its role (``reselect.md`` section 7.4).

Every new connection reads whether the server is the primary, so that a switchover needs no new configuration.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import oracledb

from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import Connections
from headrace_connectors.sql.circuit_breaker import CircuitBreaker, CircuitState
from headrace_connectors.sql.oracle_errors import REFUSED_LOGIN, connection_lost, error_codes, translated
from headrace_connectors.sql.oracle_session import connect_parameters, pool_parameters, prepare_session
from headrace_connectors.sql.refused_logins import Login, RefusedConnection

OLDEST_VERSION = (12, 2)
ROLE = "SELECT SYS_CONTEXT('USERENV', 'DATABASE_ROLE') FROM DUAL"


class OracleServer:
    """One of the servers of ``reselect.database.*``. Connections are made on demand.

    ``standby`` is the role at the latest connection.
    """

    def __init__(self, database: DatabaseOptions, address: tuple[str, int], call_timeout_ms: int, driver: Any) -> None:
        host, port = address
        self.where = f'database "{database.dbname}" at {host}:{port} (user "{database.user}")'
        self.user = database.user
        self.standby = False
        self._database = database
        self._address = address
        self._call_timeout = call_timeout_ms
        self._driver = driver
        self._login = Login(database.current_password)
        self._breaker = CircuitBreaker(self.where)
        self._lock = threading.Lock()
        self._pool: Any = None
        self._closed = False

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, service, version), Retriable for others."""
        with self._translated():
            parameters = connect_parameters(self._database, self._address, self._login.password())
            connection = self._driver.connect(**parameters)
            try:
                self._prepare(connection)
                version = tuple(int(part) for part in connection.version.split(".")[:2])
            finally:
                connection.close()
        if version < OLDEST_VERSION:
            raise ConfigError(
                f"{self.where}: reselect needs Oracle 12.2 or later, this is {'.'.join(map(str, version))}",
                "reselect.database.hostname",
            )

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Provide a connection of the pool. A lost one is closed with its statements (dbz#2204)."""
        with self._breaker.guard(), self._translated():
            pool, connection = self._acquired()
            connection.call_timeout = self._call_timeout
            try:
                yield connection
            except BaseException as error:
                self._let_go(pool, connection, lost=connection_lost(error))
                raise
            self._let_go(pool, connection, lost=False)

    def connections(self) -> Connections:
        """Return the state of the pool and of the circuit breaker."""
        with self._lock:  # a closed pool has no statistics
            open_, used = (0, 0) if self._pool is None else (self._pool.opened, self._pool.busy)
        return Connections(open_ - used, used, int(self._breaker.state is CircuitState.OPEN))

    def close(self) -> None:
        """Close the pool. Idempotent."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(force=True)

    def _let_go(self, pool: Any, connection: Any, *, lost: bool) -> None:
        if lost and not self._closed:
            pool.drop(connection)
        else:
            connection.close()

    def _opened(self) -> Any:
        with self._lock:
            if self._closed:
                raise Retriable(f"{self.where}: the connection is closed")
            if self._pool is None:
                parameters = pool_parameters(self._database, self._address, self._login.password(), self._prepare)
                self._pool = self._driver.create_pool(**parameters)
            return self._pool

    def _acquired(self) -> tuple[Any, Any]:
        """Return the pool and a connection of it.

        A pool keeps its password. So a refused login ends the pool, and the next one gets the present password.
        """
        pool = self._opened()
        try:
            return pool, pool.acquire()
        except oracledb.Error as error:
            if REFUSED_LOGIN in error_codes(error):
                self._end(pool)
            raise

    def _end(self, pool: Any) -> None:
        with self._lock:
            if self._pool is not pool:
                return
            self._pool = None
        with suppress(oracledb.Error):  # connections in use stay open until they are released
            pool.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self.where):
                yield
        except RefusedConnection as error:
            self._login.refused(error)
            raise

    def _prepare(self, connection: Any, tag: str | None = None) -> None:
        """Prepare a new connection (``session_callback``)."""
        self._login.accepted()
        prepare_session(connection)
        with connection.cursor() as cursor:
            cursor.execute(ROLE)
            row = cursor.fetchone()
        self.standby = row is not None and row[0] != "PRIMARY"
