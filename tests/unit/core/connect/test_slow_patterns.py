"""Regular expressions that some text matches in exponential time are refused, and common ones are accepted."""

import re

import pytest

from headrace.core.connect.config_def import InvalidValue, regex
from headrace.core.connect.java_patterns import MAX_LENGTH, TooCostly, check_cost

REFUSED = (
    r"(a+)+$",
    r"(a*)*b",
    r"(a|ab|b)*c",
    r"(\w+\s?)*x",
    r"(.|\.)*x",
    r"(?i:(a|[A-C]d?)*)x",
    r"(([a-z])+.)+[A-Z]([a-z])+",
    r"((a?)?b)*",
    r"(a*|b*)*c",
    r"(.{0,10}){0,20}x",
    r"(a{1,50}){1,50}x",
    r"(x+x+)+y",
    r"(?=(a+)+b)a",
    r".*a.*a.*a.*a.*a",
    r"(a+){20}x",
    r"(a+)\1",
    "a" * (MAX_LENGTH + 1),
    "(" * 5000 + "a" + ")" * 5000,
)
ACCEPTED = (
    r"shop\..*",
    r"shop\.public\.(orders|items|people)",
    r"([a-z]+\.)*orders",
    r"(?:[^.]+\.){2}.*",
    r"(?!internal)shop\..*",
    r"(?!.*(\.dlq|\.retry)$)prod\..*",
    r"[^.]+\.[^.]+\.[^.]+\.[^.]+\.[^.]+\.[^.]+",
    r"(shop|sales|crm)\.(\w+)\.(\w+)",
    r"(shop|sales|crm)*x",
    r"\d{4}-\d{2}-\d{2}.*",
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12}",
    r"(.*)\.(.*)\.(.*)",
    r"(?i)shop_[0-9]+.*",
    r".*a.*b.*c.*",
    r"([A-Z][a-z]+)*",
    r"(.*\.)?orders(_\d+)?",
    r"(?P<schema>[^.]*)\.(?P<table>[^.]*)",
    "|".join(f"shop.public.table_{number}" for number in range(800)),
)
PUMPS = ("a", "ab", "a.", "aA", "x", "1", ".", "shop", "a-")


@pytest.mark.parametrize("pattern", REFUSED, ids=lambda pattern: pattern[:40])
def test_patterns_that_may_take_very_long_are_refused(pattern: str) -> None:
    """Nested loops, overlapping alternatives within a loop, long chains of loops, and patterns beyond analysis."""
    with pytest.raises(TooCostly):
        check_cost(pattern)


@pytest.mark.parametrize("pattern", ACCEPTED, ids=lambda pattern: pattern[:40])
def test_common_patterns_are_accepted(pattern: str) -> None:
    """Such a pattern also ends in time on texts of a repeated piece; otherwise this test does not end."""
    check_cost(pattern)
    for pump in PUMPS:
        re.fullmatch(pattern, pump * 60 + "!")


def test_ignoring_case_makes_alternatives_overlap() -> None:
    """``check_cost`` applies the flags of the caller to the pattern."""
    check_cost(r"([A-Z][a-z]+)*x")
    with pytest.raises(TooCostly):
        check_cost(r"([A-Z][a-z]+)*x", re.IGNORECASE)


def test_the_message_names_the_option_and_a_part_of_the_pattern() -> None:
    """The error does not repeat a long pattern."""
    with pytest.raises(InvalidValue, match=r"^Invalid value a{200} for configuration topics.regex: .* may take very"):
        regex("topics.regex", "a" * (MAX_LENGTH + 1))
