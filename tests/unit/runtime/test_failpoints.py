"""Tests of failpoints, which have no effect unless the environment names them."""

import threading
from pathlib import Path

import pytest

from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.failpoints import Failpoints
from headrace_dev.server import wait_until


def test_nothing_happens_at_a_point_that_is_not_named() -> None:
    """A failpoint that the environment does not name has no effect."""
    Failpoints({}).reach("after-ledger")
    Failpoints({"HEADRACE_FAILPOINTS": "after-table-commit=error:Fatal"}).reach("after-ledger")


def test_hold_leaves_a_marker_and_blocks(tmp_path: Path) -> None:
    """The action ``hold`` creates a marker file and blocks the thread at the failpoint until the file is removed."""
    points = Failpoints({"HEADRACE_FAILPOINTS": "after-ledger=hold:2", "HEADRACE_FAILPOINTS_DIR": str(tmp_path)})
    points.reach("after-ledger")
    assert not (tmp_path / "after-ledger").exists()
    held = threading.Thread(target=points.reach, args=("after-ledger",), daemon=True)
    held.start()
    wait_until((tmp_path / "after-ledger").exists, "the marker")
    held.join(0.2)
    assert held.is_alive()
    (tmp_path / "after-ledger").unlink()
    held.join(10)
    assert not held.is_alive()


def test_error_is_raised_as_often_as_configured() -> None:
    """A failpoint raises an error with a count that often, and an error without a count always."""
    points = Failpoints({"HEADRACE_FAILPOINTS": "a=error:Retriable:1, b=error:Retriable"})
    with pytest.raises(Retriable):
        points.reach("a")
    points.reach("a")
    for _ in range(3):
        with pytest.raises(Retriable):
            points.reach("b")


@pytest.mark.parametrize("text", ["a", "a=explode", "a=error", "a=error:NoSuch", "a=hold:x"])
def test_a_wrong_action_is_refused(text: str) -> None:
    """An unknown or incomplete action is refused, so that no crash test passes without its crash."""
    with pytest.raises(ConfigError):
        Failpoints({"HEADRACE_FAILPOINTS": text})
