"""``verify.interval.ms`` in a running worker: a wrong cell is found under load, repaired, and proven equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from chaos.lane import Lane

from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

FIRST = 1_000_000_000
"""Ids from here on belong to rows that the load leaves alone."""
OPTIONS = {"batch__linger__ms": "500", "verify__interval__ms": "2000", "verify__max__source__ms__per__minute": "30000"}


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop whose tables are verified every two seconds."""
    folder = tmp_path_factory.mktemp("continuous")
    with Lane(stack, "proven", folder, ("customers", "orders"), **OPTIONS) as lane:
        yield lane


def verification(lane: Lane, table: str = "customers") -> dict[str, Any]:
    """Return what the REST API reports on the verification of a table; empty before the first one."""
    name = f"{lane.name}_public_{table}"
    tables = lane.worker.call("GET", f"/connectors/{lane.name}/tables")
    report: dict[str, Any] = next((each.get("verification", {}) for each in tables if each["table"] == name), {})
    return report


def change_unseen(stack: Stack, lane: Lane, statement: str) -> None:
    """Change rows without an event of the source connector."""
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"ALTER PUBLICATION {lane.name} SET (publish = 'insert')".encode())
        connection.execute(statement.encode())
        connection.execute(f"ALTER PUBLICATION {lane.name} SET (publish = 'insert, update, delete, truncate')".encode())


def test_a_wrong_cell_is_found_repaired_and_proven_equal(lane: Lane, stack: Stack) -> None:
    """Under load no row is reported but the wrong one. After a kill -9 the next worker begins with the last proof."""
    lane.begin_load(20)
    with stack.postgres.connect(lane.name) as connection:
        values = f"{FIRST} + n, 'name ' || n, NULL, n / 100.0, n % 2 = 0, '{{}}', '2026-01-01Z'"
        connection.execute(f"INSERT INTO customers SELECT {values} FROM generate_series(1, 5000) AS n".encode())
    wait_until(lambda: verification(lane).get("proof"), "the first proof", 180)
    wait_until(lambda: verification(lane)["proof"]["rows"] >= 5000, "a proof of all rows", 180)

    change_unseen(stack, lane, f"UPDATE customers SET name = 'unseen' WHERE id = {FIRST + 7}")
    wait_until(lambda: verification(lane)["differing"], "the wrong cell", 180)
    report = verification(lane)
    assert (report["equal"], report["differing"]) == (False, 1)
    assert report["rows"] == [{"key": {"id": str(FIRST + 7)}, "where": "both", "columns": ["name"]}]

    lane.worker.put_connector(lane.name, lane.sink_config(verify__repair="auto"))
    wait_until(lambda: verification(lane).get("repaired"), "the repair", 180)
    assert verification(lane)["equal"] is True
    proof = verification(lane)["proof"]

    lane.worker.kill()
    lane.start_worker()
    wait_until(lambda: (verification(lane).get("proof") or {}).get("rows"), "the proof after the kill", 180)
    assert verification(lane)["proof"]["at"] >= proof["at"]
    wait_until(lambda: verification(lane)["proof"]["at"] > proof["at"], "a proof of the next worker", 180)
    assert verification(lane)["differing"] == 0
    lane.end_load()
    assert lane.prove() > 5000
