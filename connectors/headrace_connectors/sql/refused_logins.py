"""Connections that a database refuses, and what follows from it after connections have worked before.

A password is changed at the database and in the config provider one after the other. Between both, the database refuses
a login that was right. A certificate expires and is renewed. Both are no reason to stop the task. But a task that
repeats a wrong password locks the account in some databases, so the same password is not sent again at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from headrace.core.model.errors import ConfigError, Retriable

REPEAT_SECONDS = 60.0
"""Time after which a refused password is sent again: an account may have been unlocked, a role created."""


class RefusedConnection(ConfigError):
    """The database or its TLS refuses the connection; the message names the cause."""


class RefusedLogin(RefusedConnection):
    """The database refuses user and password."""


class Login:
    """The logins of one server's connections. Thread-safe."""

    def __init__(self, password: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = password
        self._clock = clock
        self._lock = threading.Lock()
        self._accepted = False
        self._refused: tuple[str, float, RefusedLogin] | None = None
        self._sent = ""

    def password(self) -> str:
        """Return the password for a new connection.

        Raises the error of the last refusal while the password is still the refused one, without asking the database;
        and what reading the password raises.
        """
        password = self._read()
        with self._lock:
            if self._refused is not None:
                refused, until, error = self._refused
                if password == refused and self._clock() < until:
                    raise error
            self._sent = password
        return password

    def accepted(self) -> None:
        """Register a connection that the database has accepted."""
        with self._lock:
            self._accepted, self._refused = True, None

    def refused(self, error: RefusedConnection) -> None:
        """Register a refusal. Raises Retriable if an earlier connection was accepted, because its cause may pass."""
        with self._lock:
            if isinstance(error, RefusedLogin) and (self._refused is None or self._refused[2] is not error):
                self._refused = (self._sent, self._clock() + REPEAT_SECONDS, error)
            accepted = self._accepted
        if accepted:
            raise Retriable(
                f"{error}. Earlier connections were accepted; the next attempt uses the present password and files"
            ) from error
