"""The circuit breaker stops queries to a database that does not respond."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest
from support.clock import Clock

from headrace.core.model.errors import Fatal, Retriable
from headrace_connectors.sql.availability import (
    REPEAT_SECONDS,
    CircuitBreaker,
    CircuitState,
    Login,
    RefusedLogin,
    Unreachable,
)


@pytest.fixture
def clock() -> Clock:
    """Return a clock at zero."""
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    """Return a breaker that opens after two failures, for ten seconds."""
    return CircuitBreaker("the database", failures=2, seconds=10, clock=clock)


def call(breaker: CircuitBreaker, error: Exception | None = None) -> bool:
    """Return whether the breaker permitted the call; the call raises ``error``."""
    made = False
    with suppress(Unreachable if error is None else type(error)), breaker.guard():
        made = True
        if error is not None:
            raise error
    return made


def test_opens_after_failures_in_a_row(breaker: CircuitBreaker) -> None:
    """The breaker opens after consecutive failures; a success resets their count."""
    gone = Unreachable("gone")
    for error in (gone, None, gone):
        assert call(breaker, error)
    assert breaker.state is CircuitState.CLOSED
    assert call(breaker, gone)
    assert breaker.state is CircuitState.OPEN
    assert not call(breaker)


def test_one_call_tries_after_the_wait(breaker: CircuitBreaker, clock: Clock) -> None:
    """After the wait the breaker permits one call at a time and closes if the call succeeds."""
    for _ in range(2):
        call(breaker, Unreachable("gone"))
    clock.now = 10.0
    with breaker.guard():
        assert breaker.state is CircuitState.HALF_OPEN
        assert not call(breaker)
    assert breaker.state is CircuitState.CLOSED


def test_state_changes_are_logged(breaker: CircuitBreaker, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """The breaker logs that it opens and that it closes, but not each rejected call."""
    with caplog.at_level(logging.INFO):
        for _ in range(4):
            call(breaker, Unreachable("gone"))
        clock.now = 10.0
        call(breaker)
        call(breaker)
    assert [record.getMessage() for record in caplog.records] == [
        "the database: does not answer; no queries for 10 s",
        "the database: answers again",
    ]


def test_failed_trial_opens_again(breaker: CircuitBreaker, clock: Clock) -> None:
    """A failed trial call opens the breaker again for the full wait."""
    for _ in range(2):
        call(breaker, Unreachable("gone"))
    clock.now = 10.0
    assert call(breaker, Unreachable("gone"))
    assert breaker.state is CircuitState.OPEN
    clock.now = 19.9
    assert not call(breaker)


@pytest.mark.parametrize("answer", [Retriable("not visible yet"), Fatal("refused"), KeyError()])
def test_an_answer_is_no_failure(breaker: CircuitBreaker, answer: Exception) -> None:
    """An error that the database returns does not count as a failure, because the database has responded."""
    for _ in range(5):
        assert call(breaker, answer)
    assert breaker.state is CircuitState.CLOSED


class Source:
    """A password that changes, and a clock."""

    value = "first"
    now = 0.0

    def read(self) -> str:
        """Return the present password."""
        return self.value

    def time(self) -> float:
        """Return the present time."""
        return self.now


def test_refused_password_is_not_sent_again_until_it_changes() -> None:
    """A repeated wrong password would lock the account: the last refusal is raised instead, for a minute."""
    source = Source()
    login = Login(source.read, source.time)
    assert login.password() == "first"
    refusal = RefusedLogin("wrong")
    login.refuse(refusal)
    with pytest.raises(RefusedLogin) as caught:
        login.password()
    assert caught.value is refusal
    source.value = "second"
    assert login.password() == "second"
    source.value, source.now = "first", REPEAT_SECONDS + 1
    assert login.password() == "first"


def test_refusal_after_an_accepted_login_is_retriable() -> None:
    """A login that has worked is refused while its password is being changed; an initial refusal is permanent."""
    login = Login(Source().read)
    login.password()
    login.refuse(RefusedLogin("wrong"))
    login.accept()
    with pytest.raises(Retriable, match="Earlier connections were accepted"):
        login.refuse(RefusedLogin("wrong"))


def test_accepted_login_ends_the_refusal() -> None:
    """After an accepted login the password is sent again."""
    login = Login(Source().read)
    login.password()
    login.refuse(RefusedLogin("wrong"))
    login.accept()
    assert login.password() == "first"
