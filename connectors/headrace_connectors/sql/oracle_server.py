"""The connections to one Oracle server: a bounded pool, sessions and TLS (``reselect.md`` section 7.4).

Every new connection reads whether the server is the primary, so that a switchover needs no new configuration. Thin mode
needs no client library. Connections use the pluggable database's own service: a session never changes its container
(DBZ-8304, DBZ-8493).

TLS comes from Python's ``ssl``, with authorities and the client's key from PEM files or a wallet. Thin mode would read
a wallet itself, but only ``ewallet.pem``, and it ignores a key that it cannot decrypt. It compares names after the
handshake (``ssl_server_dn_match``) instead of in the context. The contexts here always verify the certificate.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import oracledb
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from headrace.config.key_stores import (
    KeyAndChain,
    NoPrivateKey,
    ReloadedContext,
    StoreError,
    key_and_chain,
    trusted_certificates,
)
from headrace.config.tls import load_key, store_content
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.reselect.options import DatabaseOptions
from headrace.ports import Connections
from headrace_connectors.sql.availability import CircuitBreaker, CircuitState, Login
from headrace_connectors.sql.oracle_errors import REFUSED_LOGIN, connection_lost, error_codes, translate_errors

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
        with self._login.guard(), translate_errors(self.where):
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
        with self._breaker.guard(), self._login.guard(), translate_errors(self.where):
            pool = self._open_pool()
            try:
                connection = pool.acquire()
            except oracledb.Error as error:
                # A pool keeps its password. So a refused login ends the pool, and the next one gets the present one.
                if REFUSED_LOGIN in error_codes(error):
                    self._discard(pool)
                raise
            connection.call_timeout = self._call_timeout
            try:
                yield connection
            except BaseException as error:
                if connection_lost(error) and not self._closed:
                    pool.drop(connection)
                else:
                    connection.close()
                raise
            connection.close()

    def connections(self) -> Connections:
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

    def _open_pool(self) -> Any:
        with self._lock:
            if self._closed:
                raise Retriable(f"{self.where}: the connection is closed")
            if self._pool is None:
                parameters = pool_parameters(self._database, self._address, self._login.password(), self._prepare)
                self._pool = self._driver.create_pool(**parameters)
            return self._pool

    def _discard(self, pool: Any) -> None:
        with self._lock:
            if self._pool is not pool:
                return
            self._pool = None
        with suppress(oracledb.Error):  # connections in use stay open until they are released
            pool.close()

    def _prepare(self, connection: Any, tag: str | None = None) -> None:
        """Prepare a new connection (``session_callback``)."""
        self._login.accept()
        with connection.cursor() as cursor:
            cursor.execute(SETTINGS)
            cursor.execute(ROLE)
            row = cursor.fetchone()
        self.standby = row is not None and row[0] != "PRIMARY"


CONNECT_SECONDS = 10
IDLE_SECONDS, LIFETIME_SECONDS = 300, 3600
STATEMENTS = 40
"""Statements that a connection keeps open: a few tables with their column sets and numbers of slots."""

SETTINGS = "ALTER SESSION SET TIME_ZONE = '+00:00' NLS_CALENDAR = 'GREGORIAN' NLS_COMP = 'BINARY' NLS_SORT = 'BINARY'"
"""Local time zones are UTC, times print in the calendar of the events, and keys compare and sort as their bytes do."""

BIND_TYPES: Mapping[str, oracledb.DbType] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), oracledb.DB_TYPE_NUMBER),
    "BINARY_FLOAT": oracledb.DB_TYPE_BINARY_FLOAT,
    "BINARY_DOUBLE": oracledb.DB_TYPE_BINARY_DOUBLE,
    "CHAR": oracledb.DB_TYPE_CHAR,
    "NCHAR": oracledb.DB_TYPE_NCHAR,
    "NVARCHAR2": oracledb.DB_TYPE_NVARCHAR,
    "RAW": oracledb.DB_TYPE_RAW,
    "INTERVAL YEAR TO MONTH": oracledb.DB_TYPE_NUMBER,
    "INTERVAL DAY TO SECOND": oracledb.DB_TYPE_NUMBER,
}
"""By the key column's type; all others are bound as text (``oracle_query.py``)."""


def bind_type(type_name: str) -> oracledb.DbType:
    return BIND_TYPES.get(type_name, oracledb.DB_TYPE_VARCHAR)


def connect_parameters(database: DatabaseOptions, address: tuple[str, int], password: str) -> dict[str, object]:
    """Return arguments of ``oracledb.connect``. Raises ConfigError for certificates that cannot be read."""
    parameters: dict[str, object] = {
        "user": database.user,
        "password": password,
        "host": address[0],
        "port": address[1],
        "service_name": database.dbname,
        "tcp_connect_timeout": float(CONNECT_SECONDS),
        "stmtcachesize": STATEMENTS,
        "program": "headrace-reselect",
    }
    if (context := tls_context(database)) is None:
        return parameters
    by_name = database.sslmode != "verify-ca"
    return parameters | {"protocol": "tcps", "ssl_context": context, "ssl_server_dn_match": by_name}


def pool_parameters(
    database: DatabaseOptions, address: tuple[str, int], password: str, prepare: Callable[[Any, str | None], None]
) -> dict[str, object]:
    """Return arguments of ``oracledb.create_pool``: connections are made on demand, and tested before use.

    ``prepare`` is called with every new connection.
    """
    return connect_parameters(database, address, password) | {
        "min": 0,
        "max": max(database.pool_max_size, 1),
        "increment": 1,
        "getmode": oracledb.POOL_GETMODE_TIMEDWAIT,
        "wait_timeout": CONNECT_SECONDS * 1000,
        "ping_interval": 0,
        "timeout": IDLE_SECONDS,
        "max_lifetime_session": LIFETIME_SECONDS,
        "session_callback": prepare,
    }


Content = TypeVar("Content")
_PREFIX = "reselect.database."
_WITHOUT_TLS = ("disable", "allow", "prefer")
_WALLETS = ("ewallet.p12", "ewallet.pem")


def tls_context(database: DatabaseOptions) -> ssl.SSLContext | None:
    """Return the context, None for connections without TLS. Changed files apply to new connections.

    Raises ConfigError for files that cannot be read, and for options that would have no effect or verify nothing.
    """
    files = list(filter(None, (database.sslrootcert, database.sslcert, database.sslkey)))
    if database.sslmode in _WITHOUT_TLS:
        if files or database.wallet_location:
            raise ConfigError(
                f"{_PREFIX}sslmode: {database.sslmode} uses no TLS with Oracle, so certificates have no effect; set "
                "verify-full, or remove sslrootcert, sslcert, sslkey and wallet.location",
                f"{_PREFIX}sslmode",
            )
        return None
    if database.wallet_location:
        if files:
            raise ConfigError(
                f"{_PREFIX}wallet.location: cannot be set beside sslrootcert, sslcert and sslkey",
                f"{_PREFIX}wallet.location",
            )
        folder = Path(database.wallet_location)
        wallet = next((folder / name for name in _WALLETS if (folder / name).is_file()), None)
        if wallet is None:
            raise ConfigError(
                f"{_PREFIX}wallet.location: {folder} has neither {' nor '.join(_WALLETS)}; cwallet.sso can only be "
                "read by Oracle's own libraries",
                f"{_PREFIX}wallet.location",
            )
        return ReloadedContext.of(lambda: _of_wallet(wallet, database.wallet_password), [str(wallet)], _PREFIX)
    if database.sslmode == "verify-ca" and not database.sslrootcert:
        raise ConfigError(
            f"{_PREFIX}sslmode: verify-ca needs sslrootcert or wallet.location: the authorities of the system sign "
            "certificates for anybody",
            f"{_PREFIX}sslmode",
        )
    return ReloadedContext.of(lambda: _of_files(database), files, _PREFIX) if files else _of_files(database)


def _of_files(database: DatabaseOptions) -> ssl.SSLContext:
    context = _context()
    if database.sslrootcert:
        _trust(context, _read("sslrootcert", database.sslrootcert, lambda text: trusted_certificates(text, None)))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if database.sslcert:
        chain = _read("sslcert", database.sslcert, lambda text: text)
        key_file = database.sslkey or database.sslcert
        key = _read("sslkey", key_file, lambda text: key_and_chain(text + b"\n" + chain, None, database.sslpassword))
        load_key(context, key, f"{_PREFIX}sslkey")
    return context


def _of_wallet(wallet: Path, password: str | None) -> ssl.SSLContext:
    context = _context()
    _trust(context, _read("wallet.location", str(wallet), lambda content: trusted_certificates(content, password)))
    key = _read("wallet.location", str(wallet), lambda content: _client_key(content, password))
    if key is not None:
        load_key(context, key, f"{_PREFIX}wallet.location")
    return context


def _client_key(content: bytes, password: str | None) -> KeyAndChain | None:
    try:
        return key_and_chain(content, password, None)
    except NoPrivateKey:
        return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the driver compares names
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # any trusted certificate is an anchor, as in a wallet
    return context


def _trust(context: ssl.SSLContext, certificates: Sequence[x509.Certificate]) -> None:
    context.load_verify_locations(
        cadata=b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)
    )


def _read(option: str, path: str, read: Callable[[bytes], Content]) -> Content:
    """Return what ``read`` makes of a file. Raises ConfigError that names the option and the file."""
    try:
        return read(store_content(path))
    except (OSError, StoreError) as error:
        cause = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{_PREFIX}{option}: {path} cannot be read: {cause}", f"{_PREFIX}{option}") from error
