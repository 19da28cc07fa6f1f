"""A shop under load with a sink worker that can be killed: database, Debezium, Kafka, the real process.

Everything has its own names, so that several lanes may use one stack. A test ends with ``prove``: the load stops, all
changes are applied, and every table equals the database, cell by cell.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import psycopg
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql

from headrace_dev.connect import debezium_postgres
from headrace_dev.demo.compare import database_rows, differences, has_row, key_columns, lake_rows
from headrace_dev.demo.load import TABLES, Connection, Load, Shop
from headrace_dev.postgres import SUPERUSER, Postgres
from headrace_dev.server import LOOPBACK, free_ports, http, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Samples, Worker

PLACEHOLDER = "__debezium_unavailable_value"
SETTLE_SECONDS = 180
TRANSACTIONS_PER_SECOND = 40
_READ = "kafka_connect_sink_task_sink_record_read_total"
_WRITTEN = "kafka_connect_sink_task_sink_record_send_total"
_SKIPPED = "headrace_records_skipped_total"
_FORMS_OF_THE_PLACEHOLDER = (PLACEHOLDER, PLACEHOLDER.encode())


class Lake(Protocol):
    """Where the tables of a lane are, if not in a folder."""

    @property
    def properties(self) -> Mapping[str, str]:
        """The keys of the worker."""

    def rows(self, namespace: str, name: str) -> Sequence[dict[str, Any]]:
        """The data columns of every row of a table; none while it does not exist."""


class Lane:
    """One shop, one source connector, one worker with the sink connector ``name``.

    ``tables`` are those that the sink reads, orders among them. ``settings`` are options of this lane, with ``__`` for
    a dot. ``worker`` are options of its worker, ``environment`` its variables, and ``lake`` is where this writes to
    instead of a folder.
    """

    def __init__(
        self,
        stack: Stack,
        name: str,
        folder: Path,
        tables: Sequence[str] = TABLES,
        lake: Lake | None = None,
        worker: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: str,
    ) -> None:
        self.name = name
        self.topics = [f"{name}.public.{table}" for table in tables]
        self.warehouse = folder / "warehouse"
        self.worker: Worker
        self._stack = stack
        self._postgres = stack.postgres
        self._folder = folder
        self._tables = tables
        self._lake = lake
        self._worker_settings = {**(worker or {}), **(lake.properties if lake else {})}
        self._environment = dict(environment or {})
        self._settings = settings
        self._starts = itertools.count(1)
        self._port = free_ports(1)[0]
        self._exit = ExitStack()
        self._load: Load | None = None

    def __enter__(self) -> Self:
        self._postgres.create_database(self.name)
        self._connection: Connection = self._exit.enter_context(self._postgres.connect(self.name))
        self._shop = Shop(self._connection)
        self._shop.open(customers=200, products=60, orders=300, reviews=40)
        pace = {"heartbeat__interval__ms": "1000", "retriable__restart__connector__wait__ms": "500"}
        source = debezium_postgres(self._stack.postgres, self.name, self.name, **pace)
        self._stack.connect.put_connector(self.name, source)
        self._exit.callback(self._stack.connect.delete_connector, self.name)
        wait_until(lambda: set(self.topics) <= set(self._stack.kafka.topics()), "topic of every table", 180)
        self.start_worker()
        self._exit.callback(lambda: self.worker.kill())
        self.worker.put_connector(self.name, self.sink_config())
        return self

    def __exit__(self, error_type: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._load is not None:
            self._load.stop()
        self._exit.close()

    def sink_config(self, **changes: str) -> dict[str, str]:
        """The sink connector's configuration; ``changes`` with ``__`` for a dot."""
        return {
            "connector.class": "LakehouseSink",
            "tasks.max": "1",
            "topics": ",".join(self.topics),
            "batch.linger.ms": "200",
            "consumer.override.session.timeout.ms": "10000",
            "post.processors": "reselector",
            "post.processors.reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
            "post.processors.reselector.reselect.null.values": "false",
            "post.processors.reselector.reselect.cache.enabled": "true",
            "post.processors.reselector.reselect.cache.admission": "always",
            "reselect.database.hostname": LOOPBACK,
            "reselect.database.port": str(self._postgres.port),
            "reselect.database.user": SUPERUSER,
            "reselect.database.password": "unused",
            "reselect.database.dbname": self.name,
            **{key.replace("__", "."): value for key, value in (self._settings | changes).items()},
        }

    # -- the worker ---------------------------------------------------------------------------------------------------

    def start_worker(self, failpoints: Mapping[str, str] | None = None) -> None:
        """Start a worker process with the state of the last one; ``failpoints`` pause it where they are set."""
        plan = ",".join(f"{name}={action}" for name, action in (failpoints or {}).items())
        self.worker = Worker(
            self._folder,
            self._stack.kafka,
            self.warehouse,
            name=f"worker-{next(self._starts)}",
            port=self._port,
            properties={
                **SHORT_LIVED,
                "group.id": self.name,
                "config.storage.topic": f"{self.name}-configs",
                "status.storage.topic": f"{self.name}-status",
                **self._worker_settings,
            },
            environment={
                "HEADRACE_FAILPOINTS": plan,
                "HEADRACE_FAILPOINTS_DIR": str(self._folder),
                **self._environment,
            },
        )
        self.worker.start()

    def restart_worker(self, failpoints: Mapping[str, str] | None = None) -> None:
        """Start again after a kill, and wait until the connector runs."""
        self.start_worker(failpoints)
        wait_until(lambda: self.states() == {"RUNNING"}, "running tasks", 120)

    def kill_in_a_batch(self, after: float) -> float:
        """``kill -9`` after ``after`` seconds, as soon as the worker has unwritten events; returns their number."""
        time.sleep(after)  # no condition to wait for: kills should hit different steps
        events = wait_until(self.events_in_hand, "batch in hand", 60)
        self.worker.kill()
        return events

    def kill_at(self, failpoint: str) -> None:
        """``kill -9`` of a worker that is paused at ``failpoint``."""
        marker = self._folder / failpoint
        wait_until(marker.exists, f"worker at {failpoint}", 90)
        self.worker.kill()
        marker.unlink()

    def events_in_hand(self) -> float:
        """Change events that the worker has read and not yet written; all counters are of one answer of the worker."""
        samples = self.worker.metrics()
        read = self._sum(samples, _READ)
        return max(0.0, read - self._sum(samples, _WRITTEN) - self._sum(samples, _SKIPPED))

    def written(self) -> float:
        """Change events that the worker has written."""
        return self.counted(_WRITTEN)

    def reselects(self, result: str) -> float:
        """SELECTs that the worker has sent to the database, by result: ok or transient."""
        return self.counted("reselect_queries_total", ("result", result))

    def counted(self, name: str, *wanted: tuple[str, str]) -> float:
        """The sum of a counter of the worker over all series of the connector that have the ``wanted`` labels."""
        return self._sum(self.worker.metrics(), name, *wanted)

    def _sum(self, samples: Samples, name: str, *wanted: tuple[str, str]) -> float:
        labels = {("connector", self.name), *wanted}
        return sum(value for (each, has), value in samples.items() if each == name and labels <= has)

    def order(self, verb: str, state: str) -> None:
        """Request a target state and wait until connector and tasks have it."""
        self.worker.call("PUT", f"/connectors/{self.name}/{verb}")
        wait_until(lambda: self.states() == {state}, f"state {state}", SETTLE_SECONDS)

    def reconfigure(self, **changes: str) -> None:
        """Run with ``changes`` of the configuration: all tasks are new ones, as after a PUT."""
        self.order("stop", "STOPPED")
        config = self.sink_config(**changes)
        http.put(f"{self.worker.url}/connectors/{self.name}/config", json=config, timeout=60).raise_for_status()
        self.order("resume", "RUNNING")

    def resident_megabytes(self) -> tuple[int, int]:
        """Memory of the worker's own process, and of the JVM that it started."""
        worker = self.worker.server.pid
        processes = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        others = [each for each in processes if each != worker and _group_of(each) == worker]
        return _resident_megabytes(worker), sum(map(_resident_megabytes, others))

    def states(self) -> set[str]:
        """The distinct states of connector and tasks."""
        return set(self.worker.states(self.name))

    def admin(self) -> AdminClient:
        """A client for groups and offsets."""
        return self._stack.kafka.admin()

    def trace(self) -> str:
        """The trace of the first task that does not run, or ""."""
        tasks = self.worker.tasks(self.name)
        return next((task.get("trace", "") for task in tasks if task["state"] != "RUNNING"), "")

    def log(self) -> str:
        """The log of the worker."""
        return self.worker.server.log.read_text(errors="replace")

    def other_worker(self, name: str, warehouse: Path) -> Worker:
        """Another worker with its own warehouse and storage topics; the caller starts and kills it."""
        return Worker(
            self._folder,
            self._stack.kafka,
            warehouse,
            name=f"worker-{next(self._starts)}",
            properties={
                **SHORT_LIVED,
                "group.id": f"{self.name}-{name}",
                "config.storage.topic": f"{self.name}-{name}-configs",
                "status.storage.topic": f"{self.name}-{name}-status",
            },
        )

    # -- the load -----------------------------------------------------------------------------------------------------

    def begin_load(self, transactions_per_second: int = TRANSACTIONS_PER_SECOND) -> None:
        """Start the load of the shop."""
        self.end_load()
        self._load = Load(self._shop, transactions_per_second)
        self._load.start()

    @property
    def transactions(self) -> int:
        """The number of transactions of the load so far."""
        return self._load.transactions if self._load else 0

    def end_load(self) -> None:
        """Stop the load."""
        load, self._load = self._load, None
        if load is not None:
            load.stop()

    # -- the database -------------------------------------------------------------------------------------------------

    @contextmanager
    def without_database(self) -> Iterator[None]:
        """``kill -9`` of the database under load, which ends the load.

        Afterwards the shop reads the result of its last change.
        """
        self._stack.postgres.kill()
        with suppress(psycopg.OperationalError):
            self.end_load()
        try:
            yield
        finally:
            self._stack.postgres.start()
            self._connection = self._exit.enter_context(self._stack.postgres.connect(self.name))
            self._shop.reopen(self._connection)

    def continue_on(self, postgres: Postgres) -> None:
        """Let the shop go on in a copy of its database on another server. The load must not run."""
        self._postgres = postgres
        self._connection = self._exit.enter_context(postgres.connect(self.name))
        self._shop.reopen(self._connection)

    def create_reader(self, name: str, password: str) -> None:
        """A user of the database that may read every table, with a password."""
        role, tables = sql.Identifier(name), sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {}")
        self._connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(password)))
        self._connection.execute(tables.format(role))

    def change_unseen(self, statement: str) -> None:
        """Change rows without an event of the source connector."""
        publish = "ALTER PUBLICATION {} SET (publish = {})"
        name = sql.Identifier(self.name)
        between = self._load.transaction if self._load else nullcontext()  # its changes keep their events
        with between, self._stack.postgres.connect(self.name) as connection:
            connection.execute(sql.SQL(publish).format(name, sql.Literal("insert")))
            connection.execute(statement.encode())
            connection.execute(sql.SQL(publish).format(name, sql.Literal("insert, update, delete, truncate")))

    # -- the proof ----------------------------------------------------------------------------------------------------

    def backlog(self) -> int:
        """Records in the topics that the connector has not committed."""
        committed = self.worker.committed(self.name)
        return sum(end - committed.get(partition, 0) for partition, end in self._ends().items())

    def prove(self) -> int:
        """Stop the load, wait until all changes are applied, compare every cell. Returns the number of rows."""
        self.end_load()
        last = self._shop.close()
        wait_until(
            lambda: all(has_row(self.rows(table), last[table]) for table in self._tables),
            "last row of each table in the lake",
            SETTLE_SECONDS,
            0.5,
        )
        wait_until(lambda: self.applied_by(self.worker, self.name), "end of the lag", SETTLE_SECONDS, 0.5)
        rows = sum(self.compare(table) for table in self._tables)
        print(f"{self.name}: {rows} rows in {len(self._tables)} tables equal in database and lakehouse")
        return rows

    def rows(self, table: str, warehouse: Path | None = None) -> Sequence[dict[str, Any]]:
        """The rows in the lake."""
        if self._lake is not None and warehouse is None:
            return self._lake.rows("headrace", f"{self.name}_public_{table}")
        return lake_rows((warehouse or self.warehouse) / "headrace" / f"{self.name}_public_{table}")

    def compare(self, table: str, warehouse: Path | None = None) -> int:
        """Fail unless every cell of a table equals that of the database, each row once. Returns the number of rows."""
        return self.compare_rows(table, self.rows(table, warehouse))

    def compare_rows(self, table: str, found: Sequence[dict[str, Any]]) -> int:
        """The same for rows in another warehouse."""
        wanted = database_rows(self._connection, table)
        different = list(differences(table, key_columns(self._connection, table), wanted, found))
        assert not different, f"{len(different)} rows differ: {'; '.join(map(str, different[:5]))}"
        cells = itertools.chain.from_iterable(row.values() for row in found)
        assert not any(cell in _FORMS_OF_THE_PLACEHOLDER for cell in cells if isinstance(cell, str | bytes))
        return len(wanted)

    def _ends(self) -> dict[tuple[str, int], int]:
        wanted = {TopicPartition(topic, 0): OffsetSpec.latest() for topic in self.topics}
        admin = self.admin()  # close cancels its pending futures
        return {(at.topic, at.partition): found.result().offset for at, found in admin.list_offsets(wanted).items()}

    def applied_by(self, worker: Worker, connector: str) -> bool:
        """Whether a connector has committed all offsets that its topics have now."""
        committed = worker.committed(connector)
        return all(committed.get(partition, 0) >= end for partition, end in self._ends().items())


def _group_of(process: int) -> int | None:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return None


def _resident_megabytes(process: int) -> int:
    """Return the memory of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        lines = []
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS")), 0)


def pauses(count: int, seed: int = 1) -> Sequence[float]:
    """The seconds between the kills of a worker, chosen to hit different steps of different batches."""
    source = random.Random(seed)
    return [source.uniform(0.5, 4.0) for _ in range(count)]
