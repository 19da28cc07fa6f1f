"""python-oracledb's errors as Headrace's (``reselect.md`` sections 4.4 and 7.3): transient, wrong settings, or refused.

Codes are searched in the complete chain of causes, because the driver wraps the server's errors (DPY-4011 around
ORA-03113), and large objects fail while they are read. Messages contain codes and remedies, but not the server's text,
which may quote values (ORA-01438, ORA-01722 in release 23).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import oracledb

from headrace.core.model.errors import Fatal, HeadraceError, Retriable
from headrace_connectors.sql.availability import CHECK_SERVER, RefusedConnection, RefusedLogin, Unreachable

_CODE = re.compile(r"\b(?:ORA|DPY|DPI|TNS)-\d{4,5}\b")

UNDO_GONE = frozenset({"ORA-01555", "ORA-22924", "ORA-01466", "ORA-08180"})
"""The state as of an SCN cannot be read any more: undo or a large object's version was removed, or DDL came since."""
SCN_INVALID = "ORA-08181"
"""The server does not know the SCN: expired on a primary, not replayed yet on a standby (N3)."""

_LOST = re.compile(
    r"ORA-03113|ORA-03114|ORA-03135|ORA-12\d{3}|ORA-0103[34]|ORA-0108[39]|ORA-01090|ORA-0002[08]|ORA-00018"
    r"|ORA-01012|ORA-02396|ORA-25408|DPY-4011|DPY-1001|DPY-600[05]|DPY-6001"
)
"""No connection, or a lost one: close it and retry."""
_TRANSIENT = re.compile(
    r"DPY-4005|DPY-4024|ORA-01013|ORA-00054|ORA-04021|ORA-04020|ORA-00060|ORA-08103|ORA-0403[01]|ORA-01652|ORA-01555|ORA-22924"
)
"""Time-outs, a pool without free connections, locks, memory, an object during DDL, undo that was removed."""

REFUSED_LOGIN = "ORA-01017"
"""User or password is wrong."""
_SETTINGS: Mapping[str, str] = {
    REFUSED_LOGIN: "user or password is wrong",
    "ORA-01005": "the password is missing",
    "ORA-28000": "the account is locked",
    "ORA-28001": "the password has expired",
    "ORA-01045": "the user lacks CREATE SESSION",
    "ORA-28040": "the server refuses the driver's authentication protocol",
    "DPY-3001": "the server asks for native network encryption, which needs Oracle's client library; use TLS",
    "DPY-3010": "the server is older than Oracle 12.1",
    "DPY-3015": "the password has a verifier that only old clients support; set it again",
    "DPY-4000": "the connect string cannot be read",
    "DPY-4001": "user or password is missing",
    "DPY-6006": "the server's certificate has another name; use one that it contains in reselect.database.hostname, or "
    "reselect.database.sslmode=verify-ca",
}
"""Remedies of errors that only an operator can correct, by code."""
_REFUSED: Mapping[str, str] = {
    "ORA-00942": "the table does not exist, or the user has no SELECT on it",
    "ORA-00904": "a column does not exist any more",
    "ORA-01031": "the user lacks a privilege; GRANT SELECT, FLASHBACK on the table",
}
"""Errors that persist until the server's configuration is changed (section 4.4)."""
_UNVERIFIED = re.compile(r"certificate verify failed: ([^(\n]+)")
_TLS: Mapping[str, str] = {
    r"verify failed: certificate has expired": "the server's certificate has expired; renew it",
    r"certificate verify failed": "the server's certificate is not trusted ({cause}); the authority that signed it has "
    "to be in reselect.database.sslrootcert or in the wallet",
    r"alert certificate expired|CERTIFICATE_EXPIRED": "the client's certificate has expired; renew it "
    "(reselect.database.sslcert or the wallet)",
    r"alert unknown ca|ALERT_UNKNOWN_CA": "the server does not trust the authority of the client's certificate "
    "(reselect.database.sslcert or the wallet)",
    r"certificate required|CERTIFICATE_REQUIRED|handshake failure": "the server requires a client's certificate; set "
    "reselect.database.sslcert and sslkey, or the wallet",
    r"WRONG_VERSION_NUMBER|wrong version number": "the port has no TLS; use the listener's TCPS port",
    r"SSL|certificate": "the server's TLS does not fit reselect.database.ssl*",
}
"""Causes of a failed TLS handshake, by OpenSSL's message. The first entry that matches counts."""
_ENDED = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
_PERHAPS_REFUSED = (
    ": it ended the TLS connection after the handshake; if it requires a client's certificate, check "
    "reselect.database.sslcert or the wallet"
)
"""With TLS 1.3 a server refuses the client's certificate after the handshake, and the driver may miss its reason."""
_CORRECT = "correct reselect.database.* (user, password, dbname, hostname, port, TLS) and send the configuration again"


def error_codes(error: BaseException) -> tuple[str, ...]:
    """Return all codes in an error, its causes and their messages, the outermost first: ``ORA-01555``, ``DPY-4011``."""
    texts: list[str] = []
    for cause in _chain(error):
        for part in cause.args:
            code = getattr(part, "code", 0)
            texts.append(str(getattr(part, "full_code", "")))
            texts.append(f"ORA-{code:05d}" if isinstance(code, int) and code > 0 else "")
        texts.append(str(cause))
    return tuple(dict.fromkeys(code for text in texts for code in _CODE.findall(text)))


def connection_lost(error: BaseException) -> bool:
    """Return whether the connection and its statements must not be used again."""
    return any(_LOST.match(code) for code in error_codes(error))


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Raise Headrace's errors instead of the driver's. ``where`` names the database in the message."""
    try:
        yield
    except oracledb.Error as error:
        raise _translate(error, where) from error
    except OSError as error:
        raise Unreachable(
            f"{where} cannot be reached: {error.strerror or type(error).__name__}; {CHECK_SERVER}"
        ) from error


def _translate(error: BaseException, where: str) -> HeadraceError:
    codes = error_codes(error)
    shown = ", ".join(codes) or type(error).__name__
    settings = next((_SETTINGS[code] for code in codes if code in _SETTINGS), None)
    if settings is None and "DPY-6005" in codes:
        text = " ".join(map(str, _chain(error)))
        unverified = _UNVERIFIED.search(text)
        problem = next((problem for pattern, problem in _TLS.items() if re.search(pattern, text)), "")
        settings = problem.format(cause=unverified[1].strip() if unverified else "unknown") or None
    if settings is not None:
        refusal = RefusedLogin if REFUSED_LOGIN in codes else RefusedConnection
        return refusal(f"{where} refuses the connection ({shown}): {settings}; {_CORRECT}", "reselect.database.user")
    if any(_LOST.match(code) for code in codes):
        ended = any(isinstance(cause, _ENDED) for cause in _chain(error)) and "DPY-6005" in codes
        return Unreachable(f"{where} cannot be reached ({shown}){_PERHAPS_REFUSED if ended else ''}")
    recoverable = any(getattr(part, "isrecoverable", False) for cause in _chain(error) for part in cause.args)
    if recoverable or any(_TRANSIENT.match(code) for code in codes):
        return Retriable(f"{where} failed for now ({shown})")
    remedy = next((_REFUSED[code] for code in codes if code in _REFUSED), "see Oracle's documentation of the code")
    return Fatal(f"{where} refuses the query ({shown}): {remedy}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
