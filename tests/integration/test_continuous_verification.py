"""``verify.interval.ms`` in a running worker: a wrong cell is found under load, repaired, and proven equal.

A contradiction in the changes of a table makes it the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chaos.lane import Lane
from pyiceberg.table import StaticTable

from headrace.core.model.events import OWN_PREFIX
from headrace.core.verify.table_digest import TableDigest
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


@pytest.fixture
def seldom(lane: Lane) -> Iterator[Lane]:
    """Return the shop with an interval that does not end during a test; the next test has the short one again."""
    lane.worker.put_connector(lane.name, lane.sink_config(verify__interval__ms="3600000"))
    wait_for_report(lane, lambda report: report["interval_seconds"] == 3600, "a task with the long interval")
    yield lane
    lane.worker.put_connector(lane.name, lane.sink_config())
    wait_for_report(lane, lambda report: report["interval_seconds"] == 2, "a task with the short interval")


def verification(lane: Lane, table: str = "customers") -> dict[str, Any]:
    """Return what the REST API reports on the verification of a table.

    It is empty before the task's first one, and while the group assigns the partitions anew.
    """
    name = f"{lane.name}_public_{table}"
    tables = lane.worker.call("GET", f"/connectors/{lane.name}/tables")
    report: dict[str, Any] = next((each.get("verification", {}) for each in tables if each["table"] == name), {})
    return report


def wait_for_report(
    lane: Lane, is_wanted: Callable[[dict[str, Any]], Any], what: str, seconds: float = 180
) -> dict[str, Any]:
    """Return the first report on the customers that is as wanted."""

    def wanted() -> dict[str, Any] | None:
        report = verification(lane)
        return report if report and is_wanted(report) else None

    return wait_until(wanted, what, seconds)


def proven_rows(report: dict[str, Any]) -> int:
    """Return how many rows the proof of a report has; 0 without a proof."""
    return int((report["proof"] or {}).get("rows", 0))


def digest_in_the_lake(lane: Lane, snapshot: str) -> str:
    """Return the digest of the customers in a snapshot, as PyIceberg reads it."""
    table = StaticTable.from_metadata(str(lane.warehouse / "headrace" / f"{lane.name}_public_customers"))
    rows = table.scan(snapshot_id=int(snapshot)).to_arrow()
    digest = TableDigest()
    digest.add(rows.select([name for name in rows.column_names if not name.startswith(OWN_PREFIX)]))
    return digest.text


def fill(stack: Stack, lane: Lane, rows: int) -> None:
    """Insert customers that the load leaves alone."""
    values = f"{FIRST} + n, 'name ' || n, NULL, n / 100.0, n % 2 = 0, '{{}}', '2026-01-01Z'"
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"INSERT INTO customers SELECT {values} FROM generate_series(1, {rows}) AS n".encode())
        connection.execute("ANALYZE customers")


def test_a_wrong_cell_is_found_repaired_and_proven_equal(lane: Lane, stack: Stack) -> None:
    """Under load no row is reported but the wrong one. After a kill -9 the next worker begins with the last proof."""
    lane.begin_load(20)
    fill(stack, lane, 5000)
    proof = wait_for_report(lane, lambda report: proven_rows(report) >= 5000, "a proof of all rows")["proof"]
    assert proof["digest"] == digest_in_the_lake(lane, proof["snapshot"])

    lane.change_unseen(f"UPDATE customers SET name = 'unseen' WHERE id = {FIRST + 7}")
    report = wait_for_report(lane, lambda report: report["differing"], "the wrong cell")
    assert (report["equal"], report["differing"]) == (False, 1)
    assert report["rows"] == [{"key": {"id": str(FIRST + 7)}, "where": "both", "columns": ["name"]}]

    lane.worker.put_connector(lane.name, lane.sink_config(verify__repair="auto"))
    report = wait_for_report(lane, lambda report: report["repaired"], "the repair")
    assert report["equal"] is True
    proof = report["proof"]

    lane.worker.kill()
    lane.start_worker()
    assert wait_for_report(lane, proven_rows, "the proof after the kill")["proof"]["at"] >= proof["at"]
    report = wait_for_report(
        lane, lambda report: proven_rows(report) and report["proof"]["at"] > proof["at"], "a proof of the next worker"
    )
    assert report["differing"] == 0
    lane.end_load()
    assert lane.prove() > 5000


def test_a_contradiction_has_its_table_verified_at_once(seldom: Lane, stack: Stack) -> None:
    """A cached null before an omitted value shows that an update is missing. No interval ends during this test."""
    lane = seldom
    row = FIRST + 100_000
    values = f"{row}, 'a name', NULL, 0, false, NULL, '2026-01-01Z'"
    with stack.postgres.connect(lane.name) as connection:
        connection.execute("ALTER TABLE customers ALTER COLUMN preferences SET STORAGE EXTERNAL")
        connection.execute(f"INSERT INTO customers VALUES ({values})".encode())
    wait_until(lambda: any(each["id"] == row for each in lane.rows("customers")), "the row in the lake", 120)
    report = wait_for_report(lane, lambda report: report["proof"], "a proof, after which the interval begins")
    assert "contradiction" not in report
    position = report["proof"]["position"]
    large = """'{"a": "' || repeat('x', 5000) || '"}'"""
    lane.change_unseen(f"UPDATE customers SET preferences = ({large})::jsonb, balance = 7 WHERE id = {row}")
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(f"UPDATE customers SET name = 'another' WHERE id = {row}".encode())

    def is_verified(report: dict[str, Any]) -> bool:  # the times of both proofs may be the same second
        return bool(report["proof"] and report["proof"]["position"] != position)

    report = wait_for_report(lane, is_verified, "the verification because of the contradiction", 120)
    assert (report["contradiction"]["kind"], report["equal"]) == ("null_then_placeholder", True)


@pytest.mark.long
@pytest.mark.timeout(9000)
def test_a_million_rows_are_proven_under_load_for_an_hour(stack: Stack, tmp_path: Path) -> None:
    """At the default pace: no row is reported that is right, and a wrong cell is found in one round and repaired."""
    rows = 1_000_000
    options = {"verify__interval__ms": "5000", "verify__repair": "auto"}
    with Lane(stack, "proven", tmp_path, ("customers", "orders"), **options) as lane:
        fill(stack, lane, rows)
        wait_for_report(lane, lambda report: proven_rows(report) >= rows, "the first proof", 1800)
        lane.begin_load(100)
        began, transactions, reading = time.monotonic(), lane.transactions, ReadingTime(stack, lane)
        rounds = count_rounds(lane, reading, 3600)
        took, transactions = time.monotonic() - began, lane.transactions - transactions
        print(
            f"{rounds} rounds of {rows:,} rows in {took:.0f} s without a difference, {transactions / took:.0f} "
            f"transactions a second, {reading.seconds / took:.3f} cores of the database for reading"
        )
        lane.change_unseen(f"UPDATE customers SET name = 'unseen' WHERE id = {FIRST + rows // 2}")
        began = time.monotonic()
        wait_for_report(lane, lambda report: report["repaired"], "the repair", 1200)
        print(f"a wrong cell was repaired after {time.monotonic() - began:.0f} s")
        lane.end_load()
        assert lane.prove() > rows


def count_rounds(lane: Lane, reading: ReadingTime, seconds: float) -> int:
    """Return how many rounds end within ``seconds``, at least one. Fail if a row is reported meanwhile."""
    proofs, began = {verification(lane)["proof"]["at"]}, time.monotonic()

    def is_over() -> bool:
        reading.sample()
        report = verification(lane)
        assert (report["differing"], report["repaired"]) == (0, 0)
        proofs.add(report["proof"]["at"])
        return len(proofs) > 1 and time.monotonic() - began >= seconds

    wait_until(is_over, "the rounds", seconds + 1200)
    return len(proofs) - 1


class ReadingTime:
    """The CPU time of the database's processes that serve the worker: reselect, which has nothing to read, and proofs.

    A process counts until its last sample.
    """

    def __init__(self, stack: Stack, lane: Lane) -> None:
        self._stack, self._lane = stack, lane
        self._before: dict[int, float] = {}
        self._now: dict[int, float] = {}
        self.sample()
        self._before = dict(self._now)

    def sample(self) -> None:
        with self._stack.postgres.connect(self._lane.name) as connection:
            statement = "SELECT pid FROM pg_stat_activity WHERE application_name = 'headrace-reselect'"
            for (pid,) in connection.execute(statement):
                user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                self._now[pid] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @property
    def seconds(self) -> float:
        return sum(self._now.values()) - sum(self._before.values())
