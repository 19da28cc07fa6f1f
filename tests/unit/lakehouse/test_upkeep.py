"""When a table is maintained, and what happens if another writer conflicts with the maintenance."""

from __future__ import annotations

import pytest

from headrace.config.engine import EngineSettings
from headrace.ports import TableOptions
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path
from headrace_connectors.lakehouse.spark_engine import SparkEngine
from headrace_connectors.lakehouse.table_format import TablePath
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.upkeep import FILES_UNTIL_COMPACTION, Upkeep

DAY = 24 * 3600 * 1_000_000
PATH = TablePath("shop", "item")


class ConflictingSession(TableSession):
    """A session in which every statement conflicts with another writer."""

    def __init__(self) -> None:
        super().__init__(None, "shop.item", None, 1, SparkEngine({}, {}, EngineSettings()))
        self.statements: list[str] = []

    def run(self, statement: str) -> None:
        """Record the statement and raise Conflict."""
        self.statements.append(statement)
        raise Conflict("shop.item: another writer changed the table in between")


def test_maintenance_after_a_conflict_runs_when_it_is_due_again() -> None:
    """The task continues after the conflict, because no result depends on the maintenance."""
    session, lake = ConflictingSession(), IcebergFormat("lake", TableOptions())
    upkeep = Upkeep(session, lake, TombstoneLedger(session, lake, ledger_path(PATH)), PATH)
    for files, attempts in ((FILES_UNTIL_COMPACTION, 1), (FILES_UNTIL_COMPACTION, 1), (2 * FILES_UNTIL_COMPACTION, 2)):
        upkeep.committed(files)
        upkeep.run(9 * DAY, 7 * DAY)
        assert sum("rewrite_data_files" in statement for statement in session.statements) == attempts


class RecordingSession(ConflictingSession):
    """A session that records its statements and executes none."""

    def run(self, statement: str) -> None:
        """Record the statement."""
        self.statements.append(statement)


def test_maintenance_is_due_exactly_when_it_runs_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table without work waits for no maintenance thread."""
    monkeypatch.setattr(IcebergFormat, "carry", lambda *_: True)
    monkeypatch.setattr(IcebergFormat, "clean", lambda *_: ())
    session, lake = RecordingSession(), IcebergFormat("lake", TableOptions())
    upkeep = Upkeep(session, lake, TombstoneLedger(session, lake, ledger_path(PATH)), PATH)
    for files, day in ((1, 9), (2, 9), (FILES_UNTIL_COMPACTION, 9), (FILES_UNTIL_COMPACTION + 1, 9), (1, 10)):
        upkeep.committed(files)
        due, before = upkeep.is_due(day * DAY), len(session.statements)
        upkeep.run(day * DAY, 7 * DAY)
        assert due == (len(session.statements) > before)
        assert not upkeep.is_due(day * DAY)
