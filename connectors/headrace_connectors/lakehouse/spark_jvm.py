"""Spark's JVM as a child process: its start, output and end, and PySpark's session in it.

PySpark would start the JVM with every ``spark.*`` setting in the process arguments, which each user of the machine can
read, and with all environment variables of the worker. Here the settings are in a file that only the worker's user can
read and that is removed after the start. ``spark_environment.py`` passes no variable that may be a secret.

No other code depends on where PySpark keeps JVM and session. pyspark is imported when Spark starts: it takes
half a second and 60 MB, which a command or a test without tables does not need.
"""

from __future__ import annotations

import logging
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from headrace.core.model.errors import EngineFailed, HeadraceError, Retriable
from headrace_connectors.lakehouse.spark_environment import user_environment

log = logging.getLogger(__name__)

_STANDARD_ERROR = 2
_DRAIN_SECONDS = 5.0


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


START_SECONDS = 120.0
"""A start takes 3 to 10 s. Ivy may have to fetch packages first: ``PACKAGES_SECONDS``."""

PACKAGES_SECONDS = 600.0

JAVA_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "aws.accessKeyId",
    "AWS_SECRET_ACCESS_KEY": "aws.secretAccessKey",
    "AWS_SESSION_TOKEN": "aws.sessionToken",
}
"""System properties that AWS's SDK reads before these variables; they are set over the connection to the JVM."""


class SparkJvm:
    """A running JVM, from ``start`` to ``end``; ``gateway`` is py4j's connection to it."""

    def __init__(self, process: subprocess.Popen[bytes], gateway: Any) -> None:
        self.process = process
        self.gateway = gateway
        self._is_killed = False

    @classmethod
    def start(
        cls,
        settings: Mapping[str, str],
        variables: Mapping[str, str],
        standard_error: int | None,
        stopping: threading.Event,
    ) -> SparkJvm:
        """Start a JVM with ``settings`` (``spark.*``), and connect to it.

        Raises Retriable with the cause, and EngineFailed if ``stopping`` is set before the JVM is ready.
        """
        from pyspark.find_spark_home import _find_spark_home  # late, see the head of this file

        spark_submit = f"{_find_spark_home()}/bin/spark-submit"
        folder = Path(tempfile.mkdtemp(prefix="headrace-jvm-"))  # for this user alone
        try:
            properties, connection = folder / "spark.properties", folder / "connection"
            submit = (spark_submit, "--properties-file", str(properties), "--load-spark-defaults", "pyspark-shell")
            properties.touch(mode=0o600)
            properties.write_text(java_properties(settings), encoding="utf-8")
            process = subprocess.Popen(
                # Ctrl-C reaches the whole process group. The worker stops the JVM when it no longer needs it.
                ["/bin/sh", "-c", "trap '' INT; exec \"$@\"", "sh", *submit],
                stdin=subprocess.PIPE,
                stderr=standard_error,
                env={**variables, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection)},
            )
            try:
                seconds = PACKAGES_SECONDS if "spark.jars.packages" in settings else START_SECONDS
                return cls(process, _connect(process, connection, seconds, stopping))
            except BaseException:
                with process:  # which closes its input, and waits
                    process.kill()
                raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
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


def java_properties(settings: Mapping[str, str]) -> str:
    """Return a properties file of ``settings``, whose names need no escapes."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"})
    return "".join(f"{name}={value.translate(escapes)}\n" for name, value in settings.items())


def _connect(process: subprocess.Popen[bytes], file: Path, seconds: float, stopping: threading.Event) -> Any:
    """Wait for the file in which the JVM writes its port and the secret of the connection, and connect py4j."""
    from pyspark.java_gateway import launch_gateway  # late, see the head of this file

    deadline = time.monotonic() + seconds
    while not file.exists():
        if process.poll() is not None:
            raise Retriable(
                f"Spark: did not start: its JVM ended with exit code {process.returncode}; install Java 17, check that "
                "Spark's jars exist, and read its last lines in the log"
            )
        if time.monotonic() > deadline:
            raise Retriable(f"Spark: did not start: its JVM was not ready after {seconds:g} s; see its log")
        if stopping.wait(0.05):
            raise EngineFailed("Spark: is stopped, because the worker stops")
    content = file.read_bytes()
    port, length = struct.unpack_from("!ii", content)
    # PySpark's own function expects the address of a running JVM in variables.
    address = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": content[8 : 8 + length].decode()}
    os.environ.update(address)
    try:
        return launch_gateway()
    finally:
        for name in address:
            del os.environ[name]


_CAUSE = re.compile(r"^(?:Caused by)?: (?:\w+\.)*(\w+)(?:: (.*))?$", re.MULTILINE)


def new_session(
    settings: Mapping[str, str], variables: Mapping[str, str], stopping: threading.Event
) -> tuple[SparkJvm, Any]:
    """Start a JVM and the session in it. Raises as ``SparkJvm.start``, and ConfigError with the cause."""
    from pyspark import SparkContext  # late, see the head of this file
    from pyspark.sql import SparkSession

    _keep_out_of_the_log()
    fetches = "spark.jars.packages" in settings
    if fetches:
        packages = settings["spark.jars.packages"]
        log.info("Spark: resolving %s from Maven Central; set HEADRACE_JARS to a folder that has the jars", packages)
    jvm: SparkJvm | None = None
    try:
        with held_standard_error() if fetches else nullcontext() as standard_error:  # Ivy prints pages
            environment = {**variables, **user_environment(os.getuid())}
            jvm = SparkJvm.start(settings, environment, standard_error, stopping)
            system = jvm.gateway.jvm.java.lang.System
            for variable, name in JAVA_CREDENTIALS.items():
                if value := os.environ.get(variable):
                    system.setProperty(name, value)
            return jvm, SparkSession(SparkContext(gateway=jvm.gateway))
    except BaseException as error:
        reason = _reason(error)
        if jvm is not None:
            jvm.kill()
            abandon(None)
        if isinstance(error, HeadraceError) or not isinstance(error, Exception):
            raise
        raise Retriable(f"Spark: did not start: {reason}; check spark.master, and that Spark's jars exist") from error


def _reason(error: BaseException) -> str:
    """Return the last cause in the trace of a Java error, with its text: no statement has run that it could quote.

    The JVM must still run: py4j requests the trace from it.
    """
    try:
        causes = _CAUSE.findall(str(error))
    except Exception:  # it has ended
        causes = []
    return ": ".join(filter(None, causes[-1])) if causes else type(error).__name__


def abandon(session: Any) -> None:
    """Discard PySpark's references to a session whose JVM has ended, so that another one can start."""
    from pyspark import SparkContext  # late, as above
    from pyspark.sql import SparkSession

    context = SparkContext._active_spark_context if session is None else session.sparkContext
    if context is not None:
        context._jsc = None  # else ``stop`` would call the JVM
        with suppress(Exception):
            context.stop()
    if SparkContext._gateway is not None:
        with suppress(Exception):  # its sockets
            SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _keep_out_of_the_log() -> None:
    """Stop PySpark from logging statements, which contain keys, and py4j from logging each lost connection.

    ``failures.py`` reports errors without statements, and ``spark_engine.py`` why the JVM has ended.
    """
    from pyspark.logger import PySparkLogger  # late, as above

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_of_py4j)  # py4j uses the root logger


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."
