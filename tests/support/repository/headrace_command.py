"""The command ``headrace`` as an operator calls it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from headrace_dev import jars


def headrace(folder: Path, *arguments: str | Path) -> tuple[int, list[str]]:
    """Run the command in ``folder``. Print what it printed; return its exit status and its lines."""
    command = [sys.executable, "-m", "headrace", *map(str, arguments)]
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_JARS": str(jars.folder("lakehouse"))}
    begun = time.monotonic()
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, timeout=900, cwd=folder)
    print(done.stdout, done.stderr, f"exit status {done.returncode} after {time.monotonic() - begun:.0f} s")
    return done.returncode, done.stdout.splitlines()
