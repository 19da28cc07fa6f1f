"""Failpoints: named points at which a test stops or fails the worker, to prove that no step loses or duplicates a row.

A failpoint has no effect unless the environment variable ``HEADRACE_FAILPOINTS`` names it, as comma-separated
``name=action``:

- ``hold``: create the marker file ``$HEADRACE_FAILPOINTS_DIR/<name>`` and block until the test removes it, or kills the
  worker;
- ``hold:3``: the same at the third call, after two calls without effect;
- ``error:Retriable``: raise this class of ``headrace.core.model.errors`` at every call;
- ``error:Retriable:2``: raise it at the first two calls.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.core.model import errors

AFTER_LEDGER = "after-ledger"
AFTER_TABLE_COMMIT = "after-table-commit"
BEFORE_OFFSET_COMMIT = "before-offset-commit"
_LOOK_SECONDS = 0.05


@dataclass(slots=True)
class _Failpoint:
    action: str
    error: type[errors.HeadraceError] | None
    count: int
    seen: int = 0


class Failpoints:
    """The failpoints in the environment of a process. Raises ConfigError for a name without an action."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        text = environment.get("HEADRACE_FAILPOINTS", "")
        self._folder = Path(environment.get("HEADRACE_FAILPOINTS_DIR", "."))
        self._points = dict(_parse(item.strip()) for item in text.split(",") if item.strip())
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Run the action of ``name``, if it has one. ``hold`` blocks the calling thread while the marker exists."""
        point = self._points.get(name)
        if point is None:
            return
        with self._lock:
            point.seen += 1
        if point.action == "hold" and point.seen == point.count:
            marker = self._folder / name
            marker.touch()
            while marker.exists():
                threading.Event().wait(_LOOK_SECONDS)
        if point.error is not None and (point.count == 0 or point.seen <= point.count):
            raise point.error(f"failpoint {name}")


def _parse(item: str) -> tuple[str, _Failpoint]:
    name, _, what = item.partition("=")
    action, *rest = what.split(":")
    try:
        if action == "hold":
            return name, _Failpoint(action, None, int(rest[0]) if rest else 1)
        if action == "error":
            return name, _Failpoint(action, getattr(errors, rest[0]), int(rest[1]) if len(rest) > 1 else 0)
    except (IndexError, ValueError, AttributeError) as error:
        raise errors.ConfigError(f"failpoint {item!r} is not name=hold[:n] or name=error:Class[:n]") from error
    raise errors.ConfigError(f"failpoint {item!r} is not name=hold[:n] or name=error:Class[:n]")


_PROCESS = Failpoints(os.environ)


def reach(name: str) -> None:
    """Run the action of the failpoint ``name`` of this process, if it has one."""
    _PROCESS.reach(name)
