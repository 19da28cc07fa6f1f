"""``headrace verify`` as an operator runs it: a busy database, a running worker, and changes that nobody captured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chaos.lane import Lane

from headrace.runtime.connector_rest import ConnectorRest
from headrace.runtime.table_verifier import Clock
from headrace_dev import Stack, jars
from headrace_dev.server import wait_until

pytestmark = [pytest.mark.stack, pytest.mark.spark]

FIRST = 1_000_000_000
"""Ids from here on belong to rows that the load leaves alone."""


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop with a running worker, which waits as long as it does by default until a batch is full."""
    folder = tmp_path_factory.mktemp("verify")
    with Lane(stack, "verify", folder, ("customers", "orders"), batch__linger__ms="1000") as lane:
        yield lane


def verify(lane: Lane, folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Exit status and lines of the command."""
    connector = folder / "connector.json"
    connector.write_text(json.dumps({"name": lane.name, "config": lane.sink_config()}))
    worker = max(lane.warehouse.parent.glob("worker-*/worker.properties"))
    command = [sys.executable, "-m", "headrace", "verify", str(worker), str(connector), *arguments]
    places = {"PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_JARS": str(jars.folder("lakehouse"))}
    begun = time.monotonic()
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, timeout=900, cwd=folder)
    print(done.stdout, done.stderr, f"exit status {done.returncode} after {time.monotonic() - begun:.0f} s")
    return done.returncode, done.stdout.splitlines()


def fill(stack: Stack, lane: Lane, rows: int) -> None:
    """Customers and three orders that stand still; wait until they are in the lake."""
    topic = (f"{lane.name}.public.customers", 0)
    wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows in the lake", 120)
    before = lane.worker.committed(lane.name)[topic]
    orders = f"INSERT INTO orders SELECT {FIRST + rows} + n, 1, 'new', now() FROM generate_series(1, 3) AS n"
    customers = (
        f"INSERT INTO customers SELECT {FIRST} + n, 'name ' || n, NULL, n / 100.0, n % 2 = 0, '{{}}', '2026-01-01Z' "
        f"FROM generate_series(1, {rows}) AS n"
    )
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(orders.encode())
        connection.execute(customers.encode())
    wait_until(lambda: lane.worker.committed(lane.name)[topic] >= before + rows, "customers in the lake", 600)
    wait_until(lambda: lane.applied_by(lane.worker, lane.name), "orders in the lake", 60)


def change_unseen(stack: Stack, lane: Lane, statement: str) -> None:
    """Change rows so that the source connector does not hear of it."""
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"ALTER PUBLICATION {lane.name} SET (publish = 'insert')".encode())
        connection.execute(statement.encode())
        connection.execute(f"ALTER PUBLICATION {lane.name} SET (publish = 'insert, update, delete, truncate')".encode())


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_one_wrong_cell_under_load_is_found_and_mended(lane: Lane, stack: Stack, tmp_path: Path, rows: int) -> None:
    """One cell among all rows is named while the table changes, and nothing that is right; repaired, all is equal.

    So are the cells of a new column: ADD COLUMN with a default sends no events for the rows that are there.
    """
    fill(stack, lane, rows)
    wrong = FIRST + rows // 2
    change_unseen(stack, lane, f"UPDATE customers SET name = 'unseen' WHERE id = {wrong}")
    column = f"origin_{rows}"
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"ALTER TABLE orders ADD COLUMN {column} text DEFAULT 'shop'".encode())
    lane.begin_load(20)
    named = f"public.customers id={wrong}: name differs"
    if rows > 20_000:
        status, lines = verify(lane, tmp_path, "--table", "public.customers")
        assert (status, lines[0], len(lines)) == (1, named, 2)
    tables = ("--table", "public.customers", "--table", "public.orders")
    status, lines = verify(lane, tmp_path, *tables, "--show-values", "--repair")
    told = [line for line in lines if line.startswith("public.customers id=")]
    assert told == [named, f"public.customers id={wrong}: repaired"]
    assert f"    name: source 'unseen', lake 'name {rows // 2}'" in lines
    for order in range(FIRST + rows + 1, FIRST + rows + 4):
        told = [line for line in lines if line.startswith(f"public.orders id={order}:")]
        assert told == [f"public.orders id={order}: {column} differs", f"public.orders id={order}: repaired"]
    assert status == 0
    assert lane.prove() > rows


def test_a_table_that_the_connector_does_not_have_is_a_wrong_call(lane: Lane, tmp_path: Path) -> None:
    """Not a difference."""
    assert verify(lane, tmp_path, "--table", "public.nothing")[0] == 2


def test_the_connector_rests_while_a_repair_needs_it(lane: Lane) -> None:
    """A real worker's tasks do, and run again afterwards."""
    url = urlsplit(lane.worker.url)
    rest = ConnectorRest(url.hostname or "", url.port or 0, lane.name, Clock(time.monotonic, time.sleep))
    lane.begin_load()
    with rest.paused():
        assert lane.states() == {"PAUSED"}
    wait_until(lambda: lane.states() == {"RUNNING"}, "running again", 30)
    assert lane.prove() > 0
