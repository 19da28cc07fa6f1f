"""The shop of ``lane.py`` with several workers of one cluster, on a catalog that several processes can use."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

import psycopg
from chaos.lane import SETTLE_SECONDS, Lane
from confluent_kafka.admin import AdminClient
from pyiceberg.table import StaticTable

from headrace_dev import jars
from headrace_dev.demo.compare import data_rows
from headrace_dev.demo.load import TABLES
from headrace_dev.postgres import SUPERUSER, Postgres
from headrace_dev.server import LOOPBACK, free_ports, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

_CATALOG = "spark.sql.catalog.lake"


def cluster_properties(postgres: Postgres, name: str, session_seconds: int) -> dict[str, str]:
    """Properties of every worker of a cluster, whose catalog is the database ``<name>_catalog``."""
    [driver] = jars.unpacked("debezium-postgres").glob("*/postgresql-*.jar")
    return {
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "session.timeout.ms": str(1000 * session_seconds),
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": str(driver),
        f"{_CATALOG}.type": "jdbc",
        f"{_CATALOG}.uri": f"jdbc:postgresql://{LOOPBACK}:{postgres.port}/{name}_catalog",
        f"{_CATALOG}.jdbc.user": SUPERUSER,
        f"{_CATALOG}.jdbc.password": "unused",
        f"{_CATALOG}.jdbc.schema-version": "V1",
    }


def cluster_rows(postgres: Postgres, name: str, table: str) -> Sequence[dict[str, Any]]:
    """The rows of a table of the lake, at the location in the cluster's catalog."""
    wanted = "SELECT metadata_location FROM iceberg_tables WHERE table_name = %s"
    with postgres.connect(f"{name}_catalog") as catalog:
        try:
            found = catalog.execute(wanted, (f"{name}_public_{table}",)).fetchone()
        except psycopg.errors.UndefinedTable:  # no process has used the catalog yet
            found = None
    return data_rows(StaticTable.from_metadata(found[0])) if found else []


class ClusterLane(Lane):
    """``count`` workers with one connector of as many tasks; ``worker`` is a running one, which answers requests."""

    def __init__(
        self,
        stack: Stack,
        name: str,
        folder: Path,
        count: int,
        session_seconds: int,
        tables: Sequence[str] = TABLES,
    ) -> None:
        session = {"consumer__override__session__timeout__ms": str(1000 * session_seconds)}
        super().__init__(stack, name, folder, tables, tasks__max=str(count), **session)
        self.session_seconds = session_seconds
        self.workers: list[Worker] = []
        self._silent: list[Worker] = []
        self._ports = free_ports(count)

    def __exit__(self, error_type: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        for worker in self.workers:
            worker.kill()
        super().__exit__(error_type, error, trace)

    def start_worker(self, failpoints: Mapping[str, str] | None = None) -> None:
        """Start all workers concurrently."""
        self._stack.postgres.create_database(f"{self.name}_catalog")
        self.workers = [self._worker(number, port) for number, port in enumerate(self._ports)]
        self.worker = self.workers[0]
        with ThreadPoolExecutor(len(self.workers)) as starting:
            list(starting.map(lambda worker: worker.start(), self.workers))

    def kill(self, worker: Worker) -> None:
        """``kill -9``; another worker answers requests from now on."""
        worker.kill()
        self._silence(worker)

    def start(self, worker: Worker) -> None:
        """Start a worker that was killed or stopped."""
        worker.start()
        if worker in self._silent:
            self._silent.remove(worker)

    @contextmanager
    def asleep(self, worker: Worker) -> Iterator[None]:
        """Suspend a worker and its JVM within the block (SIGSTOP), then resume them."""
        group = os.getpgid(worker.server.pid)
        os.killpg(group, signal.SIGSTOP)
        self._silence(worker)
        try:
            yield
        finally:
            os.killpg(group, signal.SIGCONT)
            self._silent.remove(worker)

    def living(self) -> list[Worker]:
        """The running workers."""
        return [worker for worker in self.workers if worker not in self._silent]

    def wait_until_all_are(self, state: str) -> None:
        """Wait until all running workers report this state of the connector and its tasks."""
        for worker in self.living():
            wait_until(partial(self._all_are, worker, state), f"{state} as {worker.url} says", SETTLE_SECONDS)

    def wait_until_spread(self) -> None:
        """Wait until all running workers report that a task runs on every worker."""
        for worker in self.living():
            wait_until(partial(self._spread, worker), f"a task on each as {worker.url} says", SETTLE_SECONDS)
        self.wait_until_all_are("RUNNING")

    def owners(self, worker: Worker) -> set[str]:
        """The workers of the tasks, as a worker reports them."""
        return {task["worker_id"] for task in worker.tasks(self.name)}

    def errors(self) -> list[str]:
        """The task failures in the logs of the workers."""
        lines = [line for worker in self.workers for line in worker.server.log.read_text(errors="replace").splitlines()]
        return [line for line in lines if f"Task {self.name}-" in line]

    def _silence(self, worker: Worker) -> None:
        self._silent.append(worker)
        self.worker = self.living()[0]
        for other in self.living():
            assert other.states(self.name)

    def _all_are(self, worker: Worker, state: str) -> bool:
        return set(worker.states(self.name)) == {state}

    def _spread(self, worker: Worker) -> bool:
        return len(self.owners(worker)) == len(self.workers)

    def rows(self, table: str, warehouse: Path | None = None) -> Sequence[dict[str, Any]]:
        """The rows in the lake."""
        return cluster_rows(self._stack.postgres, self.name, table)

    def _worker(self, number: int, port: int) -> Worker:
        properties = cluster_properties(self._stack.postgres, self.name, self.session_seconds)
        kafka, name = self._stack.kafka, f"worker-{number}"
        return Worker(self._folder, kafka, self.warehouse, name=name, port=port, properties=properties)


class Watched(Protocol):
    """An object with a connector ``name`` and a client of its broker."""

    name: str

    def admin(self) -> AdminClient: ...


class Twins:
    """Watches the connector's consumer group for a task with two members, and records how long it has them."""

    def __init__(self, lane: Watched) -> None:
        self.longest = 0.0
        self._lane = lane
        self._since: dict[str, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        admin, group = self._lane.admin(), f"connect-{self._lane.name}"
        while not self._ended.wait(0.5):
            described = admin.describe_consumer_groups([group])[group].result(timeout=10)
            counts = Counter(member.client_id for member in described.members)
            now = monotonic()
            self._since = {task: self._since.get(task, now) for task, count in counts.items() if count > 1}
            self.longest = max([self.longest, *(now - since for since in self._since.values())])
