"""Java's regular expressions in Python's spelling."""

import re

import pytest

from headrace.core.connect.config_def import InvalidValue, regex
from headrace.core.connect.java_patterns import OnlyJava, python_pattern


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"(?<db>[^.]+)\.(?<table>.*)", r"(?P<db>[^.]+)\.(?P<table>.*)"),
        (r"(?<!a)b(?<=b)(?:c)", r"(?<!a)b(?<=b)(?:c)"),
        (r"\(?<a>", r"\(?<a>"),
        (r"[(?<a]\[?", r"[(?<a]\[?"),
        (r"[]a][^]b]", r"[]a][^]b]"),
        (r"[\[a]x[b]", r"[\[a]x[b]"),
        (r"a&&b", r"a&&b"),
        (r"\\Qa", r"\\Qa"),
        (r"[\\Q]", r"[\\Q]"),
    ],
)
def test_common_syntax_keeps_its_meaning(pattern: str, expected: str) -> None:
    """The translation changes named groups only, and not inside an escape or a set."""
    assert python_pattern(pattern) == expected
    re.compile(expected)
    regex("topics.regex", pattern)


@pytest.mark.parametrize(
    "pattern",
    [r"\Qa.b\E", r"\p{L}", r"[\P{L}]", r"\0141", r"\v", "[a[bc]]", "[^a[b]]", "[[:alpha:]]", "[a-z&&[^b]]", "[a&&b]"],
)
def test_syntax_of_java_alone_is_refused(pattern: str) -> None:
    """Python's ``re`` refuses some of these patterns, and reads the others as other characters."""
    with pytest.raises(OnlyJava):
        python_pattern(pattern)
    with pytest.raises(InvalidValue, match=r"^Invalid value .* for configuration topics\.regex: Invalid regex: only J"):
        regex("topics.regex", pattern)
