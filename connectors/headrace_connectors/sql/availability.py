"""Whether a source database may be queried: a circuit breaker for a server, and the logins that it refuses.

The circuit breaker (``reselect.md`` section 7.4) sends no queries to a server that does not answer.

    CLOSED --failures--> OPEN --wait over--> HALF_OPEN --success--> CLOSED
                           ^-----------failure----'

While it is open, callers get ``Unreachable`` at once, and rows are handled as in section 4.4. Only ``Unreachable``
counts as a failure: a refused statement, or a transaction that is not visible yet, is an answer.

A password is changed at the database and in the config provider one after the other. Between both, the database refuses
a login that was right. A certificate expires and is renewed. Both are no reason to stop the task. But a task that
repeats a wrong password locks the account in some databases, so the same password is not sent again at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum

from headrace.core.model.errors import ConfigError, Retriable

log = logging.getLogger(__name__)


class Unreachable(Retriable):
    """The database did not answer: no connection, or one that was lost."""


CHECK_SERVER = "check that the server is up, and reselect.database.hostname and reselect.database.port"
"""What to do about a server that accepts no connection."""


class CircuitState(StrEnum):
    """The state, which decides about the next call."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Outcome(StrEnum):
    """The outcome of a call, or the end of the wait."""

    SUCCESS = "success"
    FAILURES = "failures"
    WAITED = "waited"


TRANSITIONS: dict[tuple[CircuitState, Outcome], CircuitState] = {
    (CircuitState.CLOSED, Outcome.FAILURES): CircuitState.OPEN,
    (CircuitState.OPEN, Outcome.WAITED): CircuitState.HALF_OPEN,
    (CircuitState.OPEN, Outcome.SUCCESS): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Outcome.SUCCESS): CircuitState.CLOSED,
    (CircuitState.HALF_OPEN, Outcome.FAILURES): CircuitState.OPEN,
}
"""Other combinations keep the state. A call that began before the breaker opened may still succeed."""


class CircuitBreaker:
    """Opens for ``seconds`` after ``failures`` consecutive failed calls; then one call may try. Thread-safe."""

    def __init__(
        self, where: str, failures: int = 5, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._where = where
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._state = CircuitState.CLOSED
        self._failures = 0
        self._until = 0.0

    @property
    def state(self) -> CircuitState:
        return self._state

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Count the result of a call in the block. Raises Unreachable without entering it while the breaker is open."""
        with self._lock:
            if self._state is CircuitState.OPEN and self._clock() >= self._until:
                self._move(Outcome.WAITED)
            elif self._state is not CircuitState.CLOSED:
                raise Unreachable(
                    f"{self._where} did not answer {self._failures} times; the next attempt follows after a pause"
                )
        try:
            yield
        except Unreachable:
            with self._lock:
                self._failures += 1
                self._until = self._clock() + self._seconds
                if self._failures >= self._limit or self.state is CircuitState.HALF_OPEN:
                    self._move(Outcome.FAILURES)
            raise
        except BaseException:
            self._count_success()
            raise
        self._count_success()

    def _count_success(self) -> None:
        with self._lock:
            self._failures = 0
            self._move(Outcome.SUCCESS)

    def _move(self, outcome: Outcome) -> None:
        before, self._state = self._state, TRANSITIONS.get((self._state, outcome), self._state)
        if before is not self._state and self._state is CircuitState.OPEN:
            log.warning("%s: does not answer; no queries for %g s", self._where, self._seconds)
        elif before is not self._state and self._state is CircuitState.CLOSED:
            log.info("%s: answers again", self._where)


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

        Raises the error of the last refusal while the password is still the refused one, so that it is not sent again;
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

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Register a refusal that the block raises (``refuse``)."""
        try:
            yield
        except RefusedConnection as error:
            self.refuse(error)
            raise

    def accept(self) -> None:
        with self._lock:
            self._accepted, self._refused = True, None

    def refuse(self, error: RefusedConnection) -> None:
        """Register a refusal. Raises Retriable if an earlier connection was accepted, because its cause may pass."""
        with self._lock:
            if isinstance(error, RefusedLogin) and (self._refused is None or self._refused[2] is not error):
                self._refused = (self._sent, self._clock() + REPEAT_SECONDS, error)
            accepted = self._accepted
        if accepted:
            raise Retriable(
                f"{error}. Earlier connections were accepted; the next attempt uses the present password and files"
            ) from error
