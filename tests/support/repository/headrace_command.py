"""The command ``headrace`` as an operator calls it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from headrace_dev import jars


def command(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """The arguments of ``subprocess`` that run the command in ``folder``."""
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_JARS": str(jars.folder("lakehouse"))}
    return {
        "args": [sys.executable, "-m", "headrace", *map(str, arguments)],
        "env": os.environ | places,
        "cwd": folder,
    }


def headrace(folder: Path, *arguments: str | Path) -> tuple[int, list[str]]:
    """Run the command in ``folder``. Print what it printed; return its exit status and its lines."""
    begun = time.monotonic()
    done = subprocess.run(**command(folder, *arguments), capture_output=True, text=True, timeout=900)
    print(done.stdout, done.stderr, f"exit status {done.returncode} after {time.monotonic() - begun:.0f} s")
    return done.returncode, done.stdout.splitlines()
