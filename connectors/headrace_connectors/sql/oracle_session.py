"""Sessions with Oracle: connect and pool parameters, TLS, session settings, bind types.

Thin mode needs no client library, and TLS comes from Python's ``ssl`` (``oracle_tls.py``). Connections use the
pluggable database's own service: a session never changes its container (DBZ-8304, DBZ-8493).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import oracledb

from headrace.core.reselect.options import DatabaseOptions
from headrace_connectors.sql.oracle_tls import tls_context

CONNECT_SECONDS = 10
IDLE_SECONDS, LIFETIME_SECONDS = 300, 3600
STATEMENTS = 40
"""Statements that a connection keeps open: a few tables with their column sets and numbers of slots."""

SETTINGS = "ALTER SESSION SET TIME_ZONE = '+00:00' NLS_CALENDAR = 'GREGORIAN' NLS_COMP = 'BINARY'"
"""Local time zones are UTC, times print in the calendar of the events, and keys are equal if their bytes are."""

BIND_TYPES: Mapping[str, Any] = {
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
"""By the key column's type; all others are bound as text (``oracle_keys.py``)."""


def bind_type(type_name: str) -> Any:
    """Return the driver's type for the binds of a key column."""
    return BIND_TYPES.get(type_name, oracledb.DB_TYPE_VARCHAR)


def connect_parameters(database: DatabaseOptions, address: tuple[str, int], password: str) -> dict[str, Any]:
    """Return arguments of ``oracledb.connect``. Raises ConfigError for certificates that cannot be read."""
    parameters: dict[str, Any] = {
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
    database: DatabaseOptions,
    address: tuple[str, int],
    password: str,
    prepare: Callable[[Any, str | None], None],
) -> dict[str, Any]:
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


def prepare_session(connection: Any) -> None:
    """Set the formats of a new session's texts, and its comparisons."""
    with connection.cursor() as cursor:
        cursor.execute(SETTINGS)
