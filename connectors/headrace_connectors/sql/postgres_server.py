"""The connections to PostgreSQL: a bounded pool for one role, primary or standby (``reselect.md`` section 7.4).

``reselect.database.hostname`` may list several servers, as for libpq. The role that a server reports at connection
decides which of them is used, so that a failover needs no new configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import psycopg
import psycopg_pool
from psycopg.conninfo import make_conninfo

from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import Connections
from headrace_connectors.sql.circuit_breaker import CircuitBreaker, CircuitState
from headrace_connectors.sql.postgres_errors import translated
from headrace_connectors.sql.postgres_tls import certificate_problem
from headrace_connectors.sql.refused_logins import Login, RefusedConnection

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
"""With these settings the server's text is the same as pgoutput's."""
CONNECT_SECONDS = 10
IDLE_SECONDS, LIFETIME_SECONDS = 300.0, 3600.0
OLDEST_VERSION = 120000


class Role(StrEnum):
    """The wanted role in libpq's terms for ``target_session_attrs``.

    Not ``read-write``: Headrace sets its sessions to read-only.
    """

    PRIMARY = "primary"
    REPLICA = "prefer-standby"


class PostgresServer:
    """One of the servers of ``reselect.database.*``. Connections are made on demand."""

    def __init__(self, database: DatabaseOptions, role: Role, query_timeout_ms: int) -> None:
        self.role = role
        servers = ", ".join(f"{host}:{port}" for host, port in database.servers)
        self.where = f'database "{database.dbname}" at {servers} (user "{database.user}")'
        timeouts = dict.fromkeys(("statement_timeout", "lock_timeout"), str(query_timeout_ms))
        settings = " ".join(f"-c {key}={value}" for key, value in {**SETTINGS, **timeouts}.items())
        self._arguments: dict[str, Any] = {"autocommit": True, "options": settings}
        self._database = database
        self._login = Login(database.current_password)
        self._breaker = CircuitBreaker(self.where)
        self._pool = psycopg_pool.ConnectionPool(
            self._conninfo,  # called for each connection, because the password may have changed
            kwargs=self._arguments,
            min_size=0,
            max_size=max(database.pool_max_size, 1),
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            configure=self._accepted,
            check=psycopg_pool.ConnectionPool.check_connection,
            open=False,
        )

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, database, standby), Retriable for others."""
        try:
            with self._translated(), self._connect() as connection:
                version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
                self._accepted(connection)
        except Retriable as error:
            if "hot standby" not in str(error):
                raise
            raise ConfigError(
                f"{self.where} is a standby; name the primary, or read from standbys with reselect.read.from=replica",
                "reselect.database.hostname",
            ) from error
        if version < OLDEST_VERSION or encoding != "UTF8":
            raise ConfigError(
                f"{self.where}: reselect needs PostgreSQL 12 or later with encoding UTF8, this is {version // 10000} "
                f"with {encoding}",
                "reselect.database.hostname",
            )

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Provide a connection of the pool, which closes a failed connection with its statements.

        Raises Unreachable at once while the circuit breaker is open.
        """
        with self._breaker.guard(), self._translated():
            self._pool.open()
            try:
                with self._pool.connection() as connection:
                    yield connection
            except psycopg_pool.PoolTimeout:
                self._connect().close()  # raises the cause of the failed connection
                raise

    def connections(self) -> Connections:
        """Return the state of the pool and of the circuit breaker."""
        stats = {} if self._pool.closed else self._pool.get_stats()
        open_, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        return Connections(idle, open_ - idle, int(self._breaker.state is CircuitState.OPEN))

    def close(self) -> None:
        """Close the pool. Idempotent."""
        self._pool.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            with translated(self.where, lambda: certificate_problem(self._database)):
                yield
        except RefusedConnection as error:
            self._login.refused(error)
            raise

    def _connect(self) -> Connection:
        return psycopg.connect(self._conninfo(), **self._arguments)

    def _accepted(self, _: Connection) -> None:
        self._login.accepted()

    def _conninfo(self) -> str:
        return _conninfo(self._database, self.role, self._login.password())


def _conninfo(database: DatabaseOptions, role: Role, password: str) -> str:
    given: dict[str, Any] = {
        "host": ",".join(host for host, _ in database.servers),
        "port": ",".join(str(port) for _, port in database.servers),
        "user": database.user,
        "password": password,
        "dbname": database.dbname,
        "sslmode": database.sslmode,
        "sslrootcert": database.sslrootcert,
        "sslcert": database.sslcert,
        "sslkey": database.sslkey,
        "sslpassword": database.sslpassword,
        "target_session_attrs": role.value,
    }
    options = {key: value for key, value in given.items() if value}
    return make_conninfo(**options, connect_timeout=CONNECT_SECONDS, application_name="headrace-reselect")
