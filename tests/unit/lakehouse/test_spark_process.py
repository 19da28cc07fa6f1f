"""What Spark's JVM prints while it starts, and the name of the user that it runs as."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.model.errors import ConfigError
from headrace_connectors.lakehouse.spark_process import held_standard_error, user_environment

UNKNOWN = 1_000_680_000  # as OpenShift assigns them

CHILD = (
    "import sys; print('pages of Ivy', file=sys.stderr, flush=True); print(); input(); print('later', file=sys.stderr)"
)

PARENT = f"""
import subprocess, sys
from headrace_connectors.lakehouse.spark_process import held_standard_error
with held_standard_error() as standard_error:
    child = subprocess.Popen(
        [sys.executable, "-c", {CHILD!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=standard_error
    )
    child.stdout.readline()
    if sys.argv[1] == "fails":
        child.communicate(b"\\n")
        raise RuntimeError("the start")
child.communicate(b"\\n")
sys.stdin.read()
"""


def standard_error(case: str) -> str:
    """What a process prints in which a child starts."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, case], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stderr is not None
        assert parent.stdin is not None
        first = parent.stderr.readline()
        parent.stdin.close()
        return (first + parent.stderr.read()).decode()


def test_only_what_follows_the_start_is_printed() -> None:
    """Errors of a running JVM are seen; the report of its packages is not."""
    assert standard_error("starts") == "later\n"


def test_a_start_that_fails_shows_all_of_it() -> None:
    """The cause is in it."""
    printed = standard_error("fails")
    assert printed.startswith("pages of Ivy\nlater\n")
    assert "RuntimeError: the start" in printed


def test_more_than_a_pipe_holds_does_not_block_the_start() -> None:
    """Ivy prints as much as there are packages."""
    command = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 1_000_000)"]
    with held_standard_error() as standard_error:
        subprocess.run(command, stderr=standard_error, check=True, timeout=30)


def test_a_user_with_a_name_keeps_it() -> None:
    """Nothing is preloaded where it is not needed."""
    assert user_environment(0) == {}


@pytest.mark.skipif(
    not list(Path("/usr/lib").glob("*/libnss_wrapper.so")), reason="needs Debian's libnss-wrapper, as the image has it"
)
def test_a_uid_without_a_name_gets_one() -> None:
    """Child processes find it in the C library, as the JVM does, and the names that the system has as well."""
    environment = {**os.environ, **user_environment(UNKNOWN)}
    users = ["getent", "passwd", str(UNKNOWN), "root"]
    answer = subprocess.run(users, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(":")[:3] for line in answer] == [["headrace", "x", str(UNKNOWN)], ["root", "x", "0"]]


def test_without_nss_wrapper_the_error_says_what_to_do(capfd: pytest.CaptureFixture[str]) -> None:
    """Before a JVM starts that would end with a trace of Hadoop's."""
    with pytest.raises(ConfigError, match=f"user id {UNKNOWN} has no entry in /etc/passwd.*install libnss-wrapper"):
        user_environment(UNKNOWN, "libnss_wrapper_that_is_not_there.so")
    assert capfd.readouterr().err == ""
