"""Failpoints: inert by default, exact when named."""

import threading
from pathlib import Path

import pytest

from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.failpoints import Failpoints


def test_nothing_happens_at_a_point_that_is_not_named() -> None:
    """A worker in production passes every failpoint."""
    Failpoints({}).reach("after-ledger")
    Failpoints({"HEADRACE_FAILPOINTS": "after-table-commit=error:Fatal"}).reach("after-ledger")


def test_hold_leaves_a_marker_and_blocks(tmp_path: Path) -> None:
    """The marker tells the test that the worker stands exactly there."""
    points = Failpoints({"HEADRACE_FAILPOINTS": "after-ledger=hold:2", "HEADRACE_FAILPOINTS_DIR": str(tmp_path)})
    points.reach("after-ledger")
    assert not (tmp_path / "after-ledger").exists()
    held = threading.Thread(target=points.reach, args=("after-ledger",), daemon=True)
    held.start()
    held.join(0.2)
    assert held.is_alive()
    assert (tmp_path / "after-ledger").exists()


def test_error_is_raised_as_often_as_asked() -> None:
    """An error with a count passes afterwards; without one it stays."""
    points = Failpoints({"HEADRACE_FAILPOINTS": "a=error:Retriable:1, b=error:Retriable"})
    with pytest.raises(Retriable):
        points.reach("a")
    points.reach("a")
    for _ in range(3):
        with pytest.raises(Retriable):
            points.reach("b")


@pytest.mark.parametrize("text", ["a", "a=explode", "a=error", "a=error:NoSuch", "a=hold:x"])
def test_a_wrong_action_is_refused(text: str) -> None:
    """A typing error must not make a crash test pass by doing nothing."""
    with pytest.raises(ConfigError):
        Failpoints({"HEADRACE_FAILPOINTS": text})
