"""Spark's engine in a process of its own, because PySpark has one session per process.

Prints a JSON object for each step. ``test_spark_engine.py`` runs it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.config.engine import EngineSettings
from headrace.core.model.errors import HeadraceError
from headrace.ports import EngineState, TableOptions
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED

SECRETS = {"CONNECT_SASL_JAAS_CONFIG": "secret-of-kafka", "AWS_SECRET_ACCESS_KEY": "secret-of-aws"}
CATALOG_SECRET = "spark.sql.catalog.lake.s3.secret-access-key"

_DIRECT_MEGABYTES = 24
_LIMITS = EngineSettings(statement_timeout=3.0, hang_timeout=5.0)
"""Those of the steps that fail. On a busy machine a step that has to succeed needs more time."""
_LONG = "SELECT sum(hash(a.id, b.id)) FROM range(100000000) a JOIN range(2000000) b ON a.id % 7 = b.id % 7"


class Trial:
    """A lakehouse whose Spark fails in several ways."""

    def __init__(self, warehouse: Path) -> None:
        settings = {**SHORT_LIVED, "spark.master": "local[2]", "spark.driver.memory": "600m"}
        settings[CATALOG_SECRET] = "secret-of-storage"
        settings["spark.driver.extraJavaOptions"] += f" -XX:MaxDirectMemorySize={_DIRECT_MEGABYTES}m"
        self._lakehouse = SparkLakehouse(str(warehouse), settings, resolve("lakehouse"))
        self._warehouse, self._settings = str(warehouse), settings

    def refused(self) -> Mapping[str, Any]:
        """Start Spark with a master that does not exist."""
        lakehouse = SparkLakehouse(
            self._warehouse, {**self._settings, "spark.master": "local[none]"}, resolve("lakehouse")
        )
        try:
            lakehouse.start()
        except HeadraceError as error:
            return {"error": type(error).__name__, "message": str(error)}
        finally:
            lakehouse.close()
        return {}

    def start(self) -> Mapping[str, Any]:
        """Start Spark. Return what other processes see of it, and what it has received."""
        self._lakehouse.start()
        process = Path("/proc", str(self._pid()))
        session = self._session()._spark
        return {
            "seen": "".join((process / name).read_text() for name in ("cmdline", "environ")),
            "storage": session.conf.get(CATALOG_SECRET),
            "aws": session._jvm.java.lang.System.getProperty("aws.secretAccessKey"),
        }

    def large(self) -> Mapping[str, Any]:
        """Read a row group that is larger than the JVM's direct memory, with Spark's reader and with Iceberg's."""
        file = Path(self._warehouse, "large.parquet")
        rows = _DIRECT_MEGABYTES * 1024 * 1024 // 8
        numbers = np.random.default_rng(1).integers(0, 2**62, (2, rows))
        pq.write_table(pa.table({"a": numbers[0], "b": numbers[1]}), file, row_group_size=rows)
        session, table = self._session(), "lake.trial.large"
        session.rows("CREATE NAMESPACE IF NOT EXISTS lake.trial")
        session.rows(f"CREATE TABLE {table} (a BIGINT, b BIGINT) USING iceberg")
        session.rows(f"INSERT INTO {table} SELECT * FROM parquet.`{file}`")
        wanted, query = int((numbers % 10).sum()), "SELECT sum(a % 10) + sum(b % 10) AS sum FROM"
        return {"all": all(session.rows(f"{query} {at}")[0].sum == wanted for at in (f"parquet.`{file}`", table))}

    def statement(self) -> Mapping[str, Any]:
        """Run a statement none of whose tasks ends in time."""
        session = self._session()
        return self._fails(lambda: session.rows(_LONG))

    def driver(self) -> Mapping[str, Any]:
        """Make a call that no cancellation ends, as a commit to a storage that does not answer."""
        session = self._session()

        def sleep() -> None:
            with session.calling():
                session._spark._jvm.java.lang.Thread.sleep(600_000)

        return self._fails(sleep)

    def memory(self) -> Mapping[str, Any]:
        """Use more memory than the heap has."""
        session = self._session()

        def fill() -> None:
            with session.calling():
                session._spark._jvm.java.util.Collections.nCopies(1_000_000_000, "x").toArray()

        return self._fails(fill)

    def committing(self) -> Mapping[str, Any]:
        """End the process in a statement that commits: its settings cannot be reset any more."""
        session, pid = self._session(), self._pid()

        def commit() -> None:
            with session.with_settings({"spark.sql.iceberg.snapshot-property.name": "value"}):
                os.kill(pid, signal.SIGKILL)
                session.run("SELECT 1")

        return self._fails(commit)

    def earlier(self) -> Mapping[str, Any]:
        """Use a session of an earlier process, as a table does that was idle when that ended."""
        session, restarts = self._session(), self._lakehouse.engine.restarts
        os.kill(self._pid(), signal.SIGKILL)
        wait_until(lambda: self._lakehouse.engine.restarts > restarts, "another process", 180)
        return self._fails(lambda: session.rows("SELECT 1"))

    def stopped(self) -> Mapping[str, Any]:
        """Stop the process, so that it does not answer."""
        session, pid = self._session(), self._pid()
        os.kill(pid, signal.SIGSTOP)
        return self._fails(lambda: session.rows("SELECT 1"))

    def close(self) -> Mapping[str, Any]:
        """Close the lakehouse while its process is stopped."""
        pid, began = self._pid(), time.monotonic()
        os.kill(pid, signal.SIGSTOP)
        self._lakehouse.close()
        return {"seconds": time.monotonic() - began, "left": Path("/proc", str(pid)).exists()}

    def _fails(self, call: Callable[[], object]) -> Mapping[str, Any]:
        """Return the error of a call, whether the process is a new one afterwards, and whether it works."""
        pid, engine = self._pid(), self._lakehouse._engine
        engine._limits = _LIMITS
        try:
            call()
        except HeadraceError as error:
            engine._limits = EngineSettings()
            wait_until(lambda: self._lakehouse.engine.state is EngineState.RUNNING, "a running Spark", 180)
            works = self._session().rows("SELECT 7 AS seven")[0].seven == 7
            return {"error": type(error).__name__, "message": str(error), "new": self._pid() != pid, "works": works}
        return {"error": "none"}

    def _session(self) -> Any:
        return self._lakehouse.table("trial", "item", TableOptions())._session

    def _pid(self) -> int:
        running = self._lakehouse._engine._running
        assert running is not None
        return running.jvm.pid


def main() -> None:
    """Run the steps that the arguments name, in a warehouse that the first argument names."""
    logging.basicConfig(level=logging.WARNING)
    os.environ.update(SECRETS)
    trial = Trial(Path(sys.argv[1]))
    for step in sys.argv[2:]:
        print(json.dumps({"step": step, **getattr(trial, step)()}), flush=True)


if __name__ == "__main__":
    main()
