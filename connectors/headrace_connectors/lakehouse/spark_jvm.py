"""Spark's JVM as a child process: its start, its environment, and why it ended.

PySpark would start it with every ``spark.*`` setting in the process arguments, which each user of the machine can read,
and with all environment variables of the worker. Here the settings are in a file that only the worker's user can read
and that is removed after the start, and the environment has no variable that may be a secret (``environment``).
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.core.model.errors import Retriable

START_SECONDS = 120.0
"""A start takes 3 to 10 s. Ivy may have to fetch packages first: ``PACKAGES_SECONDS``."""

PACKAGES_SECONDS = 600.0

_PASSED = {
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    "GOOGLE_APPLICATION_CREDENTIALS",  # the path of a file
}
_PASSED_PREFIXES = (
    *("LC_", "LD_", "NSS_WRAPPER_", "JAVA_", "JDK_", "_JAVA_", "SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "KRB5"),
    *("AWS_", "AZURE_", "KUBERNETES_", "SSL_CERT_"),
)
_SECRET = ("SECRET", "PASSWORD", "PASSWD", "TOKEN", "CREDENTIAL", "ACCESS_KEY")
_FILES = ("_FILE", "_PATH", "_DIR")  # AWS_WEB_IDENTITY_TOKEN_FILE names a file

JAVA_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "aws.accessKeyId",
    "AWS_SECRET_ACCESS_KEY": "aws.secretAccessKey",
    "AWS_SESSION_TOKEN": "aws.sessionToken",
}
"""System properties that AWS's SDK reads before these variables; they are set over the connection to the JVM."""


def environment(variables: Mapping[str, str], extra: Collection[str] = ()) -> dict[str, str]:
    """Return the variables that the JVM receives: known ones without secrets, and those in ``extra``."""

    def is_passed(name: str) -> bool:
        is_secret = any(word in name for word in _SECRET) and not name.endswith(_FILES)
        return name in extra or ((name in _PASSED or name.startswith(_PASSED_PREFIXES)) and not is_secret)

    return {name: value for name, value in variables.items() if is_passed(name)}


class SparkJvm:
    """A running JVM, from ``start`` to ``end``; ``gateway`` is py4j's connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], gateway: Any) -> None:
        self.process = process
        self.gateway = gateway
        self._is_killed = False

    @classmethod
    def start(cls, settings: Mapping[str, str], variables: Mapping[str, str], standard_error: int | None) -> SparkJvm:
        """Start a JVM with ``settings`` (``spark.*``), and connect to it. Raises Retriable with the cause."""
        folder = Path(tempfile.mkdtemp(prefix="headrace-jvm-"))  # for this user alone
        try:
            process = _launch(folder, settings, variables, standard_error)
            try:
                seconds = PACKAGES_SECONDS if "spark.jars.packages" in settings else START_SECONDS
                port, secret = _connection(process, folder / "connection", seconds)
                return cls(process, _gateway(port, secret))
            except BaseException:
                process.kill()
                process.wait()
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, for any reason."""
        return self._is_killed or self.process.poll() is not None

    def kill(self) -> None:
        """End the process at once, also if it is stopped or hangs. Calls that wait for it fail. Idempotent."""
        self._is_killed = True  # ``poll`` finds nothing while another thread waits
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float) -> None:
        """Wait until the process has ended, and kill it after ``seconds``."""
        if self.process.stdin is not None:
            self.process.stdin.close()  # the JVM exits at the end of its standard input
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether the process has ended for lack of memory in its heap."""
        return self.process.poll() == _OUT_OF_MEMORY

    def cause(self) -> str:
        """Return why the process has ended, or is about to."""
        try:
            status = self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "it has closed its connection"
        if status == _OUT_OF_MEMORY:
            return "it ran out of memory (exit code 3); raise spark.driver.memory or lower batch.max.bytes"
        if status == -signal.SIGKILL:
            return "it was killed (SIGKILL); if nobody did that, the memory limit of the container is too low"
        if status < 0:
            return f"it was ended by {signal.Signals(-status).name}; see its last lines in the log"
        return f"it ended with exit code {status}; see its last lines in the log"


_END_SECONDS = 5.0  # from the end of the connection to that of the process
_OUT_OF_MEMORY = 3  # of -XX:+ExitOnOutOfMemoryError


def _launch(
    folder: Path, settings: Mapping[str, str], variables: Mapping[str, str], standard_error: int | None
) -> subprocess.Popen[bytes]:
    from pyspark.find_spark_home import _find_spark_home  # imported late, see lakehouse.py

    properties = folder / "spark.properties"
    properties.touch(mode=0o600)
    properties.write_text(java_properties(settings), encoding="utf-8")
    submit = [f"{_find_spark_home()}/bin/spark-submit", "--properties-file", str(properties), "--load-spark-defaults"]
    own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "connection")}
    return subprocess.Popen(
        # Ctrl-C reaches the whole process group. The worker stops the JVM when it no longer needs it.
        ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *submit, "pyspark-shell"],
        stdin=subprocess.PIPE,
        stderr=standard_error,
        env={**variables, **own},
    )


def java_properties(settings: Mapping[str, str]) -> str:
    """Return a properties file of ``settings``, whose names need no escapes."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
    return "".join(f"{name}={value.translate(escapes)}\n" for name, value in settings.items())


def _connection(process: subprocess.Popen[bytes], file: Path, seconds: float) -> tuple[int, str]:
    """Wait for the file in which the JVM writes its port and the secret of the connection."""
    deadline = time.monotonic() + seconds
    while not file.exists():
        if process.poll() is not None:
            raise Retriable(
                f"Spark: did not start: its JVM ended with exit code {process.returncode}; install Java 17, check that "
                "Spark's jars exist, and read its last lines in the log"
            )
        if time.monotonic() > deadline:
            raise Retriable(f"Spark: did not start: its JVM was not ready after {seconds:g} s; see its log")
        time.sleep(0.05)
    content = file.read_bytes()
    (port, length), secret = struct.unpack_from("!ii", content), content[8:]
    return port, secret[:length].decode()


def _gateway(port: int, secret: str) -> Any:
    """Connect py4j by PySpark's own function, which expects the address of a running JVM in variables."""
    from pyspark.java_gateway import launch_gateway  # imported late, see lakehouse.py

    address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ.update(address)
    try:
        return launch_gateway()
    finally:
        for name in address:
            del os.environ[name]
