"""Entries are added to the ledger of an Iceberg table without a look at its files, beside other writers."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from support.fix_direct_commits import Commits
from support.fix_spark import Warehouse
from support.lake.lake_harness import ITEM, NOW
from support.lake.spark_harness import IcebergHarness

from headrace.core.model.events import RowVersion
from headrace.ports import LakeTable
from headrace_connectors.lakehouse.direct import direct_table, ledger_appends
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg_table import IcebergTable
from headrace_connectors.lakehouse.ledger import SUFFIX

pytestmark = pytest.mark.spark


class Ledger:
    """The ledger of a new table, and how often Iceberg's own append has added to it."""

    def __init__(self, warehouse: Warehouse, name: str, **options: Any) -> None:
        self._warehouse = warehouse
        self._name = name
        self._options = options
        self.by_iceberg = 0
        self.table = self.open()
        self.table.evolve(ITEM, ["id"])
        self.table.ledger()

    def open(self) -> LakeTable:
        return IcebergHarness(self._warehouse).open(self._name, **self._options)

    def keys(self) -> set[str]:
        """The entries as a new worker reads them."""
        return set(self.open().ledger())

    def metadata(self, what: str) -> list[dict[str, Any]]:
        """A metadata table of the ledger."""
        return self._warehouse.sql(f"SELECT * FROM lake.shop.`{self._name}{SUFFIX}`.{what}").to_pylist()

    def sql(self, statement: str) -> None:
        self._warehouse.session().sql(statement.format(ledger=f"lake.shop.`{self._name}{SUFFIX}`")).collect()


@pytest.fixture
def ledger(warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Ledger:
    ledger = Ledger(warehouse, unique("appends"))
    append = IcebergTable.append

    def observed(self: IcebergTable, *arguments: Any) -> Any:
        ledger.by_iceberg += 1
        return append(self, *arguments)

    monkeypatch.setattr(IcebergTable, "append", observed)
    return ledger


def add(table: LakeTable, *keys: str) -> None:
    table.record_tombstones({key: RowVersion(b"1", "t", 0, 1, 0) for key in keys}, NOW)


def test_entries_of_two_workers_are_all_there(ledger: Ledger, commits: Commits) -> None:
    """Another worker adds before and in the middle of a commit, which is then repeated on top of it."""
    other = ledger.open()
    add(ledger.table, "=1", "=2")
    add(other, "=3")
    add(ledger.table, "=4")
    commits.meanwhile = lambda: add(other, "=5")
    add(ledger.table, "=6")
    assert ledger.keys() == {"=1", "=2", "=3", "=4", "=5", "=6"}
    assert (commits.count, ledger.by_iceberg) == (5, 0)
    assert [file["record_count"] for file in ledger.metadata("files")] == [1, 1, 1, 1, 2]


def test_an_entry_stays_after_others_changed_the_ledger(ledger: Ledger) -> None:
    """Rows that a statement deletes stay deleted, and a snapshot that is rolled back stays undone."""
    add(ledger.table, "=1", "=2")
    add(ledger.table, "=3")
    ledger.sql("DELETE FROM {ledger} WHERE key = '=2'")
    add(ledger.table, "=4")
    assert ledger.keys() == {"=1", "=3", "=4"}
    before = ledger.metadata("snapshots")[-2]["snapshot_id"]
    ledger.sql(f"CALL lake.system.rollback_to_snapshot('{{ledger}}', {before})")
    add(ledger.table, "=5")
    assert ledger.keys() == {"=1", "=3", "=5"}


def test_an_append_gives_up_while_others_are_always_faster(ledger: Ledger, commits: Commits) -> None:
    """The task writes the batch again after its own wait."""
    other = ledger.open()

    def add_theirs() -> None:
        add(other, "=theirs")
        commits.meanwhile = add_theirs

    add(ledger.table, "=1")
    commits.meanwhile = add_theirs
    with pytest.raises(Conflict):
        add(ledger.table, "=2")
    commits.meanwhile = None
    assert ledger.keys() == {"=1", "=theirs"}


def test_an_entry_whose_commit_is_unknown_is_added_again(ledger: Ledger, commits: Commits) -> None:
    """It is in the ledger twice, and counts once."""
    commits.lost = True
    add(ledger.table, "=1")
    assert ledger.keys() == {"=1"}
    assert ledger.table.ledger() == ledger.open().ledger()
    assert [file["record_count"] for file in ledger.metadata("files")] == [1, 1]


def test_no_metadata_is_kept_until_the_next_batch(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a thousand ledgers, with all of their snapshots, would fill the JVM."""
    opened: list[weakref.ref[IcebergTable]] = []
    is_current = DirectTable.is_current

    def observed(self: DirectTable, loaded: IcebergTable) -> bool:
        opened.append(weakref.ref(loaded))
        return is_current(self, loaded)

    monkeypatch.setattr(DirectTable, "is_current", observed)
    add(ledger.table, "=1")
    assert [each() for each in opened] == [None]


def test_iceberg_merges_the_manifests_of_many_appends(
    ledger: Ledger, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader opens each manifest. Iceberg's own append merges a hundred of them, here three."""
    ledger.sql("ALTER TABLE {ledger} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')")
    monkeypatch.setattr(ledger_appends, "_MOST_MANIFESTS", 3)
    for number in range(8):
        add(ledger.table, f"={number}")
        assert len(ledger.metadata("manifests")) <= 3
    assert ledger.keys() == {f"={number}" for number in range(8)}
    assert (commits.count, ledger.by_iceberg) == (6, 2)


def test_iceberg_appends_to_a_ledger_of_version_2(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its snapshots give rows no ids."""
    monkeypatch.setattr(DirectTable, "commit", None)
    ledger = Ledger(warehouse, unique("appends"), format_version=2)
    add(ledger.table, "=1")
    add(ledger.table, "=2")
    assert ledger.keys() == {"=1", "=2"}


def test_iceberg_appends_where_its_version_has_other_classes(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_table, "_JAVA_CLASS", "headrace.OfAnotherVersion")
    ledger = Ledger(warehouse, unique("appends"))
    add(ledger.table, "=1")
    assert ledger.keys() == {"=1"}
