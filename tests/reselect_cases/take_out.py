"""``python -m reselect_cases.take_out [CASE…]``: does each case's test fail without the rule it is for?

For every rule of ``rules.py`` the sources are copied to a scratch folder, the rule is taken out there, and the tests of
the case are run against the copy. Prints a table; ends with status 1 if a test passes without its rule, or if any test
fails with all rules in place. ``--no-stack`` leaves out the rules that need a real database.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reselect_cases.rules import RULES_OF_CASES, Edit, Rule

ROOT = Path(__file__).parents[2]
SOURCES = ("service", "connectors")
"""What is copied; the rest of the tree is only looked at."""
SEEN = ("dev", "tests", "pyproject.toml")
PLACES = ("tests/reselect_cases", "tests/unit/runtime/test_sink_task_cache.py")
PASSED, FAILED, NOTHING = 0, 1, 5
"""pytest's exit statuses."""


def main(arguments: Sequence[str]) -> int:
    """Check the rules that the command line names, or all."""
    parser = argparse.ArgumentParser(prog="take_out", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--no-stack", action="store_true")
    chosen = parser.parse_args(arguments)
    rules = [rule for rule in RULES_OF_CASES if not chosen.cases or rule.case in chosen.cases]
    rules = [rule for rule in rules if not (rule.stack and chosen.no_stack)]
    status, line = run(ROOT, "|".join(rule.tests for rule in rules))
    print(f"with every rule: {line}", flush=True)
    if status != PASSED:
        return FAILED
    return max([check(rule) for rule in rules])


def check(rule: Rule) -> int:
    """Take one rule out, run the tests of its case, print the line of the table."""
    with copied() as root:
        for edit in rule.edits:
            take_out(root, edit)
        status, line = run(root, rule.tests)
    verdict = (
        "fails, as it must" if status == FAILED else "PASSES" if status == PASSED else f"pytest ended with {status}"
    )
    print(f"{rule.case:>4}  without: {rule.rule:<62}  {verdict}: {line}", flush=True)
    return PASSED if status == FAILED else FAILED


@contextmanager
def copied() -> Iterator[Path]:
    """A scratch tree with copies of the sources."""
    with tempfile.TemporaryDirectory(prefix="headrace-rules-") as name:
        root = Path(name)
        root.chmod(0o711)
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for other in SEEN:
            (root / other).symlink_to(ROOT / other)
        yield root


def take_out(root: Path, edit: Edit) -> None:
    """Apply an edit. Raises LookupError where the rule is not found in its place."""
    path = root / edit.path
    text = path.read_text()
    if text.count(edit.old) != 1:
        raise LookupError(f"{edit.path} has {text.count(edit.old)} times: {edit.old!r}")
    path.write_text(text.replace(edit.old, edit.new))


def run(root: Path, names: str) -> tuple[int, str]:
    """Run the tests whose names begin so; pytest's exit status and last line."""
    paths = os.pathsep.join(str(root / part) for part in (*SOURCES, "dev", "tests"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    selected = " or ".join(names.split("|"))
    done = subprocess.run(
        [*command, "--rootdir", str(root), "-k", selected, *PLACES],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = re.sub(r"=+|in [\d.]+s.*", "", lines[-1] if lines else "").strip()
    return (NOTHING if "no tests ran" in last else done.returncode), last


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
