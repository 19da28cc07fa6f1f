"""Errors of psycopg are classified as retriable or as errors of the configuration."""

from __future__ import annotations

import psycopg
import pytest

from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, Retriable, TimedOut
from headrace_connectors.sql.availability import RefusedConnection, RefusedLogin, Unreachable
from headrace_connectors.sql.postgres_server import translate_errors

_AT = 'connection failed: connection to server at "10.0.0.1", port 5432 failed: '

CUT = [
    "consuming input failed: SSL SYSCALL error: EOF detected",
    "consuming input failed: SSL SYSCALL error: Connection reset by peer",
    "consuming input failed: SSL connection has been closed unexpectedly",
    "consuming input failed: SSL error: unexpected eof while reading",
    "consuming input failed: server closed the connection unexpectedly",
    "sending query failed: SSL connection has been closed unexpectedly",
    _AT + "SSL SYSCALL error: EOF detected",
    _AT + "could not receive data from server: Connection reset by peer",
    _AT + "Connection refused",
    "failed to resolve host 'pg': [Errno -3] Temporary failure in name resolution",
]
REFUSED = [
    _AT + "SSL error: certificate verify failed",
    _AT + "server does not support SSL, but SSL was required",
    _AT + 'root certificate file "/certs/ca.pem" does not exist',
    _AT + 'FATAL:  no pg_hba.conf entry for host "10.0.0.2", user "u", database "d", SSL off',
    _AT + 'SSL SYSCALL error: EOF detected\nFATAL:  password authentication failed for user "u"',
    _AT + 'FATAL:  role "u" does not exist',
]
STATES: list[tuple[type[psycopg.Error], type[HeadraceError]]] = [
    (psycopg.errors.AdminShutdown, Unreachable),
    (psycopg.errors.QueryCanceled, TimedOut),
    (psycopg.errors.LockNotAvailable, TimedOut),
    (psycopg.errors.SerializationFailure, Retriable),
    (psycopg.errors.InvalidPassword, RefusedLogin),
    (psycopg.errors.InvalidCatalogName, RefusedConnection),
    (psycopg.errors.InsufficientPrivilege, Fatal),
]


@pytest.mark.parametrize("message", CUT)
def test_a_broken_connection_is_unreachable(message: str) -> None:
    """A connection that breaks raises Unreachable, also if the message mentions TLS."""
    assert type(_raised(psycopg.OperationalError(message))) is Unreachable


def test_the_error_of_a_server_that_does_not_answer_names_the_options_of_its_address() -> None:
    """A wrong host or port raises Unreachable as a server that is down does, so the message names all of them."""
    error = _raised(psycopg.OperationalError(_AT + "Connection refused"))
    assert str(error).endswith("check that the server is up, and reselect.database.hostname and reselect.database.port")


@pytest.mark.parametrize("message", REFUSED)
def test_a_refused_login_is_a_config_error(message: str) -> None:
    """A refused password, certificate or role raises ConfigError, because a retry cannot succeed."""
    assert isinstance(_raised(psycopg.OperationalError(message)), ConfigError)


@pytest.mark.parametrize(("error", "expected"), STATES)
def test_errors_are_classified_by_sqlstate(error: type[psycopg.Error], expected: type[HeadraceError]) -> None:
    """An error with a SQLSTATE is classified by it and not by its message."""
    assert type(_raised(error("SSL"))) is expected


def _raised(error: psycopg.Error) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised, translate_errors("shop"):
        raise error
    return raised.value
