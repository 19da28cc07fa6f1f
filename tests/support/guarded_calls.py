"""Fails each request to Spark's JVM that the lakehouse makes outside of ``TableSession.calling``.

The JVM may end at any moment. Only inside of ``calling`` is the error one that a table repeats; any other fails the
table until somebody restarts it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import headrace_connectors.lakehouse as lakehouse
from headrace_connectors.lakehouse.spark_engine import SparkEngine

_PACKAGE = Path(lakehouse.__file__).parent
_OTHERWISE_GUARDED = (
    "spark_engine.py",  # starts the JVM, and observes it
    "spark_jvm.py",
    "failures.py",  # reads the trace of an exception, and is prepared for its end
)
_READER = "direct_table.py", "read"
"""PyArrow reads in threads of its own, while the thread that waits for them is inside of ``calling``."""
_REMOVAL = "m\nd\n"
"""The command by which py4j's finalizers remove a Java object. They ignore errors."""


@contextmanager
def guarded_calls() -> Iterator[None]:
    """Raise AssertionError in the block for such a request, in the line that makes it."""
    from py4j.java_gateway import GatewayClient  # late: tests without Spark import this module too

    inside = threading.local()
    statement, send = SparkEngine.statement, GatewayClient.send_command

    @contextmanager
    def observed(self: SparkEngine, table: str, session: Any) -> Iterator[None]:
        inside.depth = getattr(inside, "depth", 0) + 1
        try:
            with statement(self, table, session):
                yield
        finally:
            inside.depth -= 1

    def checked(self: Any, command: str, *arguments: Any, **options: Any) -> Any:
        if not getattr(inside, "depth", 0) and not command.startswith(_REMOVAL):
            _refuse_unguarded()
        return send(self, command, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkEngine, "statement", observed)
        patch.setattr(GatewayClient, "send_command", checked)
        yield


def _refuse_unguarded() -> None:
    """Raise AssertionError if the nearest function of the project on the stack is one of the lakehouse."""
    frame = sys._getframe(2)
    while frame is not None:
        file, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        if file.is_relative_to(_PACKAGE):
            known = file.name in _OTHERWISE_GUARDED or (file.name, function) == _READER
            assert known, f"{file.name}:{frame.f_lineno}: {function} calls Spark's JVM outside of TableSession.calling"
            return
        if "/tests/" in str(file):
            return
        frame = frame.f_back
