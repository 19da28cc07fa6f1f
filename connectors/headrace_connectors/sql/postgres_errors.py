"""psycopg's errors as Headrace's (``reselect.md`` section 4.4): transient, wrong settings, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import psycopg
import psycopg_pool

from headrace.core.model.errors import Fatal, HeadraceError, Retriable, TimedOut
from headrace_connectors.sql.circuit_breaker import CHECK_SERVER, Unreachable
from headrace_connectors.sql.refused_logins import RefusedConnection, RefusedLogin

_GONE = re.compile(r"08|57P0|53300")
"""SQLSTATEs of a server that is not available: connection, shutdown, start, too many clients."""
_TRANSIENT = re.compile(r"53|57014|40001|40P01|55P03|25006|XX")
"""Other transient SQLSTATEs: resources, time-outs, serialization, failover."""
_REFUSED_LOGIN = "28P01"
_TIMED_OUT = frozenset({"57014", "55P03"})
"""``statement_timeout`` and ``lock_timeout``, which Headrace sets."""
_SETTINGS = re.compile(r"28|3D")
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
def translated(where: str, certificate_problem: Callable[[], str] = str) -> Iterator[None]:
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
    state, message = error.sqlstate, _message(error)
    if state is None and isinstance(error, psycopg.OperationalError):
        if _UNVERIFIED in message and (problem := certificate_problem()):
            message = message.replace(_UNVERIFIED, f"{_UNVERIFIED}: {problem}")
        return _refusal(where, message) or Unreachable(f"{where} cannot be reached: {message}; {CHECK_SERVER}")
    if state is not None and _SETTINGS.match(state):
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
    known = dict(_OF_SERVER) if _CUT.search(message) else {**_OF_SERVER, **_OF_TLS}
    for pattern, (option, remedy) in known.items():
        if re.search(pattern, message):
            error_class = RefusedLogin if _OF_LOGIN.search(message) else RefusedConnection
            text = f"{where} refuses the connection: {message}; {remedy} and send the configuration again"
            return error_class(text, f"reselect.database.{option}")
    return None


def _message(error: psycopg.Error) -> str:
    """The server's primary message, because details may contain values of cells; without one, libpq's message.

    libpq writes the cause of a failed connection and hints to different lines, and repeats them with and without TLS.
    """
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = (line.strip(" \t-") for line in str(error).splitlines())
    return " ".join(dict.fromkeys(filter(None, lines))) or type(error).__name__
