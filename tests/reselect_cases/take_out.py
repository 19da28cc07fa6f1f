"""``python -m reselect_cases.take_out [CASE…]``: check that each case's test fails without its rule.

For every rule of ``rules.py`` the command copies the sources to a temporary folder, removes the rule there, and runs
the tests of the case against the copy. It prints a table. It ends with status 1 if a test passes without its rule, or
if any test fails with all rules in place. ``--no-stack`` omits the rules that need a real database.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from reselect_cases.rules import RULES_OF_CASES, Rule
from support.repository.changed_sources import FAILED, PASSED, ROOT, apply, copied, run_pytest

PLACES = ("tests/reselect_cases", "tests/unit/runtime/task/test_sink_task_cache.py")


def main(arguments: Sequence[str]) -> int:
    """Check the rules that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="take_out", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--no-stack", action="store_true")
    chosen = parser.parse_args(arguments)
    rules = [rule for rule in RULES_OF_CASES if not chosen.cases or rule.case in chosen.cases]
    rules = [rule for rule in rules if not (rule.stack and chosen.no_stack)]
    status, line = run_pytest(ROOT, "-k", " or ".join(rule.tests for rule in rules), *PLACES)
    print(f"with every rule: {line}", flush=True)
    if status != PASSED:
        return FAILED
    return max([check(rule) for rule in rules])


def check(rule: Rule) -> int:
    """Remove one rule, run the tests of its case, print the line of the table."""
    with copied() as root:
        for edit in rule.edits:
            apply(root, edit)
        status, line = run_pytest(root, "-k", rule.tests, *PLACES)
    verdict = (
        "fails, as it must" if status == FAILED else "PASSES" if status == PASSED else f"pytest ended with {status}"
    )
    print(f"{rule.case:>4}  without: {rule.rule:<62}  {verdict}: {line}", flush=True)
    return PASSED if status == FAILED else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
