"""Oracle's errors are classified by their codes, in messages and in causes."""

from __future__ import annotations

import socket

import pytest
from fake_oracle.driver import error

from headrace.core.model.errors import Fatal, HeadraceError, Retriable
from headrace_connectors.sql.availability import RefusedConnection, RefusedLogin, Unreachable
from headrace_connectors.sql.oracle_errors import connection_lost, error_codes, translate_errors


def translation(raised: BaseException) -> HeadraceError:
    with pytest.raises(HeadraceError) as found, translate_errors("db"):
        raise raised
    return found.value


def test_codes_are_found_in_causes() -> None:
    """Codes are read from the complete chain of causes, because errors of large objects are wrapped."""
    wrapped = ValueError("reading a large object failed")
    wrapped.__cause__ = RuntimeError("a call failed")
    wrapped.__cause__.__cause__ = error("ORA-01555: snapshot too old")
    assert error_codes(wrapped) == ("ORA-01555",)


def test_codes_are_found_in_messages() -> None:
    """The code of a parallel server's error is read from the message of ORA-12801."""
    assert "ORA-01555" in error_codes(error("ORA-12801: error in P001\nORA-01555: snapshot too old"))


def test_driver_code_around_the_servers_is_a_lost_connection() -> None:
    """DPY-4011, which python-oracledb raises for ORA-03113, is a lost connection; both codes are read."""
    lost = error("ORA-03113: end-of-file on communication channel")
    assert error_codes(lost)[:2] == ("DPY-4011", "ORA-03113")
    assert connection_lost(lost)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ORA-03114: not connected to ORACLE", Unreachable),
        ("ORA-12514: listener does not know the service", Unreachable),
        ("DPY-4005: timed out waiting for the connection pool", Retriable),
        ("DPY-4024: call timeout exceeded", Retriable),
        ("ORA-00054: resource busy", Retriable),
        ("ORA-01017: invalid username/password", RefusedLogin),
        ("ORA-28000: the account is locked", RefusedConnection),
        ("DPY-6005: cannot connect\n[SSL: CERTIFICATE_VERIFY_FAILED]", RefusedConnection),
        ("ORA-00942: table or view does not exist", Fatal),
        ("ORA-01722: unable to convert string value containing 'secret'", Fatal),
    ],
)
def test_error_classes(message: str, kind: type[HeadraceError]) -> None:
    """The code selects the class (``reselect.md`` section 4.4); messages omit values that the server quotes."""
    found = translation(error(message))
    assert type(found) is kind
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    "problem",
    [ConnectionResetError(104, "Connection reset by peer"), socket.gaierror(-2, "Name or service not known")],
)
def test_socket_errors_are_unreachable(problem: OSError) -> None:
    """A connection that is reset during a call, or a host name that does not resolve, becomes Unreachable."""
    assert type(translation(problem)) is Unreachable
