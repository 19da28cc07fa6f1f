"""One of two tables is paused under a real worker, with PostgreSQL and Debezium, and the worker is killed meanwhile.

The paused table keeps its rows and the lag of its topic grows, while the other table follows its source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_dev.connect import debezium_postgres
from headrace_dev.demo.compare import lake_rows
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SECONDS = 120
ROWS = 10
TABLES = ("orders", "items")


class Shop:
    """A database with two tables, their Debezium connector, and a worker with one connector of both topics."""

    def __init__(self, stack: Stack, folder: Path, name: str) -> None:
        self.name = name
        self._stack = stack
        self._warehouse = folder / "warehouse"
        storage = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
        self.worker = Worker(
            folder, stack.kafka, self._warehouse, properties={"group.id": name, **storage, **SHORT_LIVED}
        )

    def start(self) -> None:
        """Create the source and the connectors."""
        self._stack.postgres.create_database(self.name)
        for table in TABLES:
            self.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, number int)")
            self.execute(f"INSERT INTO {table} SELECT i, i FROM generate_series(1, {ROWS}) i")
        self._stack.connect.put_connector(self.name, debezium_postgres(self._stack.postgres, self.name, self.name))
        topics = [self.topic(table) for table in TABLES]
        wait_until(lambda: set(topics) <= set(self._stack.kafka.topics()), "topics", SECONDS)
        self.worker.start()
        self.worker.put_connector(
            self.name,
            {
                "connector.class": "LakehouseSink",
                "topics": ",".join(topics),
                "table.namespace": "shop",
                "batch.linger.ms": "0",
            },
        )

    def stop(self) -> None:
        self.worker.kill()
        self._stack.connect.delete_connector(self.name)

    def execute(self, statement: str) -> None:
        self._stack.postgres.execute(statement, self.name)

    def topic(self, table: str) -> str:
        return f"{self.name}.public.{table}"

    def lake_name(self, table: str) -> str:
        return self.topic(table).replace(".", "_")

    def source(self, table: str) -> list[tuple[int, int]]:
        """The rows of the database."""
        with self._stack.postgres.connect(self.name) as connection:
            rows: list[Any] = connection.execute(f"SELECT id, number FROM {table} ORDER BY id").fetchall()
        return [tuple(row) for row in rows]

    def lake(self, table: str) -> list[tuple[int, int]]:
        """The rows of the lake; none if the table does not exist."""
        rows = lake_rows(self._warehouse / "shop" / self.lake_name(table))
        return sorted((row["id"], row["number"]) for row in rows)

    def until_equal(self, table: str) -> None:
        wait_until(lambda: self.lake(table) == self.source(table), f"equal {table}", SECONDS)

    def change(self, table: str) -> None:
        """Update, delete and insert rows."""
        self.execute(f"UPDATE {table} SET number = number + 1 WHERE id % 2 = 0")
        self.execute(f"DELETE FROM {table} WHERE id = (SELECT min(id) FROM {table})")
        self.execute(f"INSERT INTO {table} SELECT max(id) + 1, 0 FROM {table}")

    def request(self, table: str, verb: str) -> None:
        self.worker.call("PUT", f"/connectors/{self.name}/tables/{self.lake_name(table)}/{verb}")

    def state(self, table: str) -> str | None:
        """The state that ``GET /connectors/{name}/tables`` reports."""
        reports = self.worker.call("GET", f"/connectors/{self.name}/tables")
        return next((each["state"] for each in reports if each["table"] == self.lake_name(table)), None)

    def lag(self, table: str) -> float:
        """The metric of the records that are not committed."""
        labels = {"connector": self.name, "task": "0", "topic": self.topic(table), "partition": "0"}
        return self.worker.metrics().get(("headrace_lag_records", frozenset(labels.items())), 0.0)

    def offset(self, table: str) -> int:
        return self.worker.committed(self.name).get((self.topic(table), 0), 0)


@pytest.fixture
def shop(stack: Stack, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Shop]:
    """A shop whose tables are loaded."""
    shop = Shop(stack, tmp_path, unique("paused"))
    try:
        shop.start()
        for table in TABLES:
            shop.until_equal(table)
        yield shop
    finally:
        shop.stop()


def test_a_paused_table_stays_as_it_is_until_it_is_resumed(shop: Shop) -> None:
    """Also after kill -9 of the worker, and after pause and resume of the connector."""
    wait_until(lambda: shop.offset("orders") == ROWS, "the offsets of all rows", SECONDS)
    shop.request("orders", "pause")
    wait_until(lambda: shop.state("orders") == "PAUSED", "the pause", SECONDS)
    stored = shop.lake("orders")
    for table in TABLES:
        shop.change(table)
    shop.until_equal("items")
    wait_until(lambda: shop.lag("orders") > 0, "a growing lag", SECONDS)
    (task,) = shop.worker.tasks(shop.name)
    notes = {name for note in task["notes"] for name in note["where"] if "is paused" in note["note"]}
    assert (task["state"], notes) == ("RUNNING", {shop.lake_name("orders")})
    assert [(each["table"], each["state"]) for each in task["tables"]] == [(shop.lake_name("orders"), "PAUSED")]

    shop.worker.kill()
    shop.change("items")
    shop.worker.start()
    shop.until_equal("items")
    for verb, states in (("pause", {"PAUSED"}), ("resume", {"RUNNING"})):
        shop.worker.call("PUT", f"/connectors/{shop.name}/{verb}")
        wait_until(lambda states=states: set(shop.worker.states(shop.name)) == states, f"{verb} of the connector", 60)
    before = shop.lag("orders")
    for table in TABLES:
        shop.change(table)
    shop.until_equal("items")
    wait_until(lambda: shop.lag("orders") > before, "a growing lag", SECONDS)
    assert (shop.state("orders"), shop.lake("orders"), shop.offset("orders")) == ("PAUSED", stored, ROWS)
    assert stored != shop.source("orders")

    shop.request("orders", "resume")
    shop.until_equal("orders")
    wait_until(lambda: shop.state("orders") == "RUNNING", "the resume", SECONDS)
    wait_until(lambda: shop.lag("orders") == 0, "the end of the lag", SECONDS)
    assert not shop.worker.tables(shop.name)
