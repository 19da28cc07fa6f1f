"""Refused logins: what is raised, and when the same password is sent again."""

from __future__ import annotations

import pytest

from headrace.core.model.errors import Retriable
from headrace_connectors.sql.refused_logins import REPEAT_SECONDS, Login, RefusedLogin


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
    login.refused(refusal)
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
    login.refused(RefusedLogin("wrong"))
    login.accepted()
    with pytest.raises(Retriable, match="Earlier connections were accepted"):
        login.refused(RefusedLogin("wrong"))


def test_accepted_login_ends_the_refusal() -> None:
    """After an accepted login the password is sent again."""
    login = Login(Source().read)
    login.password()
    login.refused(RefusedLogin("wrong"))
    login.accepted()
    assert login.password() == "first"
