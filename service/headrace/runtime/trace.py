"""Errors as the traces that Kafka Connect's consoles know how to read (``connect.md`` section 3).

Redpanda's console shows the first line that starts with ``Caused by``, else the first that does not end in ``)``: so
the shape is ``module.Class: message``, then ``<tab>at function(file:line)``, innermost first, then its cause.

A foreign library's message may quote a cell (``invalid input syntax for type integer: "…"``), and a status is readable
by everybody who reaches the REST port. So only messages of ours and of the operating system are shown; edges put what
an operator needs into their own message when they translate.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from headrace.core.model.errors import HeadraceError

_TELLING = (HeadraceError, OSError, AttributeError, ImportError, NameError, NotImplementedError)
_MAX_CAUSES = 10


def render(error: BaseException) -> str:
    """The trace of ``error`` and its causes."""
    return "\nCaused by: ".join(_block(each) for each in _chain(error)) + "\n"


def summary(error: BaseException) -> str:
    """``module.Class: message`` in one line, for the log."""
    return _headline(error).replace("\n", " ")


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None:
            return
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _block(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    lines = [f"\tat {frame.name}({Path(frame.filename).name}:{frame.lineno})" for frame in frames]
    return "\n".join([_headline(error), *lines])


def _headline(error: BaseException) -> str:
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(error, _TELLING) and str(error):
        return f"{name}: {error}"
    return name
