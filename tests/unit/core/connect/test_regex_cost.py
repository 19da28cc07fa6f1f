"""Regular expressions that a text could keep busy for very long are refused, and those that people write are not."""

import re

import pytest

from headrace.core.connect.config_validators import InvalidValue, regex
from headrace.core.connect.regex_cost import MAX_LENGTH, TooCostly, check_cost

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
    """Nested loops, alternatives that overlap within a loop, long chains of loops, and what cannot be judged."""
    with pytest.raises(TooCostly):
        check_cost(pattern)


@pytest.mark.parametrize("pattern", ACCEPTED, ids=lambda pattern: pattern[:40])
def test_patterns_that_people_write_are_accepted(pattern: str) -> None:
    """And no text made of a repeated piece keeps them busy: this test would not end."""
    check_cost(pattern)
    for pump in PUMPS:
        re.fullmatch(pattern, pump * 60 + "!")


def test_case_counts_only_where_the_pattern_says_so() -> None:
    """The flag of the caller is that of the pattern."""
    check_cost(r"([A-Z][a-z]+)*x")
    with pytest.raises(TooCostly):
        check_cost(r"([A-Z][a-z]+)*x", re.IGNORECASE)


def test_the_message_names_the_option_and_a_part_of_the_pattern() -> None:
    """A long pattern is not repeated."""
    with pytest.raises(InvalidValue, match=r"^Invalid value a{200} for configuration topics.regex: .* may take very"):
        regex("topics.regex", "a" * (MAX_LENGTH + 1))
