"""Resnapshots with a real Debezium and a running worker, under load: one table is filled again, by command and REST."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chaos.lane import Lane
from support.repository.headrace_command import command, headrace

from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_dev.connect import debezium_postgres
from headrace_dev.demo.load import TABLES
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.timeout(900)]

FIRST, ROWS = 1_000_000_000, 4_000
"""Ids from here on belong to rows that the load leaves alone."""


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop of five tables, whose source connector has a signal table and small chunks."""
    settings = {
        "source__connector__url": f"{stack.connect.url}/connectors/heal",
        # A pause does not wait for upkeep, which must not write while a test removes or copies the folders.
        "table__maintenance": "off",
    }
    with Lane(stack, "heal", tmp_path_factory.mktemp("heal"), TABLES, **settings) as lane:
        with stack.postgres.connect(lane.name) as connection:
            statement = (
                f"INSERT INTO customers SELECT {FIRST} + n, 'name ' || n, NULL, n / 100.0, true, '{{}}', "
                f"'2026-01-01Z' FROM generate_series(1, {ROWS}) AS n"
            )
            connection.execute(statement.encode())
        configure_source(lane, stack, incremental__snapshot__chunk__size="100")
        wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows in the lake", 300)
        yield lane


def configure_source(lane: Lane, stack: Stack, **settings: str) -> None:
    settings |= {"signal__data__collection": "public.debezium_signal", "heartbeat__interval__ms": "1000"}
    stack.connect.put_connector(lane.name, debezium_postgres(stack.postgres, lane.name, lane.name, **settings))


@pytest.fixture
def prepared(lane: Lane, stack: Stack) -> Iterator[Lane]:
    """Return the lane with what docs/operations.md advises before a resnapshot, and a sink's defaults."""
    queue = {"max__queue__size": "256", "max__batch__size": "128"}
    configure_source(lane, stack, incremental__snapshot__chunk__size="256", **queue)
    defaults = {
        "post__processors__reselector__reselect__cache__admission": "reuse",
        "batch__linger__ms": "1000",
        "table__maintenance": "background",
    }
    lane.worker.put_connector(lane.name, lane.sink_config(**defaults))
    yield lane
    lane.worker.put_connector(lane.name, lane.sink_config())
    configure_source(lane, stack, incremental__snapshot__chunk__size="100")


@pytest.fixture(autouse=True)
def _load(lane: Lane) -> Iterator[None]:
    lane.begin_load(10)
    yield
    lane.end_load()


def call(
    lane: Lane, stack: Stack, folder: Path, table: str, config: Mapping[str, str] | None = None, name: str = ""
) -> Sequence[str | Path]:
    """The arguments of the command for a table of the lane, or of the connectors ``name``."""
    connector, name = folder / "connector.json", name or lane.name
    connector.write_text(json.dumps({"name": name, "config": config or lane.sink_config()}))
    worker = max(lane.warehouse.parent.glob("worker-*/worker.properties"))
    return ["resnapshot", worker, connector, table, "--source", name, "--source-url", stack.connect.url]


def folders(lane: Lane, table: str) -> list[Path]:
    """The folders of a lake table and its ledger."""
    return [lane.warehouse / "headrace" / f"{lane.name}_public_{table}{suffix}" for suffix in ("", SUFFIX)]


def state(lane: Lane, table: str) -> str:
    name = f"{lane.name}_public_{table}"
    document = lane.worker.call("GET", f"/connectors/{lane.name}/tables/{name}")
    assert isinstance(document, dict)
    return str(document["state"])


def resnapshot(lane: Lane, method: str = "GET") -> dict[str, Any]:
    """Send a request for the resnapshot of customers."""
    document = lane.worker.call(method, f"/connectors/{lane.name}/tables/{lane.name}_public_customers/resnapshot")
    assert isinstance(document, dict)
    return document


def requests(lane: Lane, stack: Stack) -> int:
    """The number of snapshots that the signal table has requested."""
    statement = b"SELECT count(*) FROM debezium_signal WHERE type = 'execute-snapshot' AND id LIKE 'headrace-%'"
    with stack.postgres.connect(lane.name) as connection:
        row = connection.execute(statement).fetchone()
    assert row is not None
    return int(row[0])


def has_ended(lane: Lane) -> bool:
    return resnapshot(lane)["state"] not in ("WAITING", "READING", "COMPARING")


def ids(lane: Lane, table: str) -> set[int]:
    """The keys in the lake table."""
    return {row["id"] for row in lane.rows(table)}


def test_a_dropped_table_is_filled_again_after_an_interruption(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """Ctrl-C leaves the request, and the second run continues it. All tables are equal at the end."""
    lane.order("pause", "PAUSED")  # nothing writes into the folders while they are removed
    for folder in folders(lane, "customers"):
        shutil.rmtree(folder)
    lane.worker.call("PUT", f"/connectors/{lane.name}/resume")  # its task may be FAILED at once, without the table
    wait_until(lambda: "PAUSED" not in lane.states(), "the resume", 180)
    arguments = call(lane, stack, tmp_path, "public.customers")
    with subprocess.Popen(**command(tmp_path, *arguments), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "snapshot requested" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    status, lines = headrace(tmp_path, *arguments)
    assert status == 0
    assert "continues the request headrace-" in lines[0]
    assert any("restarted with missing=recreate" in line for line in (*rest.splitlines(), *lines))
    assert lines[-1].startswith("public.customers: ")
    assert "equal" in lines[-1]
    assert state(lane, "customers") == "RUNNING"
    path = f"/connectors/{lane.name}/timeline?kind=RESNAPSHOT_ENDED"
    by = {"type": "command", "path": "headrace resnapshot"}

    def ended() -> Any:
        return next((event for event in lane.worker.call("GET", path) if event.get("by") == by), None)

    event = wait_until(ended, "the event")
    assert (event["table"], event["text"]) == (f"{lane.name}_public_customers", "EQUAL")
    assert lane.prove() > ROWS


def test_a_table_that_was_rolled_back_loses_what_the_source_does_not_have(
    lane: Lane, stack: Stack, tmp_path: Path
) -> None:
    """By REST, while the worker is killed. Rows that were deleted since the older copy, and rows whose deletes nobody
    captured, are removed at the end."""
    lane.end_load()
    wait_until(lambda: lane.applied_by(lane.worker, lane.name), "all rows in the lake", 300)
    copies = tmp_path / "copies"
    lane.order("pause", "PAUSED")
    for folder in folders(lane, "customers"):
        shutil.copytree(folder, copies / folder.name)
    lane.order("resume", "RUNNING")
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"UPDATE customers SET name = 'new' WHERE id > {FIRST + ROWS - 500}".encode())
        connection.execute(f"DELETE FROM customers WHERE id BETWEEN {FIRST + 1} AND {FIRST + 3}".encode())
        # Offsets alone prove nothing before Debezium has published the changes.
        wait_until(lambda: FIRST + 1 not in ids(lane, "customers"), "the deletes in the lake", 300)
        wait_until(lambda: lane.applied_by(lane.worker, lane.name), "their offsets", 300)
    lane.change_unseen(f"DELETE FROM customers WHERE id BETWEEN {FIRST + 11} AND {FIRST + 12}")
    lane.order("pause", "PAUSED")
    for folder in folders(lane, "customers"):
        shutil.rmtree(folder)
        shutil.copytree(copies / folder.name, folder)
    lane.order("resume", "RUNNING")
    lane.begin_load(10)
    requests_before = requests(lane, stack)
    requested = resnapshot(lane, "POST")["requested"]
    wait_until(lambda: resnapshot(lane)["state"] == "READING", "the reads", 120)
    lane.worker.kill()
    lane.restart_worker()
    wait_until(lambda: has_ended(lane), "the end of the resnapshot", 300)
    document = resnapshot(lane)
    assert (document["state"], document["requested"]) == ("EQUAL", requested), document
    assert document["repaired_rows"] == 5
    assert requests(lane, stack) == requests_before + 1, "the worker that was started again continues the request"
    assert lane.prove() > ROWS


@pytest.mark.long
def test_a_table_that_was_added_to_the_source_connector(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """A source connector that writes nothing to the database gets its signals from a topic. Its publication and its
    filters get a table, whose rows from before nobody has sent."""
    name = f"{lane.name}_new"
    stack.kafka.create_topic(f"{name}-signal")
    settings = {
        "publication__autocreate__mode": "filtered",
        "snapshot__mode": "no_data",
        "read__only": "true",
        "signal__enabled__channels": "kafka",
        "signal__kafka__bootstrap__servers": stack.kafka.bootstrap_servers,
        "signal__poll__interval__ms": "500",
        "incremental__snapshot__chunk__size": "100",
        "heartbeat__interval__ms": "1000",
    }

    def put_source(tables: str) -> None:
        source = debezium_postgres(stack.postgres, lane.name, name, table__include__list=tables, **settings)
        stack.connect.put_connector(name, source)

    put_source("public.products")
    with stack.postgres.connect(lane.name) as connection:
        connection.execute("CREATE TABLE extra (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO extra SELECT n, 'note ' || n FROM generate_series(1, 3000) AS n")
        config = lane.sink_config(consumer__override__metadata__max__age__ms="2000")
        del config["topics"]
        config["topics.regex"] = f"{name}[.].*"
        lane.worker.put_connector(name, config)
        arguments = call(lane, stack, tmp_path, "public.extra", config, name)
        assert headrace(tmp_path, *arguments)[0] == 2, "the filters do not contain it"
        connection.execute(f"ALTER PUBLICATION {name} ADD TABLE extra".encode())
    put_source("public.products,public.extra")
    try:
        status, lines = headrace(tmp_path, *arguments)
    finally:
        lane.worker.call("DELETE", f"/connectors/{name}")
        stack.connect.delete_connector(name)
    assert (status, lines[-1]) == (0, "public.extra: 3,000 rows, equal")
    assert f"in topic {name}-signal" in lines[0]


@pytest.mark.long
def test_the_other_tables_stay_fresh(prepared: Lane, stack: Stack) -> None:
    """While one table of five is resnapshotted under load, the 95th percentile of the age of the others at most
    doubles."""
    lane = prepared
    with stack.postgres.connect(lane.name) as connection:
        statement = (
            f"INSERT INTO customers SELECT {FIRST + 100_000} + n, 'name ' || n, NULL, n / 100.0, true, '{{}}', "
            "'2026-01-01Z' FROM generate_series(1, 60000) AS n"
        )
        connection.execute(statement.encode())
    wait_until(lambda: FIRST + 160_000 in ids(lane, "customers"), "the rows in the lake", 300, 1.0)
    lane.begin_load(20)
    began = time.monotonic()
    before = ages(lane, lambda: time.monotonic() - began > 120)
    resnapshot(lane, "POST")
    began = time.monotonic()
    during = ages(lane, lambda: has_ended(lane))
    seconds = time.monotonic() - began
    assert resnapshot(lane)["state"] == "EQUAL"
    print(f"age of the other tables before: p50 {before[0]:.2f} s, p95 {before[1]:.2f} s")
    print(f"age of the other tables during {seconds:.0f} s: p50 {during[0]:.2f} s, p95 {during[1]:.2f} s")
    assert during[1] <= 2 * before[1]
    assert lane.prove() > 60_000


def ages(lane: Lane, is_over: Callable[[], bool]) -> tuple[float, float]:
    """Return the 50th and the 95th percentile of the ages of all tables but customers, twice a second."""
    sampled: list[float] = []

    def sample() -> bool:
        documents = lane.worker.call("GET", f"/connectors/{lane.name}/tables")
        others = [document for document in documents if not document["table"].endswith("customers")]
        sampled.extend(document["freshness_seconds"] for document in others)
        return is_over()

    wait_until(sample, "the end of the measurement", 600, 0.5)
    p50, p95 = np.percentile(sampled, [50, 95])
    return float(p50), float(p95)
