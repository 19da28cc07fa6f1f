"""Tests that each case of reselect has a test, and a rule that ``reselect_cases/take_out.py`` can remove."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from reselect_cases.rules import RULES_OF_CASES

ROOT = Path(__file__).parents[2]
CASE_TESTS = ROOT / "tests" / "reselect_cases"
CASES = [f"S{number}" for number in range(1, 36)] + ["S1b"] + [f"N{number}" for number in range(1, 15)]


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_a_test(case: str) -> None:
    """Each case has a test in ``tests/reselect_cases`` whose name begins with it, for example ``test_s01_…`` for S1."""
    letter, number = case[0].lower(), re.sub(r"(\d+)", lambda found: found[0].zfill(2), case[1:])
    sources = "".join(path.read_text() for path in CASE_TESTS.glob("test_*.py"))
    assert f"def test_{letter}{number}_" in sources


def test_every_case_has_a_rule() -> None:
    """Each case has one entry in the table of rules."""
    assert sorted(rule.case for rule in RULES_OF_CASES) == sorted(CASES)
