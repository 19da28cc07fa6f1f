"""The connections to PostgreSQL: a bounded pool for one role, and the driver's errors as Headrace's.

``reselect.database.hostname`` may list several servers, as for libpq. The role that a server reports at connection
decides which of them is used, so that a failover needs no new configuration (``reselect.md`` section 7.4). Errors are
transient, wrong settings, or refused queries (section 4.4).
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import psycopg
import psycopg_pool
from psycopg.conninfo import make_conninfo

from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, Retriable, TimedOut
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import Connections
from headrace_connectors.sql.availability import (
    CHECK_SERVER,
    CircuitBreaker,
    CircuitState,
    Login,
    RefusedConnection,
    RefusedLogin,
    Unreachable,
)
from headrace_connectors.sql.postgres_connection import Connection

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
            connection_class=Connection,
            kwargs=self._arguments,
            min_size=0,
            max_size=max(database.pool_max_size, 1),
            timeout=CONNECT_SECONDS,
            reconnect_timeout=CONNECT_SECONDS,
            max_idle=IDLE_SECONDS,
            max_lifetime=LIFETIME_SECONDS,
            configure=lambda connection: self._login.accept(),
            check=psycopg_pool.ConnectionPool.check_connection,
            open=False,
        )

    def check(self) -> None:
        """Connect once. Raises ConfigError for permanent errors (password, database, standby), Retriable for others."""
        try:
            with self._translating_errors(), self._connect() as connection:
                version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
                self._login.accept()
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
        with self._breaker.guard(), self._translating_errors():
            self._pool.open()
            try:
                with self._pool.connection() as connection:
                    yield connection
            except psycopg_pool.PoolTimeout:
                self._connect().close()  # raises the cause of the failed connection
                raise

    def connections(self) -> Connections:
        stats = {} if self._pool.closed else self._pool.get_stats()
        open_, idle = stats.get("pool_size", 0), stats.get("pool_available", 0)
        return Connections(idle, open_ - idle, int(self._breaker.state is CircuitState.OPEN))

    def close(self) -> None:
        self._pool.close()

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        with self._login.guard(), translate_errors(self.where, lambda: certificate_problem(self._database)):
            yield

    def _connect(self) -> Connection:
        return Connection.connect(self._conninfo(), **self._arguments)

    def _conninfo(self) -> str:
        database = self._database
        given: dict[str, Any] = {
            "host": ",".join(host for host, _ in database.servers),
            "port": ",".join(str(port) for _, port in database.servers),
            "user": database.user,
            "password": self._login.password(),
            "dbname": database.dbname,
            "sslmode": database.sslmode,
            "sslrootcert": database.sslrootcert,
            "sslcert": database.sslcert,
            "sslkey": database.sslkey,
            "sslpassword": database.sslpassword,
            "target_session_attrs": self.role.value,
        }
        options = {key: value for key, value in given.items() if value}
        return make_conninfo(**options, connect_timeout=CONNECT_SECONDS, application_name="headrace-reselect")


_GONE = re.compile(r"08|57P0|53300")
"""SQLSTATEs of a server that is not available: connection, shutdown, start, too many clients."""
_TRANSIENT = re.compile(r"53|57014|40001|40P01|55P03|25006|XX")
"""Other transient SQLSTATEs: resources, time-outs, serialization, failover."""
_REFUSED_LOGIN = "28P01"
_TIMED_OUT = frozenset({"57014", "55P03"})
"""``statement_timeout`` and ``lock_timeout``, which Headrace sets."""
_WRONG_SETTINGS = re.compile(r"28|3D")
"""SQLSTATEs of a wrong user, password or database."""
_OF_LOGIN = re.compile(r"password authentication failed|no password supplied")
_OF_SERVER: Mapping[str, tuple[str, str]] = {
    _OF_LOGIN.pattern: ("password", "correct reselect.database.password"),
    r"role .* does not exist": ("user", "correct reselect.database.user"),
    r"database .* does not exist": ("dbname", "correct reselect.database.dbname"),
    r"no pg_hba\.conf entry": ("user", "add an entry to pg_hba.conf, or correct reselect.database.* (user, sslmode)"),
    r"permission denied for database": ("user", "GRANT CONNECT ON DATABASE to the user"),
    r"could not translate host name": ("hostname", "correct reselect.database.hostname"),
    r"requires a valid client certificate": ("sslcert", "set reselect.database.sslcert and sslkey"),
    r"certificate authentication failed": (
        "sslcert",
        "the name in the certificate of reselect.database.sslcert has to be the user's, or mapped to it in "
        "pg_ident.conf",
    ),
}
_OF_TLS: Mapping[str, tuple[str, str]] = {
    r"does not match host name": (
        "hostname",
        "use a name that the certificate contains in reselect.database.hostname, or, if the network decides who "
        "answers, reselect.database.sslmode=verify-ca",
    ),
    r"certificate has expired": ("sslrootcert", "renew the certificate of the server"),
    r"not yet valid": ("sslrootcert", "check the clocks of this machine and of the server"),
    r"certificate verify failed": (
        "sslrootcert",
        "the file of reselect.database.sslrootcert has to contain the authority that signed the server's certificate",
    ),
    r"root certificate file": ("sslrootcert", "correct reselect.database.sslrootcert"),
    r"private key file|key password|bad decrypt": ("sslkey", "correct reselect.database.sslkey and sslpassword"),
    r"certificate file": ("sslcert", "correct reselect.database.sslcert"),
    r"alert unknown ca": ("sslcert", "the server has to trust the authority of reselect.database.sslcert"),
    r"alert certificate expired": ("sslcert", "renew the client's certificate in reselect.database.sslcert"),
    r"does not support SSL": ("sslmode", "switch TLS on at the server, or correct reselect.database.sslmode"),
    r"SSL|certificate": ("sslmode", "correct reselect.database.* (sslmode, sslrootcert, sslcert, sslkey)"),
}
"""By libpq's message: the option, and what to do. The first entry that matches counts."""
_CUT = re.compile(
    r"SSL SYSCALL error|SSL connection has been closed|unexpected eof while reading"
    r"|consuming input failed|sending query|could not (receive data from|send data to) server"
)
"""A connection that broke: libpq also reports it as a TLS error, although the settings are correct."""
_UNVERIFIED = "certificate verify failed"
_CORRECT = "correct reselect.database.* (user, password, dbname) and send the configuration again"


@contextmanager
def translate_errors(where: str, certificate_problem: Callable[[], str] = str) -> Iterator[None]:
    """Raise Headrace's errors instead of the driver's. ``where`` names the database in the message.

    ``certificate_problem`` finds out why the server's certificate is not trusted, which libpq does not report.
    """
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise TimedOut(f"{where}: no connection became free in time; see reselect.database.pool.max.size") from error
    except (psycopg_pool.PoolClosed, psycopg.InterfaceError) as error:
        raise Retriable(f"{where}: the connection is closed") from error
    except psycopg.Error as error:
        raise _translate(error, where, certificate_problem) from error


def _translate(error: psycopg.Error, where: str, certificate_problem: Callable[[], str]) -> HeadraceError:
    # The server's primary message, because details may contain values of cells; without one, libpq's message. libpq
    # writes the cause of a failed connection and hints to different lines, and repeats them with and without TLS.
    lines = filter(None, (line.strip(" \t-") for line in str(error).splitlines()))
    message = error.diag.message_primary or " ".join(dict.fromkeys(lines)) or type(error).__name__
    state = error.sqlstate
    if state is None and isinstance(error, psycopg.OperationalError):
        if _UNVERIFIED in message and (problem := certificate_problem()):
            message = message.replace(_UNVERIFIED, f"{_UNVERIFIED}: {problem}")
        return _refusal(where, message) or Unreachable(f"{where} cannot be reached: {message}; {CHECK_SERVER}")
    if state is not None and _WRONG_SETTINGS.match(state):
        refusal = RefusedLogin if state == _REFUSED_LOGIN else RefusedConnection
        return refusal(f"{where} refuses the connection: {message}; {_CORRECT}", "reselect.database.user")
    if state is not None and _GONE.match(state):
        return Unreachable(f"{where} cannot be reached ({state}): {message}")
    if state is not None and _TRANSIENT.match(state):
        error_class = TimedOut if state in _TIMED_OUT else Retriable
        return error_class(f"{where} failed for now ({state}): {message}")
    return Fatal(f"{where} refuses the query ({state}): {message}")


def _refusal(where: str, message: str) -> RefusedConnection | None:
    """Return the error of a connection that the server or libpq refuses; None if the server does not answer."""
    causes = dict(_OF_SERVER) if _CUT.search(message) else {**_OF_SERVER, **_OF_TLS}
    for pattern, (option, remedy) in causes.items():
        if re.search(pattern, message):
            error_class = RefusedLogin if _OF_LOGIN.search(message) else RefusedConnection
            text = f"{where} refuses the connection: {message}; {remedy} and send the configuration again"
            return error_class(text, f"reselect.database.{option}")
    return None


_SSL_REQUEST = bytes.fromhex("0000000804d2162f")
"""PostgreSQL's SSLRequest message; the server answers with ``S`` and continues with TLS."""
_SECONDS = 5.0


def certificate_problem(database: DatabaseOptions) -> str:
    """Return OpenSSL's reason for the first server whose certificate is not trusted; empty if there is none."""
    for address in database.servers:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False  # libpq reports another name itself
        try:
            context.load_verify_locations(database.sslrootcert)
            with socket.create_connection(address, _SECONDS) as connection:
                connection.sendall(_SSL_REQUEST)
                if connection.recv(1) == b"S":
                    context.wrap_socket(connection).close()
        except ssl.SSLCertVerificationError as error:
            if error.verify_message:
                return error.verify_message
        except (OSError, ValueError):
            continue
    return ""
