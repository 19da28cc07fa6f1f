"""Spark's JVM as a child process: the name of the user that runs it, and its output while it starts.

Hadoop's login needs a user name from the operating system, and neither ``user.name`` nor ``HADOOP_USER_NAME`` replaces
it. If the platform assigns any uid (OpenShift), ``/etc/passwd`` has no entry for it and the root file system is
read-only. Then nss_wrapper supplies the name from another file.
"""

from __future__ import annotations

import atexit
import logging
import os
import pwd
import select
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.core.model.errors import ConfigError

log = logging.getLogger(__name__)

_PASSWD = Path("/etc/passwd")
_WRAPPER = "libnss_wrapper.so"  # the dynamic linker finds it by this name
_STANDARD_ERROR = 2
_DRAIN_SECONDS = 5.0


def user_environment(uid: int, wrapper: str = _WRAPPER) -> Mapping[str, str]:
    """Return the variables with which child processes find a user name for ``uid``; none if the system has one.

    Raises ConfigError if nss_wrapper is not installed.
    """
    try:
        pwd.getpwuid(uid)
    except KeyError:
        folder = Path(tempfile.mkdtemp(prefix="headrace-user-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        variables = _wrapped(uid, folder, wrapper)
        lookup = subprocess.run(["getent", "passwd", str(uid)], env={**os.environ, **variables}, capture_output=True)
        if lookup.returncode == 0:
            return variables
        raise ConfigError(
            f"Spark: does not start: user id {uid} has no entry in {_PASSWD}, and Hadoop requires a user name; "
            f"add an entry, run the worker as another user, or install libnss-wrapper ({wrapper})"
        ) from None
    return {}


def _wrapped(uid: int, folder: Path, wrapper: str) -> Mapping[str, str]:
    """Variables with which nss_wrapper reads a file in ``folder``."""
    home = os.environ.get("HOME") or str(folder)
    passwd = folder / "passwd"
    passwd.write_text(f"headrace:x:{uid}:{os.getgid()}::{home}:/usr/sbin/nologin\n{_PASSWD.read_text()}")
    return {
        "LD_PRELOAD": f"{wrapper} {os.environ.get('LD_PRELOAD', '')}".strip(),
        "NSS_WRAPPER_PASSWD": str(passwd),
        "NSS_WRAPPER_GROUP": "/etc/group",
    }


@contextmanager
def held_standard_error() -> Iterator[int]:
    """Provide a file descriptor for the standard error of a child that starts within the block.

    The output of the child until the end of the block appears only if the block raises; later output appears at once.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    output = _HeldOutput(reading)
    output.start()
    try:
        yield writing
    except BaseException:
        os.close(writing)
        output.join(_DRAIN_SECONDS)  # the child has ended, or is about to
        output.release(show=True)
        raise
    os.close(writing)
    output.release(show=False)


class _HeldOutput(threading.Thread):
    """Copies a pipe to standard error, and holds the output before ``release`` back."""

    def __init__(self, source: int) -> None:
        super().__init__(name="spark-stderr", daemon=True)
        self._source = source
        self._lock = threading.Lock()
        self._held: list[bytes] | None = []

    def run(self) -> None:
        """Copy until the child has closed its end."""
        while True:
            select.select([self._source], [], [])
            with self._lock:
                if not self._read():
                    return

    def release(self, *, show: bool) -> None:
        """Print or drop the output that was held back and that is in the pipe now; then pass output on."""
        with self._lock:
            while select.select([self._source], [], [], 0)[0] and self._read():
                pass
            held, self._held = b"".join(self._held or []), None
            if show:
                _print(held)
        log.debug("Spark's JVM printed while it started:\n%s", held.decode(errors="replace"))

    def _read(self) -> bool:
        """Read the available output of the pipe; False at its end."""
        try:
            data = os.read(self._source, 65536)
        except BlockingIOError:  # the other thread was faster
            return True
        if self._held is None:
            _print(data)
        else:
            self._held.append(data)
        return bool(data)


def _print(data: bytes) -> None:
    with suppress(OSError):  # the output is not read: the child must not block on it
        while data:
            data = data[os.write(_STANDARD_ERROR, data) :]
