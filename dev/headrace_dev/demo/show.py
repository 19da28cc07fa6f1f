"""``make demo``: run PostgreSQL, Debezium, Kafka and a Headrace worker with a load, and show the tables in the lake."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from headrace_dev.connect import debezium_postgres
from headrace_dev.demo import view
from headrace_dev.demo.compare import database_rows, differences, has_row, key_columns, lake_rows
from headrace_dev.demo.load import TABLES, Connection, Load, Shop
from headrace_dev.postgres import SUPERUSER
from headrace_dev.server import LOOPBACK, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Worker

NAME = "shop"
FOLDER = Path(".demo")
REST_PORT = 8083
ONCE_SECONDS = 60
TRANSACTIONS_PER_SECOND = 60
SETTLE_SECONDS = 120
VERIFY_SECONDS = 15
"""How often each table is compared with its source, so that the console soon has a proof of each."""
_SHOWN_DIFFERENCES = 20


def demo(*, once: bool) -> int:
    """Run the demo until Ctrl-C; with ``once``, run it for a minute and compare. Return the exit status."""
    begin = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with _Demo() as running:
        running.start()
        print(f"first rows in the lake after {time.monotonic() - begin:.0f} s")
        with contextlib.suppress(KeyboardInterrupt):
            running.watch(ONCE_SECONDS if once else None)
        if once:
            return running.prove()
    print(f"\nStopped. The tables stay until the next demo:\n{_how_to_query()}")
    return 0


class _Demo:
    """The running servers; the end of the ``with`` block stops them all."""

    def __init__(self) -> None:
        self._stack = Stack(logs=FOLDER / "logs")
        self._exit = contextlib.ExitStack()
        self._exit.push(self._stack)
        self._folders = {table: FOLDER / "warehouse" / "headrace" / f"{NAME}_public_{table}" for table in TABLES}

    def __enter__(self) -> _Demo:
        return self

    def __exit__(self, *error: object) -> None:
        self._exit.__exit__(*error)  # type: ignore[arg-type]  # the same three values, passed on

    def start(self) -> None:
        """Start all servers and wait for the first row of every table."""
        with _step("starting Kafka and PostgreSQL"):
            self._stack.start("kafka", "postgres")
        with _step("starting Debezium and Headrace; opening the shop"), ThreadPoolExecutor() as pool:
            waiting = [pool.submit(self._stack.start, "connect"), pool.submit(self._start_worker)]
            self._open_shop()
            for part in waiting:
                part.result()
        with _step("creating the connectors"):
            self._stack.connect.put_connector(NAME, source_config(self._stack))
            # A pattern subscription finds new topics at the next metadata refresh; here the topics exist before it.
            topics = {f"{NAME}.public.{table}" for table in TABLES}
            wait_until(lambda: topics <= set(self._stack.kafka.topics()), "topic of every table")
            self._worker.put_connector(NAME, sink_config(self._stack))
        with _step("waiting for the snapshot"):
            wait_until(lambda: all(map(view.row_count, self._folders.values())), "row in every table", 120, pause=0.25)

    def watch(self, seconds: float | None) -> None:
        """Run the load and show the progress, for ``seconds`` or until Ctrl-C."""
        load = Load(self._shop, TRANSACTIONS_PER_SECOND)
        end = time.monotonic() + (seconds if seconds is not None else float("inf"))
        load.start()
        try:
            with view.display(self._how_to_go_on()) as show:
                while time.monotonic() < end:
                    show(view.take_sample(self._worker, self._folders, load.transactions))
                    time.sleep(1)
        finally:
            load.stop()

    def prove(self) -> int:
        """Wait until all events are applied, compare every cell, and print the result. Return the exit status."""
        with _step("the load has ended; waiting until all of it is applied"):
            self._settle(self._shop.close())
        found = []
        rows = 0
        for table, folder in self._folders.items():
            wanted = database_rows(self._connection, table)
            rows += len(wanted)
            found += list(differences(table, key_columns(self._connection, table), wanted, lake_rows(folder)))
        for difference in found[:_SHOWN_DIFFERENCES]:
            print(difference)
        if found:
            print(f"demo: {len(found)} of {rows} rows in {len(TABLES)} tables differ")
            return 1
        print(f"demo: {rows} rows in {len(TABLES)} tables equal in database and lakehouse")
        return 0

    def _settle(self, last_rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Wait for the last row of each table, then for the records behind it."""
        wait_until(lambda: self._has_rows(last_rows), "last row of each table in the lake", SETTLE_SECONDS, pause=0.5)
        ends = self._end_offsets()
        wait_until(lambda: _reached(self._worker.committed(NAME), ends), "end of the lag", SETTLE_SECONDS, pause=0.5)

    def _has_rows(self, keys: Mapping[str, Mapping[str, Any]]) -> bool:
        return all(has_row(lake_rows(self._folders[table]), key) for table, key in keys.items())

    def _end_offsets(self) -> dict[tuple[str, int], int]:
        admin = self._stack.kafka.admin()
        wanted = {TopicPartition(f"{NAME}.public.{table}", 0): OffsetSpec.latest() for table in TABLES}
        return {(at.topic, at.partition): found.result().offset for at, found in admin.list_offsets(wanted).items()}

    def _start_worker(self) -> None:
        port = _first_free_port(REST_PORT)
        # In the demo's folder, so that its log and its worker.properties can be looked at. The start competes with
        # three other servers for the cores, and a demo rarely lasts until optimised code has paid.
        self._worker = Worker(FOLDER, self._stack.kafka, FOLDER / "warehouse", port=port, properties=SHORT_LIVED)
        self._exit.callback(self._worker.stop)
        self._worker.start()

    def _open_shop(self) -> None:
        self._stack.postgres.create_database(NAME)
        self._connection: Connection = self._exit.enter_context(self._stack.postgres.connect(NAME))
        self._shop = Shop(self._connection)
        self._shop.open()

    def _how_to_go_on(self) -> str:
        url = self._worker.url
        return (
            f"the console, in a browser: {url}/ui\n"
            f"Headrace's REST API (Kafka Connect's): {url}\n"
            f"  curl -s {url}/connectors/{NAME}/status\n"
            f"  curl -s -X PUT {url}/connectors/{NAME}/pause      …/resume goes on\n"
            f"  its log and configuration: {FOLDER}/headrace.log, {FOLDER}/headrace/worker.properties\n"
            f"  psql '{self._stack.postgres.dsn(NAME)}'      change something yourself\n"
            f"Query a table while it is written:\n{_how_to_query()}\nCtrl-C stops everything."
        )


def source_config(stack: Stack) -> Mapping[str, str]:
    """Return the configuration of Debezium's connector."""
    return debezium_postgres(
        stack.postgres,
        NAME,
        NAME,
        heartbeat__interval__ms="1000",
        skipped__operations="none",
        signal__data__collection="public.debezium_signal",
    )


def sink_config(stack: Stack) -> Mapping[str, str]:
    """Return the configuration of the demo's connector, as a user sends it to ``PUT /connectors/shop/config``."""
    return {
        "connector.class": "headrace.LakehouseSinkConnector",
        "tasks.max": "1",
        # Without Debezium's signal table, whose topic exists once a signal was sent.
        "topics.regex": rf"{NAME}\.public\.(?!debezium_signal$).*",
        "verify.interval.ms": str(VERIFY_SECONDS * 1000),
        "post.processors": "reselector",
        "post.processors.reselector.type": "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        "post.processors.reselector.reselect.null.values": "false",
        "post.processors.reselector.reselect.cache.enabled": "true",
        "reselect.database.hostname": LOOPBACK,
        "reselect.database.port": str(stack.postgres.port),
        "reselect.database.user": SUPERUSER,
        "reselect.database.password": "unused",
        "reselect.database.dbname": NAME,
    }


def _reached(committed: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]) -> bool:
    return all(committed.get(partition, 0) >= end for partition, end in ends.items())


def _first_free_port(wanted: int) -> int:
    for port in range(wanted, wanted + 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            if port != wanted:
                print(f"port {wanted} is taken: Headrace's REST API is on {port}")
            return port
    raise RuntimeError(f"no free port from {wanted} to {wanted + 99}")


def _how_to_query() -> str:
    return (
        "  .venv/bin/python\n"
        "  >>> from pyiceberg.table import StaticTable\n"
        f'  >>> StaticTable.from_metadata("{FOLDER}/warehouse/headrace/{NAME}_public_products").scan().to_arrow()'
    )


@contextlib.contextmanager
def _step(what: str) -> Iterator[None]:
    begin = time.monotonic()
    print(f"{what} …", flush=True)
    yield
    print(f"  done in {time.monotonic() - begin:.1f} s", flush=True)
