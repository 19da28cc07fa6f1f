"""The verifications of a task in memory: proofs, differences, repairs and their limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from support.lake.lake_actions import SOURCE, TOPIC
from support.sources.verify_world import World

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.config.verify_options import VerifySettings
from headrace.core.model.errors import Fatal, HeadraceError, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.instants import iso_text
from headrace.core.model.proof import Proof, VerificationReport
from headrace.core.verify.table_digest import TableDigest
from headrace.ports import TableSource
from headrace.runtime.task.task_options import sink_task_options
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.continuous_verification import ContinuousVerification
from headrace.runtime.verify.paced_source import Pace
from headrace.runtime.verify.verified_table import VerifiedTable

DEFAULTS = WorkerDefaults({"key.converter": "JsonConverter", "value.converter": "JsonConverter"}, "1.0")
PROPERTIES = {"name": "shop", "connector.class": "LakehouseSink", "topics": TOPIC}
NAME = TOPIC.replace(".", "_")
SECONDS = 30.0


class WorldTables:
    """The one table of a world, as ``ConnectorTables`` opens it; ``error`` is raised instead, once.

    With ``others``, its topic has more tables, which no grant permits to read.
    """

    def __init__(self, world: World, *others: TableId) -> None:
        properties = {**PROPERTIES, "collection.name.format": "${source.table}" if others else "${topic}"}
        self.task = sink_task_options(sink_connector_config(properties, DEFAULTS))
        self.transformed = self.task.naming
        self.world = world
        self.others = others
        self.error: Exception | None = None
        self.closed = 0
        self.topics: list[str] = []

    def of(self, topic: str) -> Sequence[tuple[TableId, TableSource]]:
        self.topics.append(topic)
        return [(id, self.world.source) for id in (SOURCE, *self.others)]

    def open(self, topic: str, id: TableId, source: TableSource) -> tuple[VerifiedTable, str]:
        error, self.error = self.error, None
        if id in self.others:
            raise Retriable("no answer")
        if error is not None:
            raise error
        return self.world.table(), "shop.item"

    def close(self) -> None:
        self.closed += 1


class WorldPace(Pace):
    """A pace whose sleeps are steps of the world."""

    def __init__(self, world: World) -> None:
        super().__init__(10**9, 60_000, time.monotonic)
        self._world = world

    def sleep(self, seconds: float) -> None:
        self._world.step()
        super().sleep(0.0)


@pytest.fixture
def world() -> World:
    """Return a source and a lake table with thirty equal rows."""
    world = World()
    for key in range(30):
        world.change(key, f"row {key}")
    world.settle()
    return world


@contextmanager
def verification(tables: WorldTables, *, timeout: float = 180.0, **settings: Any) -> Iterator[ContinuousVerification]:
    options, opened = VerifySettings(**{"interval": 3600.0, **settings}), cast(ConnectorTables, tables)
    verification = ContinuousVerification(options, opened, tables.world, WorldPace(tables.world), timeout)
    try:
        yield verification
    finally:
        verification.close()


Repaired = Callable[[TableId, str, int], None]


async def report_after(
    verification: ContinuousVerification, rounds: int = 1, repaired: Repaired = lambda table, name, rows: None
) -> VerificationReport:
    """Run until so many verifications have ended, and return the report of the last one."""
    running = asyncio.create_task(verification.run(lambda: [TOPIC], repaired))
    ended: set[float] = set()
    try:
        async with asyncio.timeout(SECONDS):
            while len(ended) < rounds:
                await asyncio.sleep(0.001)
                reports = verification.reports([TOPIC])
                if NAME in reports and (end := reports[NAME].ended) is not None:
                    ended.add(end)
    finally:
        running.cancel()
    return verification.reports([TOPIC])[NAME]


async def run_in_steps(
    verification: ContinuousVerification,
    *conditions: Callable[[], bool],
    topics: Sequence[str] = (TOPIC,),
    limit: float = SECONDS,
) -> None:
    """Run until the conditions were met, one after the other; they are checked between the verifications of topics."""
    left, ended = list(conditions), asyncio.Event()

    def ready() -> Sequence[str]:
        while left and left[0]():
            del left[0]
        if not left:
            ended.set()
        return topics if left else ()

    running = asyncio.create_task(verification.run(ready, lambda table: None))
    try:
        async with asyncio.timeout(limit):
            await ended.wait()
    finally:
        running.cancel()


def test_an_equal_table_gets_a_proof(world: World) -> None:
    """The proof is in the report and with the table, where the next task finds it and does not verify again at once."""
    tables = WorldTables(world)
    with verification(tables) as first:
        report = asyncio.run(report_after(first))
    assert report.is_equal
    assert report.proof is not None
    assert (report.proof.rows, report.proof.position) == (30, f"{world.source.position.connector}:{world.end}")
    stored = world.lake.proof()
    assert stored is not None
    digest = TableDigest()
    digest.add(world.lake.to_arrow().select(["id", "name"]))
    assert (stored.digest, stored.snapshot) == (digest.text, str(len(world.lake.commits)))
    with verification(tables) as next_task:
        assert next_task._verify_topic(TOPIC) - time.monotonic() == pytest.approx(3600.0, abs=SECONDS)
        inherited = next_task.reports([TOPIC])[NAME]
    assert inherited.is_equal
    assert inherited.ended is None


def test_a_wrong_cell_is_reported_and_not_repaired_by_default(world: World) -> None:
    """The report has the key, the side and the column. The table keeps its last proof."""
    world.lake.record_proof(Proof("postgresql:1", 1_700_000_000.0, 30))
    world.corrupt(17, "wrong")
    with verification(WorldTables(world)) as running:
        report = asyncio.run(report_after(running))
    assert (report.is_equal, report.differing, report.repaired) == (False, 1, 0)
    [row] = report.rows
    assert (row.key, row.where, row.columns) == ({"id": "17"}, "both", ("name",))
    assert world.stored()[17] == "wrong"
    assert world.lake.proof() == Proof("postgresql:1", 1_700_000_000.0, 30)


def test_a_repair_proves_the_table_equal(world: World) -> None:
    """A wrong cell, a missing row and an extra row are written again; what is compared afterwards is equal.

    The task learns of it, because its cache may have the value that made a row wrong.
    """
    repaired: list[tuple[TableId, str, int]] = []
    world.corrupt(17, "wrong")
    world.lose(3)
    del world.rows[5]
    with verification(WorldTables(world), repairs=True) as running:
        report = asyncio.run(report_after(running, repaired=lambda *repair: repaired.append(repair)))
    assert (report.is_equal, report.repaired, repaired) == (True, 3, [(SOURCE, NAME, 3)])
    assert report.proof is not None
    assert report.proof.digest == ""  # it would be that of the wrong rows
    assert world.stored() == world.rows


def test_more_rows_than_allowed_are_reported_instead(world: World) -> None:
    """Many wrong rows point to a cause that a repair would hide."""
    for key in (1, 2, 3):
        world.corrupt(key, "wrong")
    with verification(WorldTables(world), repairs=True, repairs_per_hour=2) as running:
        report = asyncio.run(report_after(running))
    assert (report.differing, report.repaired) == (3, 0)
    assert world.stored()[1] == "wrong"


@pytest.mark.parametrize("error", [Fatal("no grant"), Retriable("no answer")])
def test_an_error_lasts_until_the_next_success(
    world: World, error: HeadraceError, caplog: pytest.LogCaptureFixture
) -> None:
    """The table is verified again: soon after an error that passes, after the interval otherwise."""
    tables = WorldTables(world)
    tables.error = error
    with verification(tables, interval=0.05) as running:
        report = asyncio.run(report_after(running, rounds=2))
    assert f"cannot be verified: {error}" in caplog.text
    assert report.error is None
    assert report.is_equal


def test_undecided_rows_are_no_proof(world: World) -> None:
    """Without progress of the source connector a wrong row is neither equal nor proven wrong."""
    world.confirms = False
    world.corrupt(17, "wrong")
    tables = WorldTables(world)
    with verification(tables, repairs=True, timeout=0.0) as running:
        report = asyncio.run(report_after(running))
    assert (report.is_equal, report.undecided, report.differing) == (False, 1, 0)
    assert report.proof is None


def test_a_table_that_fails_does_not_hurry_the_others_of_its_topic(world: World) -> None:
    """Its next attempt comes soon; theirs comes after the interval."""
    tables = WorldTables(world, replace(SOURCE, table="other"))
    with verification(tables) as running:
        running._on_repair = lambda table: None
        due = running._verify_topic(TOPIC)
        first = running.reports([TOPIC])
        running._due_tables["other"] = 0.0
        running._verify_topic(TOPIC)
        second = running.reports([TOPIC])
    assert due - time.monotonic() <= 30.0
    assert first[SOURCE.table].is_equal
    assert second[SOURCE.table] is first[SOURCE.table]
    assert second["other"].error == "no answer"
    assert (second["other"].ended or 0.0) > (first["other"].ended or 0.0)


def test_a_contradiction_does_not_wait_for_the_interval(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The report contains it, until the next regular verification. A young proof is no reason to wait."""
    tables = WorldTables(world)
    world.lake.record_proof(Proof("postgresql:1", time.time(), 30))
    with verification(tables) as running:

        def report() -> VerificationReport:
            return running.reports([TOPIC])[NAME]

        running.begin_with(TOPIC, replace(SOURCE, database="other"), "update_without_create")
        asyncio.run(run_in_steps(running, lambda: bool(running.reports([TOPIC])) and report().ended is not None))
        found = report().contradiction
        assert found is not None
        assert report().document(found.at)["contradiction"] == {"kind": found.kind, "at": iso_text(found.at)}
    assert f"table {NAME} is verified now, because its changes contain a contradiction (update_wi" in caplog.text
    with verification(tables, interval=0.05) as running:
        running.begin_with(TOPIC, SOURCE, "update_without_create")
        is_known = [lambda: bool(running.reports([TOPIC])) and report().contradiction is not None]
        asyncio.run(run_in_steps(running, *is_known, lambda: report().contradiction is None))


def test_contradictions_put_a_table_first_once_in_an_interval(world: World) -> None:
    """Those that arrive all the time do not keep the other tables waiting."""
    tables = WorldTables(world)
    topics = [TOPIC, "shop.public.b", "shop.public.c"]
    with verification(tables) as running:

        def report_two_more() -> bool:
            if len(tables.topics) == 1:
                running.begin_with(topics[1], SOURCE, "position_regression")
                running.begin_with(topics[1], SOURCE, "null_then_placeholder")
            return len(tables.topics) == 1

        running.begin_with(topics[1], SOURCE, "position_regression")
        asyncio.run(run_in_steps(running, report_two_more, lambda: len(tables.topics) == 4, topics=topics))
    assert tables.topics == [topics[1], TOPIC, topics[2], topics[1]]


def test_a_contradiction_survives_an_error(world: World) -> None:
    """The table is verified because of it as soon as that is possible."""
    tables = WorldTables(world)
    tables.error = Retriable("no answer")
    seen: list[VerificationReport] = []
    with verification(tables, interval=0.05) as running:

        def is_proven() -> bool:
            seen.extend(running.reports([TOPIC]).values())
            return seen[-1].proof is not None if seen else False

        running.begin_with(TOPIC, SOURCE, "unexplained_counts")
        asyncio.run(run_in_steps(running, is_proven))
    assert {report.contradiction.kind for report in seen if report.contradiction} == {"unexplained_counts"}
    assert [seen[0].error, seen[-1].contradiction and seen[-1].contradiction.kind] == [
        "no answer",
        "unexplained_counts",
    ]


def test_an_unexpected_error_is_shown_without_its_text(world: World) -> None:
    """The text of a library's error may contain the value of a cell."""
    tables = WorldTables(world)
    tables.error = ValueError("secret")
    with verification(tables) as running:
        report = asyncio.run(report_after(running))
    assert report.error is not None
    assert "ValueError" in report.error
    assert "secret" not in report.error


def test_close_interrupts_and_closes_the_sources_once(world: World) -> None:
    """The connections are closed when the thread is free. A task may stop and then leave."""
    tables = WorldTables(world)
    with verification(tables) as running:
        running.close()
    running._thread.shutdown(wait=True)
    assert tables.closed == 1
