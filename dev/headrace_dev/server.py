"""A server of the stack: one process group under a supervisor, with its log file; and polling for conditions."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
# Below Linux's ephemeral range, so that no outgoing connection takes a port between its choice and its use.
_PORTS = range(20_000, 32_000)
_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_PAUSE_GROWTH, _LONGEST_PAUSE = 1.2, 0.25

http = httpx.Client(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), limits=httpx.Limits(max_keepalive_connections=0))
"""Sends requests to servers of the stack, from any thread. It keeps no connection, because servers are killed.

Each call of ``httpx.get`` reads the certificates of the machine, which takes 30 ms of CPU time; this client has none.
"""


class ServerError(RuntimeError):
    """A server did not start, or ended by itself; the message contains the end of its log."""


def wait_until(condition: Callable[[], T], what: str, seconds: float = 60.0, pause: float = 0.05) -> T:
    """Poll until ``condition()`` is true and return its value. Raises TimeoutError that names ``what``.

    The pauses between polls grow from ``pause`` to a quarter of a second, because polls take CPU time as well.
    """
    deadline = time.monotonic() + seconds
    longest = max(pause, _LONGEST_PAUSE)
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {seconds:g} s")
        time.sleep(pause)
        pause = min(_PAUSE_GROWTH * pause, longest)
    return value


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports of 127.0.0.1 on which no process listens."""
    found: list[int] = []
    with contextlib.ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                port = random.choice(_PORTS)
                probe.bind((LOOPBACK, port))
                found.append(port)
    return found


def accepts(port: int) -> bool:
    """Return whether a process listens on ``port`` of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a server that refuses to run as root, when the parent is root."""

    user: int
    group: int


class Server:
    """One server process. It can be started, stopped and killed any number of times."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        account: Account | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
    ) -> None:
        self.name = name
        self.log = folder.parent / f"{name}.log"
        self._order = {
            "command": list(command),
            "environment": {**os.environ, **(environment or {})},
            "folder": str(folder),
            "user": account.user if account else None,
            "group": account.group if account else None,
            "log": str(self.log),
        }
        self._stop_signal = stop_signal
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.pid = 0

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self, ready: Callable[[], object], seconds: float = 90.0) -> None:
        """Start and wait until ``ready()`` is true. Raises ServerError with the end of the log."""
        assert not self.running, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", str(_SUPERVISOR), json.dumps(self._order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._supervisor.stdout is not None
        self.pid = int(self._supervisor.stdout.readline() or 0)
        try:
            wait_until(lambda: self._alive() and ready(), f"answer of {self.name}", seconds)
        except TimeoutError as error:
            self.kill()
            raise ServerError(f"{error}; end of {self.log}:\n{self.log_end()}") from error

    def stop(self, seconds: float = 30.0) -> None:
        """Shut the process down gracefully; kill it after ``seconds``. Idempotent."""
        # Signal the server alone, as a service manager does: it ends its own children (a JVM).
        self._signal(os.kill, self._stop_signal)
        self._wait(seconds)

    def kill(self) -> None:
        """Send SIGKILL to the process group. Idempotent."""
        self._signal(os.killpg, signal.SIGKILL)
        self._wait(10)

    def log_end(self, lines: int = 20) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    def _alive(self) -> bool:
        if not self.running:
            raise ServerError(f"{self.name} ended by itself; end of {self.log}:\n{self.log_end()}")
        return True

    def _signal(self, send: Callable[[int, int], None], number: signal.Signals) -> None:
        if self.running and self.pid:
            with contextlib.suppress(ProcessLookupError):
                send(self.pid, number)

    def _wait(self, seconds: float) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is None:
            return
        try:
            supervisor.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            supervisor.wait()
        for pipe in (supervisor.stdin, supervisor.stdout):
            if pipe is not None:
                pipe.close()
