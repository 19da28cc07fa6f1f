"""Named places where a test can hold or break the worker: a kill at each proves that no step loses or doubles a row.

Inert unless the environment variable ``HEADRACE_FAILPOINTS`` names them, as comma-separated ``name=action``:

- ``hold``: write the marker file ``$HEADRACE_FAILPOINTS_DIR/<name>`` and wait for ever, for a test that then kills us;
- ``hold:3``: the same at the third time; the first two pass;
- ``error:Retriable``: raise that class of ``headrace.core.model.errors``, every time;
- ``error:Retriable:2``: raise it twice, then pass.
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


@dataclass(slots=True)
class _Failpoint:
    action: str
    error: type[errors.HeadraceError] | None
    count: int
    seen: int = 0


class Failpoints:
    """The failpoints of one process, as its environment names them. Raises ConfigError when a name has no action."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        text = environment.get("HEADRACE_FAILPOINTS", "")
        self._folder = Path(environment.get("HEADRACE_FAILPOINTS_DIR", "."))
        self._points = dict(_parsed(item.strip()) for item in text.split(",") if item.strip())
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """Do what is asked for ``name``: nothing, as a rule. Blocks the calling thread for ever on ``hold``."""
        point = self._points.get(name)
        if point is None:
            return
        with self._lock:
            point.seen += 1
        if point.action == "hold" and point.seen == point.count:
            self._hold(name)
        if point.error is not None and (point.count == 0 or point.seen <= point.count):
            raise point.error(f"failpoint {name}")

    def _hold(self, name: str) -> None:
        (self._folder / name).touch()
        threading.Event().wait()


def _parsed(item: str) -> tuple[str, _Failpoint]:
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
    """Pass the failpoint ``name`` of this process."""
    _PROCESS.reach(name)
