"""``python -m mutations.check [NAME…]``: check that a test fails for each of the mutations in ``table.py``.

Each mutation changes one line of a copy of the sources. The histories of the simulated source databases run against the
copy first, since they do not depend on the code. If they pass, the property tests run, and then the unit tests. The
command prints which of them found the mutation, and ends with status 1 if one was not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from mutations.table import MUTATIONS, Mutation
from support.repository.changed_sources import FAILED, PASSED, ROOT, apply, copied, run_pytest

FAST = ("-x", "-m", "not long and not spark and not stack")
STAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("histories", ("tests/properties/source_database", "-m", "", "-k", "not test_twenty_thousand_databases")),
    ("laws", ("tests/properties", "--ignore=tests/properties/source_database")),
    (
        "unit tests",
        (
            *("tests/unit/core", "tests/unit/cassandra", "tests/unit/converters", "tests/unit/transforms"),
            *("tests/unit/runtime", "tests/unit/lakehouse/direct", "tests/contracts", "tests/reselect_cases"),
        ),
    ),
)
"""What runs against a mutation, in this order, until one of them fails."""


def main(arguments: Sequence[str]) -> int:
    """Check the mutations that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="mutations", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only mutations whose name contains one of these")
    parser.add_argument(
        "--processes", type=int, default=2, help="mutations that are checked at the same time (%(default)s)"
    )
    chosen = parser.parse_args(arguments)
    wanted = [each for each in MUTATIONS if not chosen.names or any(name in each.name for name in chosen.names)]
    for stage, tests in STAGES:
        status, line = run_pytest(ROOT, *FAST, *tests)
        print(f"without a mutation, {stage}: {line}", flush=True)
        if status != PASSED:
            return FAILED
    with ThreadPoolExecutor(chosen.processes) as pool:
        found = Counter(pool.map(finder, wanted))
    print(", ".join(f"{count} found by {stage}" for stage, count in found.items() if stage), flush=True)
    print(f"{found['']} of {len(wanted)} mutations were not found", flush=True)
    return FAILED if found[""] else PASSED


def finder(mutation: Mutation) -> str:
    """Return the stage whose tests fail for a mutation, empty if none does; print a line of the table."""
    began = time.monotonic()
    with copied() as root:
        for edit in mutation.edits:
            apply(root, edit)
        for stage, tests in STAGES:
            status, line = run_pytest(root, *FAST, *tests)
            if status == FAILED:
                print(f"{mutation.name:<60} {stage:<11} {time.monotonic() - began:4.0f} s  {line}", flush=True)
                return stage
    print(f"{mutation.name:<60} NOT FOUND   {time.monotonic() - began:4.0f} s", flush=True)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
