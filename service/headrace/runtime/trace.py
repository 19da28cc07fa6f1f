"""Render errors as traces in the format that Kafka Connect's consoles parse (``connect.md`` section 3).

Redpanda's console shows the first line that starts with ``Caused by``, else the first that does not end in ``)``. So
the format is ``module.Class: message``, then ``<tab>at function(file:line)``, innermost first, then the cause.

The message of a third-party library may contain the value of a cell (``invalid input syntax for type integer: "…"``),
and everyone with access to the REST port can read a status. A trace therefore contains only the messages of Headrace
and of the operating system. Connectors put what an operator needs into their own messages.
"""

from __future__ import annotations

import traceback
from pathlib import Path

from headrace.core.model.errors import HeadraceError

_SAFE_MESSAGES = (HeadraceError, OSError, AttributeError, ImportError, NameError, NotImplementedError)
_MAX_CAUSES = 10


def render(error: BaseException) -> str:
    blocks: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(blocks) < _MAX_CAUSES:
        frames = reversed(traceback.extract_tb(cause.__traceback__))
        lines = [f"\tat {frame.name}({Path(frame.filename).name}:{frame.lineno})" for frame in frames]
        blocks.append("\n".join([_headline(cause), *lines]))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "\nCaused by: ".join(blocks) + "\n"


def summary(error: BaseException) -> str:
    """Return ``module.Class: message`` in one line, for the log."""
    return _headline(error).replace("\n", " ")


def _headline(error: BaseException) -> str:
    cls = type(error)
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    if isinstance(error, _SAFE_MESSAGES) and str(error):
        return f"{name}: {error}"
    return name
