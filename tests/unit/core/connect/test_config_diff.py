"""The difference of two configurations as text."""

from __future__ import annotations

import pytest

from headrace.core.connect.config_diff import diff_lines


def test_changed_added_and_removed_keys() -> None:
    """Equal keys are omitted, the others are sorted."""
    lines = diff_lines({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "d": "5"}, lambda _: False)
    assert lines == ["- b = 2", "+ b = 4", "- c = 3", "+ d = 5"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("secret", "[hidden]"),
        ("${file:/etc/db:password}", "${file:/etc/db:password}"),
        ("x${file:/etc/db:password}", "[hidden]"),
        ("${novalue}", "[hidden]"),
    ],
)
def test_a_hidden_value(value: str, shown: str) -> None:
    """Only a reference to a config provider is shown."""
    assert diff_lines({}, {"k": value}, lambda _: True) == [f"+ k = {shown}"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://user:pass@host/x,http://a:b@c", "http://[hidden]@host/x,http://[hidden]@c"),
        ("a\nb\\", "a\\nb\\\\"),
        ("x" * 600, f"{'x' * 500}… (600 characters)"),
    ],
)
def test_a_value_that_is_shown(value: str, shown: str) -> None:
    """Credentials in URLs are hidden, a value is one line, and a long one is cut."""
    assert diff_lines({}, {"k": value}, lambda _: False) == [f"+ k = {shown}"]
