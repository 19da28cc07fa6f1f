"""Run tests against a changed copy of the sources, to prove that they fail without the code that they cover."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ("service", "connectors", "dev/headrace_dev/memory")
"""The folders that are copied. All others are linked."""
LINKED = ("tests", "pyproject.toml")
PASSED, FAILED, NOTHING = 0, 1, 5
"""pytest's exit statuses."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace ``old``, which occurs exactly once in the file, by ``new``."""

    path: str
    old: str
    new: str


@contextmanager
def copied() -> Iterator[Path]:
    """Yield a scratch tree with copies of the sources, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-sources-") as name:
        root = Path(name)
        root.chmod(0o711)
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        tools = [path for path in (ROOT / "dev" / "headrace_dev").iterdir() if path.name != "memory"]
        for other in (*(ROOT / name for name in LINKED), *tools):
            (root / other.relative_to(ROOT)).symlink_to(other)
        yield root


def apply(root: Path, edit: Edit) -> None:
    """Apply an edit to the tree below ``root``. Raises LookupError unless ``edit.old`` occurs exactly once."""
    path = root / edit.path
    text = path.read_text()
    if text.count(edit.old) != 1:
        raise LookupError(f"{edit.path} contains {text.count(edit.old)} times: {edit.old!r}")
    path.write_text(text.replace(edit.old, edit.new))


def run_pytest(root: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest with the sources below ``root``. Returns its exit status and its last line."""
    paths = os.pathsep.join(str(root / part) for part in ("service", "connectors", "dev", "tests"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header"]
    done = subprocess.run(
        [*command, "--rootdir", str(root), *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    last = re.sub(r"=+|in [\d.]+s.*", "", lines[-1] if lines else "").strip()
    return (NOTHING if "no tests ran" in last else done.returncode), last
