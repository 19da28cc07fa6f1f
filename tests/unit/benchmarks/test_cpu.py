"""The CPU counter of the benchmarks."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.cpu import cpu_of, machine_seconds

_BURN = "import time\nwhile time.process_time() < 0.3: pass"
_PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {_BURN!r}])
print("ended", flush=True)
sys.stdin.read()
"""


def test_ended_children_are_counted() -> None:
    """A process whose child has used 0.3 s and ended has used them; the machine has, too."""
    machine = machine_seconds()
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"ended\n"
        used = cpu_of(parent.pid)
        parent.stdin.close()
    assert used.python >= 0.28
    assert used.jvm == 0
    assert machine_seconds() - machine >= 0.28
