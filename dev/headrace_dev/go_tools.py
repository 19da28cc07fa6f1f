"""Servers that exist as Go modules: built once per machine, into the cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from headrace_dev.jars import cache_folder


class BuildError(RuntimeError):
    """A tool could not be built; the message contains the end of the compiler's output."""


def tool(name: str, package: str, version: str) -> Path:
    """Return the program of a Go package, built if needed (minutes of CPU time). Raises BuildError.

    ``package`` is the import path of its main package; ``name`` is the last element of the path.
    """
    folder = cache_folder() / "bin" / f"{name}-{version}"
    program = folder / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise BuildError(f"{name} {version} is built by Go, which is not installed")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            print(f"{name} {version}: building from its Go module, a few minutes, once", file=sys.stderr, flush=True)
            environment = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0", "GOWORK": "off"}
            command = ["go", "install", "-trimpath", f"{package}@v{version}"]
            built = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if built.returncode:
                raise BuildError(f"{name} {version}: {built.stderr[-2000:]}")
    return program
