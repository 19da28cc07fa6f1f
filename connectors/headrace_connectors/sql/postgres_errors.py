"""psycopg's errors as Headrace's (``reselect.md`` section 4.4): transient, wrong settings, or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, Retriable, TimedOut
from headrace_connectors.sql.circuit_breaker import Unreachable

_GONE = re.compile(r"08|57P0|53300")
"""SQLSTATEs of a server that is not available: connection, shutdown, start, too many clients."""
_TRANSIENT = re.compile(r"53|57014|40001|40P01|55P03|25006|XX")
"""Other transient SQLSTATEs: resources, time-outs, serialization, failover."""
_TIMED_OUT = frozenset({"57014", "55P03"})
"""``statement_timeout`` and ``lock_timeout``, which Headrace sets."""
_SETTINGS = re.compile(r"28|3D")
"""SQLSTATEs of a wrong user, password or database."""
_REFUSED_LOGIN = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist|database .* does not exist"
    r"|no pg_hba\.conf entry|permission denied for database|could not translate host name"
)
_REFUSED_TLS = re.compile(r"SSL|certificate")
_CUT = re.compile(
    r"SSL SYSCALL error|SSL connection has been closed|unexpected eof while reading"
    r"|consuming input failed|sending query|could not (receive data from|send data to) server"
)
"""A connection that broke: libpq also reports it as a TLS error, although the settings are correct."""
_CORRECT = "correct reselect.database.* (user, password, dbname, hostname, port, TLS) and send the configuration again"


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raise Headrace's errors instead of the driver's. ``where`` names the database in the message."""
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise TimedOut(f"{where}: no connection became free in time; see reselect.database.pool.max.size") from error
    except (psycopg_pool.PoolClosed, psycopg.InterfaceError) as error:
        raise Retriable(f"{where}: the connection is closed") from error
    except psycopg.Error as error:
        raise _translate(error, where) from error


def _translate(error: psycopg.Error, where: str) -> HeadraceError:
    state, message = error.sqlstate, _message(error)
    if state is None and isinstance(error, psycopg.OperationalError):
        if _REFUSED_LOGIN.search(message) or (_REFUSED_TLS.search(message) and not _CUT.search(message)):
            return ConfigError(f"{where} refuses the connection: {message}; {_CORRECT}", "reselect.database.user")
        return Unreachable(f"{where} cannot be reached: {message}")
    if state is not None and _SETTINGS.match(state):
        return ConfigError(f"{where} refuses the connection: {message}; {_CORRECT}", "reselect.database.user")
    if state is not None and _GONE.match(state):
        return Unreachable(f"{where} cannot be reached ({state}): {message}")
    if state is not None and _TRANSIENT.match(state):
        error_class = TimedOut if state in _TIMED_OUT else Retriable
        return error_class(f"{where} failed for now ({state}): {message}")
    return Fatal(f"{where} refuses the query ({state}): {message}")


def _message(error: psycopg.Error) -> str:
    """The server's primary message, because details may contain values of cells; without one, libpq's message.

    libpq writes the cause of a failed connection and hints to different lines, and repeats them with and without TLS.
    """
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = (line.strip(" \t-") for line in str(error).splitlines())
    return " ".join(dict.fromkeys(filter(None, lines))) or type(error).__name__
