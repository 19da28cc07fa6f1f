"""PySpark's session in a JVM, and its end: the only code that knows where PySpark keeps the two.

pyspark is imported when Spark starts: it takes half a second and 60 MB, which a command or a test without tables does
not need.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

from headrace.core.model.errors import HeadraceError, Retriable
from headrace_connectors.lakehouse.spark_jvm import JAVA_CREDENTIALS, SparkJvm
from headrace_connectors.lakehouse.spark_process import held_standard_error, user_environment

log = logging.getLogger(__name__)

_CAUSE = re.compile(r"^(?:Caused by)?: (?:\w+\.)*(\w+)(?:: (.*))?$", re.MULTILINE)


def new_session(settings: Mapping[str, str], variables: Mapping[str, str]) -> tuple[SparkJvm, Any]:
    """Start a JVM and the session in it. Raises Retriable or ConfigError with the cause."""
    _keep_out_of_the_log()
    fetches = "spark.jars.packages" in settings
    if fetches:
        packages = settings["spark.jars.packages"]
        log.info("Spark: resolving %s from Maven Central; set HEADRACE_JARS to a folder that has the jars", packages)
    jvm: SparkJvm | None = None
    try:
        with held_standard_error() if fetches else nullcontext() as standard_error:  # Ivy prints pages
            jvm = SparkJvm.start(settings, {**variables, **user_environment(os.getuid())}, standard_error)
            return jvm, _session(jvm)
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

    The JVM must still run: py4j asks it for the trace.
    """
    try:
        causes = _CAUSE.findall(str(error))
    except Exception:  # it has ended
        causes = []
    return ": ".join(filter(None, causes[-1])) if causes else type(error).__name__


def _session(jvm: SparkJvm) -> Any:
    from pyspark import SparkContext  # late, see the head of this file
    from pyspark.sql import SparkSession

    system = jvm.gateway.jvm.java.lang.System
    for variable, name in JAVA_CREDENTIALS.items():
        if value := os.environ.get(variable):
            system.setProperty(name, value)
    context = SparkContext(gateway=jvm.gateway)
    return SparkSession(context)


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
