"""Tests of stack traces in the Java format, without data in them."""

from __future__ import annotations

from headrace.core.model.errors import Fatal
from headrace.runtime.trace import render, summary


def _raised() -> Fatal:
    try:
        try:
            raise ValueError("invalid input: 'a customer name'")
        except ValueError as error:
            raise Fatal("orders-0 at offset 7 cannot be applied") from error
    except Fatal as error:
        return error


def test_the_format_is_that_of_java() -> None:
    """A trace has the exception, its frames after a tab, and its causes."""
    lines = render(_raised()).splitlines()
    assert lines[0] == "headrace.core.model.errors.Fatal: orders-0 at offset 7 cannot be applied"
    assert lines[1].startswith("\tat _raised(test_trace.py:")
    assert "Caused by: ValueError" in lines


def test_messages_of_library_errors_are_not_shown() -> None:
    """A trace omits the message of a library's exception, because it can contain the value of a cell."""
    assert "customer" not in render(_raised())


def test_the_summary_is_one_line() -> None:
    """The summary replaces line ends, so that the log has one line."""
    assert summary(Fatal("a\nb")) == "headrace.core.model.errors.Fatal: a b"


def test_a_cycle_of_causes_ends() -> None:
    """A trace of exceptions that are the causes of each other is limited."""
    first, second = Fatal("first"), Fatal("second")
    first.__cause__, second.__cause__ = second, first
    assert render(first).count("Caused by") == 9
