"""The composition root: which modules a worker loads, and that what it constructs fits the ports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headrace
import headrace_connectors

COMPOSE = """
import sys
from headrace.config import WorkerConfig
from headrace.config.reselect import reselect_options
from headrace.core.reselect.cache.rows import CacheLimits
from headrace.ports import RowStoreOptions
from headrace_app import command, composition

warehouse, *arguments = sys.argv[1:]
own = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", "warehouse": warehouse}
topics = {"group.id": "headrace", "config.storage.topic": "configs", "status.storage.topic": "status"}
composition.worker(WorkerConfig(own, distributed=False))
composition.worker(WorkerConfig({**own, **topics}))
for database in ("postgresql", "oracle"):
    options = {"type": database, "hostname": "db", "user": "reader", "dbname": "shop"}
    composition.row_source(reselect_options({f"reselect.database.{name}": text for name, text in options.items()}))
for cache, options in (("memory", {}), ("rocksdb", {"path": f"{warehouse}/cache"})):
    composition.row_store(cache, RowStoreOptions(CacheLimits(), "shop", 0, options)).close()
composition.schema_registry("confluent", {"schema.registry.url": "http://127.0.0.1:1"})
composition.schema_registry("apicurio", {"apicurio.registry.url": "http://127.0.0.1:1"})
print(*sorted(name for name in sys.modules if name.split(".")[0].startswith("headrace")))
"""
STATUS = """
import sys
from headrace_app.command import main
assert main(["status", "--url", "http://127.0.0.1:1"]) == 2
print(*sorted(sys.modules))
"""


def _modules(program: str, folder: Path) -> set[str]:
    """Return the modules that a program has loaded. It finds only the packages that are shipped."""
    shipped = [str(Path(each.__file__).parents[1]) for each in (headrace, headrace_connectors)]
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(shipped)},
    )
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def test_a_worker_loads_no_memory_version_of_a_port(tmp_path: Path) -> None:
    """Everything that the composition root constructs is real: nothing of it imports what tests use instead."""
    loaded = _modules(COMPOSE, tmp_path)
    for package in ("kafka.stores", "lakehouse", "sql", "registry", "rocksdb"):
        assert f"headrace_connectors.{package}" in loaded
    assert not [name for name in loaded if "memory" in name.split(".") or name.startswith("headrace_dev")]


def test_a_command_loads_only_what_it_uses(tmp_path: Path) -> None:
    """``headrace status`` sends a request: it loads no Faust, Spark, Kafka client or driver of a database."""
    loaded = _modules(STATUS, tmp_path)
    assert "headrace_app.status" in loaded
    assert not loaded & {"faust", "pyspark", "aiokafka", "psycopg", "oracledb", "rocksdict"}
