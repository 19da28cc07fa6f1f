"""Refuse each request to Spark's JVM that the lakehouse makes outside of ``TableSession.calling``.

The JVM may end at any moment. A batch is repeated only after an error that ``calling`` has translated. Any other error
fails the table until an operator restarts it.
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
_EXEMPT_FILES = (
    "spark_engine.py",  # starts the JVM, and observes it
    "spark_jvm.py",
    "failures.py",  # reads the trace of an exception, and is prepared for its end
)
_EXEMPT_FUNCTION = "direct_table.py", "read"
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
    def count_statement(self: SparkEngine, table: str, session: Any) -> Iterator[None]:
        inside.depth = getattr(inside, "depth", 0) + 1
        try:
            with statement(self, table, session):
                yield
        finally:
            inside.depth -= 1

    def check_and_send(self: Any, command: str, *arguments: Any, **options: Any) -> Any:
        if not getattr(inside, "depth", 0) and not command.startswith(_REMOVAL):
            _refuse_unguarded()
        return send(self, command, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkEngine, "statement", count_statement)
        patch.setattr(GatewayClient, "send_command", check_and_send)
        yield


def _refuse_unguarded() -> None:
    """Raise AssertionError if the nearest function of the project on the stack is one of the lakehouse."""
    frame = sys._getframe(2)
    while frame is not None:
        file, function = Path(frame.f_code.co_filename), frame.f_code.co_name
        if file.is_relative_to(_PACKAGE):
            is_exempt = file.name in _EXEMPT_FILES or (file.name, function) == _EXEMPT_FUNCTION
            assert is_exempt, (
                f"{file.name}:{frame.f_lineno}: {function} calls Spark's JVM outside of TableSession.calling"
            )
            return
        if "/tests/" in str(file):
            return
        frame = frame.f_back
