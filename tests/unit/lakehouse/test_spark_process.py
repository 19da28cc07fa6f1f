"""The output of Spark's JVM during its start, and the name of the user that it runs as."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.core.model.errors import ConfigError
from headrace_connectors.lakehouse.spark_environment import user_environment
from headrace_connectors.lakehouse.spark_jvm import held_standard_error

UNKNOWN = 1_000_680_000  # as OpenShift assigns them

CHILD = (
    "import sys; print('pages of Ivy', file=sys.stderr, flush=True); print(); input(); print('later', file=sys.stderr)"
)

PARENT = f"""
import subprocess, sys
from headrace_connectors.lakehouse.spark_jvm import held_standard_error
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
    """Return the standard error of a process that starts a child."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, case], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stderr is not None
        assert parent.stdin is not None
        first = parent.stderr.readline()
        parent.stdin.close()
        return (first + parent.stderr.read()).decode()


def test_only_output_after_the_start_is_printed() -> None:
    """Standard error has the errors of a running JVM, and not the report of its packages."""
    assert standard_error("starts") == "later\n"


def test_a_start_that_fails_prints_all_output() -> None:
    """The output contains the cause."""
    printed = standard_error("fails")
    assert printed.startswith("pages of Ivy\nlater\n")
    assert "RuntimeError: the start" in printed


def test_more_output_than_a_pipe_holds_does_not_block_the_start() -> None:
    """The output of Ivy grows with the number of packages."""
    command = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 1_000_000)"]
    with held_standard_error() as standard_error:
        subprocess.run(command, stderr=standard_error, check=True, timeout=30)


def test_a_user_with_a_name_keeps_it() -> None:
    """The environment preloads no library for such a user."""
    assert user_environment(0) == {}


@pytest.mark.skipif(
    not list(Path("/usr/lib").glob("*/libnss_wrapper.so")), reason="needs Debian's libnss-wrapper, as the image has it"
)
def test_a_uid_without_a_name_gets_one() -> None:
    """Child processes find this name in the C library, as the JVM does, beside the names of the system."""
    environment = {**os.environ, **user_environment(UNKNOWN)}
    users = ["getent", "passwd", str(UNKNOWN), "root"]
    answer = subprocess.run(users, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(":")[:3] for line in answer] == [["headrace", "x", str(UNKNOWN)], ["root", "x", "0"]]


def test_without_nss_wrapper_the_error_names_a_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    """The error occurs before a JVM starts, which would end with a stack trace of Hadoop."""
    with pytest.raises(ConfigError, match=f"user id {UNKNOWN} has no entry in /etc/passwd.*install libnss-wrapper"):
        user_environment(UNKNOWN, "libnss_wrapper_that_is_not_there.so")
    assert capfd.readouterr().err == ""
