"""Compactions of Iceberg tables during which merges write: no row is lost, restored or doubled."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import delete
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item
from support.lake.spark_harness import IcebergHarness

from headrace.core.tables.table_layout import table_layout
from headrace_connectors.lakehouse import compaction_plan, upkeep
from headrace_connectors.lakehouse.compaction_plan import DataFile
from headrace_connectors.lakehouse.direct import row_index
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg_compaction import IcebergCompaction, RewriteResult
from headrace_connectors.lakehouse.iceberg_table import IcebergName

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to compact in small tables."""
    monkeypatch.setattr(row_index, "SMALL_BYTES", 0)


Stored = dict[int, str]


class History:
    """A table of items, and the rows that it must contain."""

    def __init__(self, harness: IcebergHarness, name: str, seed: int, **options: Any) -> None:
        self._harness = harness
        self.name = name
        self._chance = random.Random(seed)
        self._position = 0
        self.table = harness.open(name, **options)
        self.rows: Stored = {}

    def commit(self) -> None:
        """Write one batch: new rows, and updates and deletes of stored ones."""
        changes = []
        touched = self._chance.sample(sorted(self.rows), self._chance.randint(0, min(8, len(self.rows))))
        for key in [*touched, *range(self._next, self._next + self._chance.randint(1, 12))]:
            self._position += 1
            if key in self.rows and self._chance.random() < 0.4:
                del self.rows[key]
                changes.append(delete({"id": key}, position=self._position))
            else:
                self.rows[key] = f"n{self._position}"
                changes.append(item(key, self.rows[key], position=self._position))
        apply(self.table, *changes)

    @property
    def _next(self) -> int:
        return 1 + max(self.rows, default=0) + self._position

    def compaction(self) -> IcebergCompaction:
        """Return a look at the table as it is now."""
        session: Any = self.table._session
        return IcebergCompaction(session.beside(), IcebergName("lake", "shop", self.name))

    def check(self) -> None:
        """Compare the rows as PyIceberg and as Spark read them."""
        by_spark = pa.concat_tables(self.table.scan(["id", "name"])) if self.rows else None
        for found in (self._harness.read(self.name), by_spark or pa.table({"id": [], "name": []})):
            pairs = list(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))
            assert len(pairs) == len(self.rows)
            assert dict(pairs) == self.rows


@pytest.fixture
def history(warehouse: Warehouse, unique: Callable[[str], str]) -> Callable[..., History]:
    """Make a table with a few commits."""

    def make(seed: int = 1, commits: int = 4, **options: Any) -> History:
        made = History(IcebergHarness(warehouse), unique("compacted"), seed, **options)
        made.table.evolve(ITEM, ["id"])
        for _ in range(commits):
            made.commit()
        return made

    return make


def rewritten(compaction: IcebergCompaction, files: list[DataFile] | None = None) -> RewriteResult:
    """Rewrite files, by default all."""
    return compaction.rewrite(compaction.files() if files is None else files)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_rows_that_are_deleted_during_a_rewrite_stay_deleted(history: Callable[..., History], seed: int) -> None:
    """Merges before, during and after several rewrites: the table has the rows that the merges leave."""
    table = history(seed)
    for _ in range(3):
        compaction = table.compaction()
        files = compaction.files()
        table.commit()
        half = random.Random(seed).sample(files, max(2, len(files) // 2))
        first = rewritten(compaction, half)
        table.commit()
        table.commit()
        compaction.replace(first, {"headrace.test": "yes"})
        table.check()
        second = rewritten(compaction, [file for file in files if file not in half])
        table.commit()
        compaction.replace(second, {})
        table.check()
        table.commit()
        table.check()


def test_a_partitioned_table_is_compacted_by_partition(history: Callable[..., History]) -> None:
    """The rows of the new files are in their partition, with the vectors for later deletes."""
    table = history(layout=table_layout("iceberg", "bucket(2, id)", ""), commits=5)
    compaction = table.compaction()
    files = compaction.files()
    partitions = {file.partition for file in files}
    assert len(partitions) == 2
    for partition in sorted(partitions):
        first = rewritten(compaction, [file for file in files if file.partition == partition])
        table.commit()
        compaction.replace(first, {})
        table.check()


def test_files_without_a_live_row_disappear(history: Callable[..., History]) -> None:
    """Nothing is written if all rows of the files are deleted, also if the last ones are deleted meanwhile."""
    table = history(commits=1)
    compaction = table.compaction()
    first = rewritten(compaction)
    for position, key in enumerate(sorted(table.rows)):
        apply(table.table, delete({"id": key}, position=1000 + position))
    table.rows.clear()
    compaction.replace(first, {})
    table.check()
    again = table.compaction()
    [left] = again.files()
    assert left.deleted == left.rows > 0
    empty = rewritten(again)
    assert empty.new is None
    again.replace(empty, {})
    assert table.compaction().files() == []
    table.check()


def test_a_second_compaction_of_the_same_files_is_a_conflict(history: Callable[..., History]) -> None:
    """Of two workers that rewrite the same files one succeeds, and the other one changes nothing."""
    table = history()
    ours, theirs = table.compaction(), table.compaction()
    first, second = rewritten(ours), rewritten(theirs)
    theirs.replace(second, {})
    with pytest.raises(Conflict):
        ours.replace(first, {})
    table.check()


def test_a_truncate_during_a_rewrite_wins(history: Callable[..., History], warehouse: Warehouse) -> None:
    """Files that were removed completely do not come back."""
    table = history()
    compaction = table.compaction()
    first = rewritten(compaction)
    warehouse.sql(f"DELETE FROM lake.shop.`{table.name}`")
    table.rows.clear()
    with pytest.raises(Conflict):
        compaction.replace(first, {})
    table.check()


def test_a_catalog_may_hide_all_but_the_newest_snapshot(history: Callable[..., History], warehouse: Warehouse) -> None:
    """Later deletes are found without the snapshots in between, and so are files that were removed."""
    table = history()
    compaction, late = table.compaction(), table.compaction()
    first, second = rewritten(compaction), rewritten(late)
    for _ in range(2):
        table.commit()
    IcebergHarness(warehouse).forget_history(table.name)
    compaction.replace(first, {})
    table.check()
    table.commit()
    IcebergHarness(warehouse).forget_history(table.name)
    with pytest.raises(Conflict):
        late.replace(second, {})
    table.check()


def test_a_rollback_during_a_rewrite_wins(history: Callable[..., History], warehouse: Warehouse) -> None:
    """Rows whose delete was undone are in the old files alone, so that these stay."""
    table = history()
    before, old = dict(table.rows), {file.path for file in table.compaction().files()}
    [earlier] = warehouse.sql(f"SELECT max_by(snapshot_id, committed_at) FROM lake.shop.`{table.name}`.snapshots")[0]
    for _ in range(3):
        table.commit()
    compaction = table.compaction()
    first = rewritten(compaction, [file for file in compaction.files() if file.path in old])
    warehouse.sql(f"CALL lake.system.rollback_to_snapshot('shop.`{table.name}`', {earlier})")
    with pytest.raises(Conflict, match="rolled back"):
        compaction.replace(first, {})
    table.rows = before
    table.check()


@pytest.mark.parametrize(
    "options",
    [{}, {"format_version": 2}, {"layout": table_layout("iceberg", "", "name")}],
    ids=["vectors", "version 2", "sorted"],
)
def test_upkeep_combines_small_files(
    history: Callable[..., History], monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """All kinds of tables are compacted, and keep their rows and the progress of their group."""
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 1)
    monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
    table = history(**options, commits=6)
    before = len(table.compaction().files())
    reached = table.table.reached("connect-sink")
    table.table.maintain(NOW, 7 * DAY)
    assert len(table.compaction().files()) < before
    report, files = table.table.upkeep(), table.compaction().files()
    assert report.upkeep_bytes > 0
    assert report.compacted == NOW
    assert report.files is not None
    assert (report.files.data, report.files.rows) == (len(files), sum(file.rows for file in files))
    assert table.table.reached("connect-sink") == reached
    table.check()
    table.commit()
    table.check()


def test_a_conflict_of_upkeep_fails_nothing(history: Callable[..., History], monkeypatch: pytest.MonkeyPatch) -> None:
    """A rewrite that another worker has made in between leaves the table as it is, until upkeep is due again."""
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 1)
    monkeypatch.setattr(compaction_plan, "FAN_OUT", 2)
    table = history(commits=6)
    rewrite = IcebergCompaction.rewrite

    def overtaken(self: IcebergCompaction, files: list[DataFile]) -> RewriteResult:
        monkeypatch.setattr(IcebergCompaction, "rewrite", rewrite)
        done = rewrite(self, files)
        other = table.compaction()
        other.replace(rewritten(other), {})
        return done

    monkeypatch.setattr(IcebergCompaction, "rewrite", overtaken)
    table.table.maintain(NOW, 7 * DAY)
    table.check()
    table.commit()
    table.table.maintain(NOW, 7 * DAY)
    table.check()
