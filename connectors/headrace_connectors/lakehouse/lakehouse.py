"""The lakehouse on Spark: opens tables, each with a child session of the worker's one session.

Tests: ``tests/contracts/test_iceberg_tables.py``, ``tests/contracts/test_delta_tables.py``.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.config.engine import EngineSettings
from headrace.core.doctor.lake import LakeTrial
from headrace.core.model.errors import ConfigError, Retriable
from headrace.core.tables.naming import LAKE, check_catalog, check_locations, check_table_path, other_catalogs
from headrace.core.tables.table_layout import TableLayout
from headrace.ports import EngineStatus, TableOptions
from headrace_connectors.lakehouse.compaction_plan import HourlyBytes, WriteBudget
from headrace_connectors.lakehouse.delta import DeltaFormat
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.failures import translate_errors
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.spark_engine import STOP_SECONDS, SparkEngine
from headrace_connectors.lakehouse.spark_environment import environment
from headrace_connectors.lakehouse.spark_settings import (
    SHUFFLE_PARTITIONS,
    TrustStore,
    is_local,
    local_cores,
    memory,
    settings,
    warehouse_of,
)
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession, new_child
from headrace_connectors.lakehouse.trial import trial_path, try_out
from headrace_connectors.lakehouse.version_hint import VERSION_HINT, correct_version_hint
from headrace_connectors.lakehouse.writer import SparkTable

_SIGNS = {"iceberg": f"metadata/{VERSION_HINT}", "delta": "_delta_log"}  # what a table's folder has


class SparkLakehouse:
    """``ports.Lakehouse`` on Spark: Iceberg and Delta tables. Safe to call from several threads.

    ``warehouse`` is a path or URL, ``spark`` the worker's ``spark.*`` settings, ``jars`` the value for ``spark.jars``.
    ``available`` bytes are for Spark's JVM and for changes; without it the heap has its largest default.
    """

    def __init__(
        self,
        warehouse: str,
        spark: Mapping[str, str],
        jars: Sequence[Path] | None = None,
        *,
        limits: EngineSettings | None = None,
        available: int | None = None,
    ) -> None:
        local = urlsplit(warehouse).scheme in ("", "file")
        self._path = Path(urlsplit(warehouse).path).absolute() if local else None
        self._warehouse = warehouse
        limits = limits or EngineSettings()
        self.indexes = IndexMemory(limits.index_bytes)
        if available is not None:
            available -= limits.index_bytes
        self._memory = memory(spark, available)
        self._upkeep_bytes = HourlyBytes(limits.maintenance_bytes)
        location = str(self._path) if self._path else warehouse
        trust_file, password = limits.truststore_location, limits.truststore_password
        self._trust_store = TrustStore(trust_file, password) if trust_file else None
        trusted = self._trust_store.path if self._trust_store else None
        self._settings = settings(location, spark, jars, available, limits.extra_jars, trusted)
        self._engine = SparkEngine(self._settings, environment(os.environ, limits.environment), limits)
        self._scratch: Path | None = None
        self._master = self._settings["spark.master"]
        if is_local(self._master):
            self._scratch = Path(tempfile.gettempdir(), f"headrace-{uuid.uuid4().hex}")

    def start(self) -> None:
        """Start Spark, if it does not run. Raises Retriable or ConfigError with the cause."""
        self._session()

    @property
    def engine(self) -> EngineStatus:
        return self._engine.status

    def table(self, namespace: str, name: str, options: TableOptions) -> SparkTable:
        """Open a table by name; nothing is created before ``evolve``. Starts Spark if it is not running.

        Raises ConfigError for names and properties that lead outside of the warehouse.
        """
        path = TablePath(namespace, name)
        table_format = self._format(path, options)
        if options.catalog == LAKE and self._path is not None:
            folder = self._path / path.namespace / path.name
            _refuse_other_format(folder, options.format)
            correct_version_hint(folder / "metadata")
        budget = WriteBudget(HourlyBytes(options.maintenance_bytes), self._upkeep_bytes)
        return SparkTable(self._table_session(path), table_format, path, options, budget)

    def try_out(self, namespace: str, options: TableOptions, readers: Collection[str] = ()) -> LakeTrial:
        """Try the catalog with a table that is removed again (``trial.py``). Starts Spark if it is not running."""
        path = trial_path(namespace)
        # Iceberg refuses to drop a table with its files if the property is false.
        properties = {name: value for name, value in options.properties.items() if name != "gc.enabled"}
        table_format = self._format(path, replace(options, layout=TableLayout(), properties=properties))
        return try_out(self._table_session(path), table_format, path, readers)

    def _format(self, path: TablePath, options: TableOptions) -> TableFormat:
        check_table_path(path.namespace, path.name)
        check_catalog(options.catalog, options.format, other_catalogs(self._settings))
        check_locations(options.properties, warehouse_of(options.catalog, self._settings))
        if options.format == "iceberg":
            return IcebergFormat(options, self.indexes)
        if options.format == "delta":
            return DeltaFormat(str(self._path or self._warehouse), options)
        raise ConfigError(f"table.format {options.format!r} is not known; use iceberg or delta", key="table.format")

    def _table_session(self, path: TablePath) -> TableSession:
        label = f"{path.namespace}.{path.name}"
        spark = self._session()
        with translate_errors(label), self._engine.statement(label, spark):
            child = new_child(spark)
        # Unless the operator has chosen a number, shuffles on a cluster follow its size.
        follows = SHUFFLE_PARTITIONS not in self._settings
        return TableSession(child, label, self._scratch, local_cores(self._master), self._engine, follows=follows)

    def memory(self) -> Mapping[str, int]:
        """Return the bytes of Spark's JVM by part, and those of key indexes."""
        return {**self._memory.parts(), "key indexes": self.indexes.limit}

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if the warehouse cannot be written."""
        path = self._path
        if path is None:
            with translate_errors("warehouse"):
                self._session().sql(f"SHOW NAMESPACES IN {quoted(LAKE)}").collect()
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"headrace")
        except (FileExistsError, NotADirectoryError) as error:
            raise ConfigError(f"warehouse: {path} is not a folder; choose another path", key="warehouse") from error
        except OSError as error:
            raise Retriable(
                f"warehouse: {path} cannot be written: {error.strerror}; check the path and the rights of the worker's "
                "user"
            ) from error

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Stop Spark and remove the shared files. Idempotent. ``seconds`` are those of ``SparkEngine.close``."""
        self._engine.close(seconds)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self._trust_store is not None:
            self._trust_store.remove()

    def _session(self) -> Any:
        if self._scratch is not None:
            self._scratch.mkdir(mode=0o700, exist_ok=True)
        if self._trust_store is not None:
            self._trust_store.write()
        return self._engine.session()


def _refuse_other_format(folder: Path, wanted: str) -> None:
    """Refuse two formats in one folder: each would delete the other's files."""
    for other, sign in _SIGNS.items():
        if other != wanted and (folder / sign).exists():
            raise ConfigError(
                f"{folder.parent.name}.{folder.name} is a table of format {other}, and table.format is {wanted}: "
                "keep the format, move the table away, or choose another table.namespace",
                key="table.format",
            )
