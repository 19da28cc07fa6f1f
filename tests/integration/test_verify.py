"""``headrace verify`` with a database under load, a running worker, and changes that were not captured."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from chaos.lane import Lane
from support.repository.headrace_command import headrace

from headrace.runtime.verify.connector_rest import ConnectorRest
from headrace.runtime.verify.table_verifier import Clock
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

FIRST = 1_000_000_000
"""Ids from here on belong to rows that the load leaves alone."""


@pytest.fixture(scope="module")
def lane(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop with a running worker, with the default linger time of batches."""
    folder = tmp_path_factory.mktemp("verify")
    with Lane(stack, "verify", folder, ("customers", "orders"), batch__linger__ms="1000") as lane:
        yield lane


@pytest.fixture(autouse=True)
def _load_of_one_test(lane: Lane) -> Iterator[None]:
    """The next test waits until all offsets are committed, which does not happen under load."""
    yield
    lane.end_load()


def verify(lane: Lane, folder: Path, *arguments: str, name: str = "", **changes: str) -> tuple[int, list[str]]:
    """Exit status and lines of the command, for the lane's connector or for ``name``, which has ``changes``."""
    return command("verify", lane, folder, *arguments, name=name, **changes)


def command(
    mode: str, lane: Lane, folder: Path, *arguments: str, name: str = "", **changes: str
) -> tuple[int, list[str]]:
    connector = folder / "connector.json"
    connector.write_text(json.dumps({"name": name or lane.name, "config": lane.sink_config(**changes)}))
    worker = max(lane.warehouse.parent.glob("worker-*/worker.properties"))
    return headrace(folder, mode, worker, connector, *arguments)


def fill(stack: Stack, lane: Lane, rows: int) -> None:
    """Insert customers that do not change; wait until they are in the lake."""
    topic = (f"{lane.name}.public.customers", 0)
    wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows in the lake", 120)
    before = lane.worker.committed(lane.name)[topic]
    statement = (
        f"INSERT INTO customers SELECT {FIRST} + n, 'name ' || n, NULL, n / 100.0, n % 2 = 0, '{{}}', '2026-01-01Z' "
        f"FROM generate_series(1, {rows}) AS n"
    )
    with stack.postgres.connect(lane.name) as connection:
        connection.execute(statement.encode())
    wait_until(lambda: lane.worker.committed(lane.name)[topic] >= before + rows, "rows in the lake", 600)


def resting(lane: Lane) -> AbstractContextManager[None]:
    """The lane's connector, paused as a repair does it."""
    return ConnectorRest(lane.worker.url, lane.name, Clock(time.monotonic, time.sleep)).paused()


@pytest.mark.parametrize("rows", [20_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(900)])])
def test_one_wrong_cell_under_load_is_found_and_repaired(lane: Lane, stack: Stack, tmp_path: Path, rows: int) -> None:
    """The command names one wrong cell among all rows under load, and no other; after the repair all rows are equal."""
    fill(stack, lane, rows)
    wrong = FIRST + rows // 2
    lane.change_unseen(f"UPDATE customers SET name = 'unseen' WHERE id = {wrong}")
    lane.begin_load(20)
    named = f"public.customers id={wrong}: name differs"
    if rows > 20_000:
        status, lines = verify(lane, tmp_path, "--table", "public.customers")
        assert (status, lines[0], len(lines)) == (1, named, 2)
    status, lines = verify(lane, tmp_path, "--table", "public.customers", "--show-values", "--repair")
    expected = [named, f"    name: source 'unseen', lake 'name {rows // 2}'", f"public.customers id={wrong}: repaired"]
    assert (status, lines[:-1]) == (0, expected)
    path = f"/connectors/{lane.name}/timeline?kind=ROWS_REPAIRED"
    [event, *_] = wait_until(lambda: lane.worker.call("GET", path), "the event", 30)
    assert (event["table"], event["text"]) == (f"{lane.name}_public_customers", "1 row(s)")
    assert event["by"] == {"type": "command", "path": "headrace verify --repair"}
    with resting(lane):
        assert lane.states() == {"PAUSED"}
    assert lane.prove() > rows


@pytest.mark.long
def test_a_table_whose_name_a_topic_cannot_have_is_compared(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """Debezium replaces characters in the topic's name. The lake table stores the name that the events have.

    If the lake table has this name too, it does not follow from the topic, and ``--table`` names it.
    """
    topic = f"{lane.name}.public.Gr__en___Ma_e"
    with stack.postgres.connect(lane.name) as connection:
        connection.execute('CREATE TABLE "Größen & Maße" (id int PRIMARY KEY, name text)')
        connection.execute("""INSERT INTO "Größen & Maße" VALUES (1, 'a'), (2, 'b')""")
    wait_until(lambda: topic in stack.kafka.topics(), "topic of the table", 60)
    formats = {"odd-by-topic": "${topic}", "odd-by-source": "${source.table}"}
    for name, form in formats.items():
        lane.worker.put_connector(name, lane.sink_config(topics=topic, collection__name__format=form))
    lane.change_unseen("""UPDATE "Größen & Maße" SET name = 'unseen' WHERE id = 2""")
    lane.begin_load(20)  # an idle source confirms no progress, and without that nothing is proven

    def repaired(name: str) -> tuple[int, list[str]]:
        wait_until(lambda: lane.worker.committed(name).get((topic, 0), 0) >= 2, f"rows of {name}", 120)
        named = () if name == "odd-by-topic" else ("--table", "public.Größen & Maße")
        changes = {"topics": topic, "collection__name__format": formats[name]}
        (tmp_path / name).mkdir()
        status, lines = verify(lane, tmp_path / name, *named, "--repair", name=name, **changes)
        return status, lines[:-1]

    with ThreadPoolExecutor(len(formats)) as both:
        results = list(both.map(repaired, formats))
    expected = [f"public.Größen & Maße id=2: {what}" for what in ("name differs", "repaired")]
    assert results == [(0, expected)] * len(formats)
    for name in formats:
        lane.worker.call("DELETE", f"/connectors/{name}")


@pytest.mark.long
def test_the_last_states_of_a_history_are_compared(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """Under load the command names the one key whose last event is not the source's row, and refuses to repair it."""
    topic, rows = f"{lane.name}.public.customers", range(2 * FIRST, 2 * FIRST + 500)
    history = {"topics": topic, "insert__mode": "insert", "collection__name__format": "history of ${source.table}"}
    with stack.postgres.connect(lane.name) as connection:
        values = "n, 'name ' || n, NULL, 0, false, '{}', '2026-01-01Z'"
        new = f"INSERT INTO customers SELECT {values} FROM generate_series({rows[0]}, {rows[-1]}) AS n"
        connection.execute(new.encode())
        connection.execute(f"UPDATE customers SET balance = 7 WHERE id >= {rows[0]} AND id % 2 = 0".encode())
        connection.execute(f"DELETE FROM customers WHERE id >= {rows[0]} AND id % 5 = 0".encode())
    lane.worker.put_connector("history", lane.sink_config(**history))
    try:
        lane.change_unseen(f"UPDATE customers SET name = 'unseen' WHERE id = {rows[42]}")
        lane.begin_load(20)
        begun = lane.worker.committed(lane.name).get((topic, 0), 0)
        wait_until(lambda: lane.worker.committed("history").get((topic, 0), 0) > begun, "the history", 120)
        status, lines = verify(lane, tmp_path, "--table", "public.customers", name="history", **history)
        # Those of another test were changed unseen too, and are repaired in the merged table only.
        named = [line for line in lines[:-1] if not re.search(r" id=1\d{9}:", line)]
        assert (status, named) == (1, [f"public.customers id={rows[42]}: name differs"])
        assert verify(lane, tmp_path, "--repair", name="history", **history) == (2, [])
    finally:
        lane.worker.call("DELETE", "/connectors/history")
        with stack.postgres.connect(lane.name) as connection:  # with an event, for the merged table of other tests
            connection.execute(f"UPDATE customers SET name = 'seen' WHERE id = {rows[42]}".encode())


BEHIND = {
    "transforms": "unwrap,rename,mask,made,route",
    "transforms__unwrap__type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms__unwrap__delete__tombstone__handling__mode": "rewrite",
    "transforms__rename__type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms__rename__renames": "name:title",
    "transforms__rename__exclude": "note",
    "transforms__mask__type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms__mask__fields": "mail",
    "transforms__mask__replacement": "hidden",
    "transforms__made__type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms__made__static__field": "origin",
    "transforms__made__static__value": "shop",
    "transforms__route__type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms__route__regex": r"(.*)\.people",
    "transforms__route__replacement": "$1.shown",
}
"""Transforms that rename, remove, mask and insert columns, and rename the topic."""


def test_behind_transforms_the_copied_columns_are_compared(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """A wrong cell of a renamed column and a row that was deleted unseen are repaired; a masked cell stays masked.

    The worker's own verification names the columns that it does not compare, in its report and in the proof.
    """
    topic = f"{lane.name}.public.people"
    with stack.postgres.connect(lane.name) as connection:
        connection.execute("CREATE TABLE people (id int PRIMARY KEY, name text, mail text, note text)")
        connection.execute(
            "INSERT INTO people SELECT n, 'name ' || n, n || '@shop', 'n' FROM generate_series(1, 5) AS n"
        )
    wait_until(lambda: topic in stack.kafka.topics(), "topic of the table", 60)
    changes = {**BEHIND, "topics": topic, "verify__interval__ms": "2000"}
    lane.worker.put_connector("behind", lane.sink_config(**changes))
    lane.change_unseen("UPDATE people SET name = 'unseen', mail = 'unseen', note = 'unseen' WHERE id = 2")
    lane.change_unseen("DELETE FROM people WHERE id = 4")
    lane.begin_load(20)  # an idle source confirms no progress, and without that nothing is proven
    wait_until(lambda: lane.worker.committed("behind").get((topic, 0), 0) >= 5, "rows in the lake", 120)
    status, lines = verify(lane, tmp_path, "--repair", name="behind", **changes)
    assert (status, sorted(lines[:-1])) == (
        0,
        [
            "public.people id=2: repaired",
            "public.people id=2: title differs",
            "public.people id=4: only in the lake",
            "public.people id=4: repaired",
        ],
    )
    assert lines[-1] == (
        "public.people: 4 rows, equal (2 repaired; not compared, because transforms change them: mail, origin)"
    )
    rows = {row["id"]: row for row in lane.rows("shown")}
    assert rows[2] == {"id": 2, "title": "unseen", "mail": "hidden", "origin": "shop"}
    assert rows.keys() == {1, 2, 3, 5}

    def proven() -> Any:
        reports = [table.get("verification", {}) for table in lane.worker.call("GET", "/connectors/behind/tables")]
        return next((report for report in reports if report.get("equal")), None)

    report = wait_until(proven, "a proof of the worker", 180)
    assert report["not_compared"] == report["proof"]["not_compared"] == ["mail", "origin"]
    lane.worker.call("DELETE", "/connectors/behind")


@pytest.mark.long
def test_what_a_new_column_did_not_send_is_filled(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """ADD COLUMN with a default sends no events for existing rows; later events contain the column."""
    wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows in the lake", 120)
    with stack.postgres.connect(lane.name) as connection:
        connection.execute("ALTER TABLE orders ADD COLUMN origin text DEFAULT 'shop'")
    lane.begin_load(20)
    status, lines = verify(lane, tmp_path, "--table", "public.orders", "--repair")
    assert any(line.endswith(": origin differs") for line in lines)
    assert status == 0
    assert lane.prove() > 0
    assert {row["origin"] for row in lane.rows("orders")} == {"shop"}


def test_a_table_that_the_connector_does_not_have_is_a_wrong_call(lane: Lane, tmp_path: Path) -> None:
    """The command reports a usage error, not a difference."""
    assert verify(lane, tmp_path, "--table", "public.nothing")[0] == 2


def test_doctor_is_silent_on_a_good_pipeline_and_names_a_bad_table(lane: Lane, stack: Stack, tmp_path: Path) -> None:
    """With the slot and the publication that Debezium has made. Exit status: 0, 2 with an error, 3 without the
    database."""
    slot = b"SELECT active FROM pg_replication_slots WHERE slot_name = %s"
    with stack.postgres.connect(lane.name) as connection:
        wait_until(lambda: connection.execute(slot, [lane.name]).fetchone() == (True,), "active replication slot", 180)
    assert command("doctor", lane, tmp_path) == (0, ["nothing found"])
    with stack.postgres.connect(lane.name) as connection:
        connection.execute("ALTER TABLE orders REPLICA IDENTITY NOTHING")
        try:
            status, lines = command("doctor", lane, tmp_path, "--json")
        finally:
            connection.execute("ALTER TABLE orders REPLICA IDENTITY DEFAULT")
    [finding] = json.loads("\n".join(lines))["findings"]
    assert (status, finding["rule"], finding["severity"]) == (2, "table-without-identity", "ERROR")
    assert finding["subject"].endswith("table public.orders")
    status, lines = command("doctor", lane, tmp_path, reselect__database__port="1")
    assert status == 3
    assert lines[0].startswith("not checked: source: database ")
