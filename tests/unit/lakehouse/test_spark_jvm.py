"""What the process of Spark's JVM receives, and why it ended."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from headrace.core.model.errors import EngineFailed
from headrace_connectors.lakehouse.spark_environment import environment
from headrace_connectors.lakehouse.spark_jvm import SparkJvm, java_properties
from headrace_dev.server import wait_until


def test_the_environment_of_the_jvm_has_no_secrets() -> None:
    """Other processes of the user can read it. Files that contain a secret are passed by their path."""
    passed = {
        "PATH": "/bin",
        "AWS_REGION": "eu-west-1",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "JAVA_HOME": "/java",
        "SPARK_LOCAL_DIRS": "/scratch",
        "LC_ALL": "C",
    }
    withheld = {
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_SESSION_TOKEN": "x",
        "AZURE_CLIENT_SECRET": "x",
        "CONNECT_SASL_JAAS_CONFIG": "x",
        "DATABASE_PASSWORD": "x",
        "MY_SETTING": "x",
    }
    assert environment({**passed, **withheld}) == passed
    assert environment({**passed, **withheld}, ["MY_SETTING"]) == {**passed, "MY_SETTING": "x"}


def test_values_in_a_properties_file_are_escaped() -> None:
    """Java would read a backslash as the start of an escape, and a line end as the end of the value."""
    assert java_properties({"spark.a": "x\\y\nz", "spark.b": "ü=$"}) == "spark.a=x\\\\y\\nz\nspark.b=ü=$\n"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("raise SystemExit(3)", "out of memory.*spark.driver.memory"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL.*memory limit"),
        ("import os; os.kill(os.getpid(), 15)", "SIGTERM"),
        ("raise SystemExit(1)", "exit code 1"),
    ],
)
def test_the_cause_of_an_end(command: str, cause: str) -> None:
    """It names the signal or the exit code, and the option that helps."""
    with subprocess.Popen([sys.executable, "-c", command]) as process:
        process.wait(60)
        assert re.search(cause, SparkJvm(process, None).cause())


def test_a_stopped_process_is_ended() -> None:
    """It does not react to the end of its input, so it is killed after the deadline."""
    stopped = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    with subprocess.Popen([sys.executable, "-c", stopped], stdin=subprocess.PIPE) as process:
        jvm = SparkJvm(process, None)
        jvm.end(0.1)
        assert jvm.has_ended


def test_a_start_without_spark_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark exits if it does not find Spark's folder. Each attempt to start Spark would leave a folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", sys.exit)
    with pytest.raises(SystemExit):
        SparkJvm.start({}, {}, None, threading.Event())
    assert not list(tmp_path.iterdir())


def test_a_start_ends_when_the_worker_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ivy may fetch packages for minutes. The process is killed."""
    written, submit, stopping = tmp_path / "pid", tmp_path / "bin" / "spark-submit", threading.Event()
    submit.parent.mkdir()
    submit.write_text(f"#!/bin/sh\necho $$ > {written}.new; mv {written}.new {written}; exec sleep 600\n")
    submit.chmod(0o700)
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", lambda: str(tmp_path))

    def stop_worker() -> None:
        wait_until(written.exists, "the start of the process", 30)
        stopping.set()

    stopper = threading.Thread(target=stop_worker)
    stopper.start()
    with pytest.raises(EngineFailed, match="Spark: is stopped, because the worker stops"):
        SparkJvm.start({}, {"PATH": "/usr/bin:/bin"}, None, stopping)
    stopper.join()
    assert not Path("/proc", written.read_text().strip()).exists()
