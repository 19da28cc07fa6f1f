"""``headrace resnapshot`` with a real Debezium and a running worker, under load: one table is filled again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

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
SIGNALS = "CREATE TABLE debezium_signal (id varchar(42) PRIMARY KEY, type varchar(32) NOT NULL, data varchar(2048))"


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop of five tables, whose source connector has a signal table and small chunks."""
    with Lane(stack, "heal", tmp_path_factory.mktemp("heal"), TABLES) as lane:
        with stack.postgres.connect(lane.name) as connection:
            connection.execute(SIGNALS)
            statement = (
                f"INSERT INTO customers SELECT {FIRST} + n, 'name ' || n, NULL, n / 100.0, true, '{{}}', "
                f"'2026-01-01Z' FROM generate_series(1, {ROWS}) AS n"
            )
            connection.execute(statement.encode())
        settings = {
            "signal__data__collection": "public.debezium_signal",
            "incremental__snapshot__chunk__size": "100",
            "heartbeat__interval__ms": "1000",
        }
        stack.connect.put_connector(lane.name, debezium_postgres(stack.postgres, lane.name, lane.name, **settings))
        wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows in the lake", 300)
        yield lane


@pytest.fixture(autouse=True)
def _load(lane: Lane) -> Iterator[None]:
    lane.begin_load(10)
    yield
    lane.end_load()


def call(lane: Lane, stack: Stack, folder: Path, table: str, *more: str) -> Sequence[str | Path]:
    """The arguments of the command for a table of the lane."""
    connector = folder / "connector.json"
    connector.write_text(json.dumps({"name": lane.name, "config": lane.sink_config()}))
    worker = max(lane.warehouse.parent.glob("worker-*/worker.properties"))
    source = ("--source", lane.name, "--source-url", stack.connect.url)
    return ["resnapshot", worker, connector, table, *source, *more]


def folders(lane: Lane, table: str) -> list[Path]:
    """The folders of a lake table and its ledger."""
    return [lane.warehouse / "headrace" / f"{lane.name}_public_{table}{suffix}" for suffix in ("", SUFFIX)]


def state(lane: Lane, table: str) -> str:
    name = f"{lane.name}_public_{table}"
    document = lane.worker.call("GET", f"/connectors/{lane.name}/tables/{name}")
    assert isinstance(document, dict)
    return str(document["state"])


def test_a_dropped_table_is_filled_again_after_an_interruption(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """Ctrl-C leaves the request, and the second run continues it. All tables are equal at the end."""
    for folder in folders(lane, "customers"):
        shutil.rmtree(folder)
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
    assert any("restarted with missing=recreate" in line for line in lines)
    assert lines[-1].startswith("public.customers: ")
    assert "equal" in lines[-1]
    assert state(lane, "customers") == "RUNNING"
    assert lane.prove() > ROWS
