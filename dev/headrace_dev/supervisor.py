"""Runs one server for a parent that may die at any moment, and leaves nothing behind.

Started as ``python -I supervisor.py '{"command": […], …}'`` with a pipe as standard input that the parent holds
open and never writes to. When the pipe closes (the parent stopped, crashed or was killed with -9) the server's
whole process group gets SIGTERM, then SIGKILL, and the folders in ``remove`` go. When the server ends by itself, its exit
status is passed on. PR_SET_PDEATHSIG is no way to do this: it fires when the *thread* that started the child ends.

Only the standard library, because it runs isolated from the environment of the parent.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any

GRACE_SECONDS = 10


def main(order: dict[str, Any]) -> int:
    """Run ``order["command"]`` as ``order["user"]`` until it ends or the parent is gone."""
    # The group of the terminal must not reach us: the parent alone says when to stop.
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)
    server = subprocess.Popen(
        order["command"],
        stdin=subprocess.DEVNULL,
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
    for folder in order["remove"]:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _default_signals() -> None:
    for name in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)


def _parent_gone(server: subprocess.Popen[bytes]) -> bool:
    """Wait for whichever comes first: the end of our standard input, or the end of the server (False)."""
    watched = os.pidfd_open(server.pid)
    ready, _, _ = select.select([sys.stdin, watched], [], [])
    os.close(watched)
    if watched in ready:
        server.wait()
        return False
    return True


def _end_group(server: subprocess.Popen[bytes]) -> None:
    _signal_group(server.pid, signal.SIGTERM)
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    _signal_group(server.pid, signal.SIGKILL)
    server.wait()


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
