"""When a table is maintained, and what happens if another writer conflicts with the maintenance."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from headrace.config.engine import EngineSettings
from headrace.core.model.table_files import TableFiles
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse.compaction_plan import RATIO, HourlyBytes, WriteBudget
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path
from headrace_connectors.lakehouse.spark_engine import SparkEngine
from headrace_connectors.lakehouse.table_format import CommitResult, TablePath
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.upkeep import (
    COMMITS_UNTIL_COMPACTION,
    LEDGER_COMMITS_UNTIL_COMPACTION,
    Upkeep,
)

MINUTE = 60 * 1_000_000
DAY = 24 * 60 * MINUTE
PATH = TablePath("shop", "item")
COMMIT = CommitResult(MergeCounts(1, 0), written=1000)


class RecordedFormat(IcebergFormat):
    """A format that records the steps of upkeep, and raises ``error`` in compactions."""

    def __init__(self) -> None:
        super().__init__(TableOptions(), IndexMemory(0))
        self.steps: list[str] = []
        self.budgets: list[float] = []
        self.error: Exception | None = None
        self.after_compaction: TableFiles | None = None
        self.unread = ""

    def files(self, session: Any, path: TablePath) -> TableFiles | None:
        """Return the files that a compaction leaves."""
        return self.after_compaction

    def compact(self, session: Any, path: TablePath, budget: float, commit_alone: Any) -> int:
        """Record the budget."""
        self.steps.append(f"compact {path.name}")
        self.budgets.append(budget)
        if self.error is not None:
            raise self.error
        return 500

    def expire(self, session: Any, path: TablePath) -> str:
        """Record the step."""
        self.steps.append(f"expire {path.name}")
        return self.unread

    def delete(self, session: Any, path: TablePath, files: str) -> None:
        """Record the files."""
        self.steps.append(f"delete {files} of {path.name}")

    def clean(self, session: Any, path: TablePath, now: int) -> None:
        """Do nothing."""


class RecordedLedger(TombstoneLedger):
    """A ledger that records its expiry as a step of ``table_format``."""

    def __init__(self, session: TableSession, table_format: RecordedFormat) -> None:
        super().__init__(session, table_format, ledger_path(PATH))
        self._steps = table_format.steps

    def expire(self, session: TableSession, before: int) -> None:
        """Record the step."""
        self._steps.append("expire tombstones")


class NoSession(TableSession):
    """A session that executes nothing."""

    def __init__(self) -> None:
        super().__init__(None, "shop.item", None, 1, SparkEngine({}, {}, EngineSettings()))

    def beside(self) -> TableSession:
        """Return another one."""
        return NoSession()


@pytest.fixture
def lake() -> RecordedFormat:
    """Return a format that records what it is called for."""
    return RecordedFormat()


def upkeep_of(lake: RecordedFormat, maintenance: Maintenance = Maintenance.BACKGROUND) -> Upkeep:
    """Return the upkeep of a table that was just opened."""
    session, budget = NoSession(), WriteBudget(HourlyBytes(0), HourlyBytes(0))
    return Upkeep(session, lake, RecordedLedger(session, lake), PATH, threading.Lock(), budget, maintenance)


def ran(upkeep: Upkeep, lake: RecordedFormat, now: int) -> list[str]:
    """Return the steps of a run; it has some exactly if it was due, and is not due again afterwards."""
    due, before = upkeep.is_due(now), len(lake.steps)
    upkeep.run(now, 7 * DAY)
    steps = lake.steps[before:]
    assert due == bool(steps)
    assert not upkeep.is_due(now)
    return steps


def test_each_part_has_its_own_schedule(lake: RecordedFormat) -> None:
    """A new handle considers all; then compaction by commits, expiry every ten minutes, tombstones once a day."""
    upkeep, now = upkeep_of(lake), 9 * DAY
    upkeep.count_commit(COMMIT)
    assert ran(upkeep, lake, now) == ["compact item", "expire item", "expire tombstones"]
    for _ in range(COMMITS_UNTIL_COMPACTION - 1):
        upkeep.count_commit(COMMIT)
        assert ran(upkeep, lake, now) == []
    upkeep.count_commit(COMMIT)
    assert ran(upkeep, lake, now) == ["compact item"]
    assert ran(upkeep, lake, now + 9 * MINUTE) == []
    assert ran(upkeep, lake, now + 10 * MINUTE) == ["expire item"]
    assert ran(upkeep, lake, now + DAY) == ["expire item", "expire tombstones"]
    for _ in range(LEDGER_COMMITS_UNTIL_COMPACTION):
        upkeep.ledger_grew()
    ledger = ledger_path(PATH).name
    assert ran(upkeep, lake, now + DAY) == [f"compact {ledger}", f"expire {ledger}"]


def test_files_that_queries_may_read_are_deleted_later(lake: RecordedFormat) -> None:
    """In the order in which they expired, with the first expiry after their time."""
    upkeep, now = upkeep_of(lake), 9 * DAY
    lake.unread = "a"
    ran(upkeep, lake, now)
    lake.unread = "b"
    assert ran(upkeep, lake, now + 30 * MINUTE) == ["expire item"]
    lake.unread = ""
    assert ran(upkeep, lake, now + 59 * MINUTE) == ["expire item"]
    assert ran(upkeep, lake, now + 70 * MINUTE) == ["expire item", "delete a of item"]
    assert ran(upkeep, lake, now + 100 * MINUTE) == ["expire item", "delete b of item"]
    assert ran(upkeep, lake, now + 120 * MINUTE) == ["expire item"]


def test_a_table_with_few_files_is_not_listed(lake: RecordedFormat) -> None:
    """A compaction is considered when the newest commit reports enough files."""
    upkeep = upkeep_of(lake)
    for files in (1, COMMITS_UNTIL_COMPACTION - 1):
        upkeep.count_commit(replace(COMMIT, files=TableFiles(files, 0, 0, 0, 0)))
        upkeep.run(9 * DAY, 7 * DAY)
    assert "compact item" not in lake.steps
    upkeep.count_commit(replace(COMMIT, files=TableFiles(COMMITS_UNTIL_COMPACTION - 1, 1, 0, 0, 0)))
    assert ran(upkeep, lake, 9 * DAY) == ["compact item"]


def test_the_report_has_the_files_after_the_last_commit_or_compaction(lake: RecordedFormat) -> None:
    """A change that made no commit says nothing of them."""
    upkeep, large, small = upkeep_of(lake), TableFiles(12, 3, 900, 100, 10), TableFiles(1, 0, 90, 90, 0)
    assert (upkeep.report.files, upkeep.report.compacted) == (None, None)
    upkeep.count_commit(replace(COMMIT, files=large))
    upkeep.count_commit(replace(COMMIT, made=False))
    assert (upkeep.report.files, upkeep.report.compacted) == (large, None)
    lake.after_compaction = small
    upkeep.run(9 * DAY, 7 * DAY)
    assert (upkeep.report.files, upkeep.report.compacted) == (small, 9 * DAY)
    upkeep.count_commit(replace(COMMIT, files=replace(small, data=2)))
    upkeep.run(9 * DAY + MINUTE, 7 * DAY)
    assert (upkeep.report.files, upkeep.report.compacted) == (replace(small, data=2), 9 * DAY)


def test_another_service_may_maintain_the_table(lake: RecordedFormat) -> None:
    """With table.maintenance=off only the ledger is maintained, which no other service knows."""
    upkeep = upkeep_of(lake, Maintenance.OFF)
    for _ in range(2 * COMMITS_UNTIL_COMPACTION):
        upkeep.count_commit(COMMIT)
    assert ran(upkeep, lake, 9 * DAY) == ["expire tombstones"]


def test_a_compaction_gets_what_merges_have_earned(lake: RecordedFormat) -> None:
    """Its budget is three times the bytes of the merges, without what earlier compactions wrote."""
    upkeep = upkeep_of(lake)
    for expected in (RATIO * 8000, RATIO * 16000 - 500):
        for _ in range(COMMITS_UNTIL_COMPACTION):
            upkeep.count_commit(COMMIT)
        upkeep.run(9 * DAY, 7 * DAY)
        assert lake.budgets[-1] == expected
    assert (upkeep.report.merged_bytes, upkeep.report.upkeep_bytes) == (16000, 1000)


def test_maintenance_after_a_conflict_runs_when_it_is_due_again(lake: RecordedFormat) -> None:
    """The task continues after the conflict, because no result depends on the maintenance."""
    upkeep = upkeep_of(lake)
    lake.error = Conflict("shop.item: another writer changed the table in between")
    upkeep.count_commit(COMMIT)
    upkeep.run(9 * DAY, 7 * DAY)
    assert lake.steps == ["compact item"]
    lake.error = None
    upkeep.run(9 * DAY, 7 * DAY)
    assert lake.steps == ["compact item", "expire item", "expire tombstones"]
