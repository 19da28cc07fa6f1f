"""Run one server for a parent process that may be killed at any time, and remove the server and its files then.

Started as ``python -I supervisor.py '{"command": […], …}'`` with a pipe as standard input that the parent holds
open and never writes to. When the pipe closes (the parent stopped, crashed or was killed with -9) the server's
whole process group gets SIGTERM, then SIGKILL, and its folder and log are removed. When the server ends by itself, its
exit status is passed on. PR_SET_PDEATHSIG does not work: it fires when the *thread* that started the child ends.

Only the standard library, because it runs isolated from the environment of the parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

GRACE_SECONDS = 10


def main(order: dict[str, Any]) -> int:
    """Run ``order["command"]`` as ``order["user"]`` until it ends or the parent is gone."""
    # The signals of the terminal's process group must not reach this process: only the parent ends it.
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    server = subprocess.Popen(
        order["command"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the log: no process reads our pipe for output, so a server that fills it would block
        env=order["environment"],
        cwd=order["folder"],
        user=order["user"],
        group=order["group"],
        extra_groups=None if order["user"] is None else [],
        start_new_session=True,
        restore_signals=True,
        preexec_fn=_default_signals,
    )
    print(server.pid, flush=True)
    if not _parent_gone(server):
        return server.returncode
    _end_group(server)
    _remove(Path(order["folder"]), Path(order["log"]))
    return 0


def _remove(folder: Path, log: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    log.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # other servers of the same stack still have theirs
        folder.parent.rmdir()


def _default_signals() -> None:
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)


def _parent_gone(server: subprocess.Popen[bytes]) -> bool:
    """Wait for the end of standard input (True) or the end of the server (False), the first of the two."""
    watched = os.pidfd_open(server.pid)
    ready, _, _ = select.select([sys.stdin, watched], [], [])
    os.close(watched)
    if watched in ready:
        server.wait()
        return False
    return True


def _end_group(server: subprocess.Popen[bytes]) -> None:
    _signal_group(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(GRACE_SECONDS)
    _signal_group(server.pid, signal.SIGKILL)
    server.wait()


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
