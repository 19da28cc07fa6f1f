"""A handle reads what it does not know of a ledger: nothing after own entries and compactions, else new entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import TOPIC, text
from support.lake.lake_harness import DAY, ITEM, NOW
from support.lake.spark_harness import DeltaHarness, IcebergHarness

from headrace.core.model.events import RowVersion
from headrace_connectors.lakehouse import ledger as ledger_module
from headrace_connectors.lakehouse.direct import stored_rows
from headrace_connectors.lakehouse.failures import Declined
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark

VERSION = RowVersion(text(3), TOPIC, 0, 3, 30)


class Lake(NamedTuple):
    """A lake, and a statement of another writer that compacts a ledger completely."""

    harness: IcebergHarness | DeltaHarness
    compact: Callable[[str], object]


@pytest.fixture(params=["iceberg", pytest.param("delta", marks=pytest.mark.long)])
def lake(request: pytest.FixtureRequest, warehouse: Warehouse) -> Lake:
    if request.param == "delta":
        delta = DeltaHarness(warehouse)
        statement = "OPTIMIZE {}"
        return Lake(delta, lambda name: _run(warehouse, statement.format(delta.sql_name(name + SUFFIX))))
    statement = "CALL lake.system.rewrite_data_files(table => 'shop.`{}`', options => map('rewrite-all', 'true'))"
    return Lake(IcebergHarness(warehouse), lambda name: _run(warehouse, statement.format(name + SUFFIX)))


def _run(warehouse: Warehouse, statement: str) -> None:
    warehouse.session().sql(statement).collect()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects the number of rows of each result that a table reads, by Spark or without it."""
    counts: list[int] = []
    arrow, scan = TableSession.arrow, IcebergFormat.scan

    def counted(session: TableSession, query: str) -> pa.Table:
        rows = arrow(session, query)
        counts.append(len(rows))
        return rows

    def counted_scan(*arguments: Any) -> Iterator[pa.Table]:
        parts = list(scan(*arguments))
        counts.append(sum(map(len, parts)))
        return iter(parts)

    monkeypatch.setattr(TableSession, "arrow", counted)
    monkeypatch.setattr(IcebergFormat, "scan", counted_scan)
    return counts


def opened(lake: Lake, name: str) -> SparkTable:
    table = lake.harness.open(name)
    if table.schema() is None:
        table.evolve(ITEM, ["id"])
    return table


def test_only_new_entries_are_read(lake: Lake, unique: Callable[[str], str], reads: list[int]) -> None:
    """Own entries and a compaction need no read; entries of another worker are read alone."""
    name = unique("ledger")
    table, other = opened(lake, name), opened(lake, name)
    other.record_tombstones({f"={key}": VERSION for key in range(5)}, NOW)
    entries = table.ledger()
    table.record_tombstones({"=a": VERSION}, NOW)
    reads.clear()
    table.ledger()
    lake.compact(name)
    assert table.ledger_moved()
    table.update_ledger()
    assert not table.ledger_moved()
    table.ledger()
    assert reads == []
    other.record_tombstones({"=b": VERSION, "=c": VERSION}, NOW)
    table.update_ledger()
    assert reads == [2]
    assert set(entries.additions(pa.array(["=a", "=b", "=0"]))) == {"=b"}
    table.ledger()
    assert reads == [2]
    other.record_tombstones({"=d": VERSION}, NOW)
    assert set(table.ledger()) == {*(f"={key}" for key in range(5)), "=a", "=b", "=c", "=d"}
    assert reads == [2, 1]


def test_entries_that_were_moved_since_are_not_missed(
    lake: Lake, unique: Callable[[str], str], reads: list[int]
) -> None:
    """If a compaction has moved the entries of another worker to other files, all entries are read."""
    name = unique("ledger")
    table, other = opened(lake, name), opened(lake, name)
    entries = table.ledger()
    for key in ("=1", "=2"):
        other.record_tombstones({key: VERSION}, NOW)
    lake.compact(name)
    table.update_ledger()
    keys = pa.array(["=1", "=2", "=3"])
    assert set(entries.additions(keys)) == {"=1", "=2"}
    other.record_tombstones({"=3": VERSION}, NOW)
    lake.compact(name)
    assert set(table.ledger().of(keys)) == {"=1", "=2", "=3"}


def test_entries_that_are_moved_before_they_are_read_are_not_missed(
    lake: Lake, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction between the search for new files and their read makes the handle read all entries."""
    name = unique("ledger")
    table, other = opened(lake, name), opened(lake, name)
    other.record_tombstones({"=0": VERSION}, NOW)  # without any commit before, all entries are read at once
    entries = table.ledger()
    for key in ("=1", "=2"):
        other.record_tombstones({key: VERSION}, NOW)
    arrow, compactions = TableSession.arrow, [lake.compact]

    def interrupted(session: TableSession, query: str) -> pa.Table:
        while compactions:
            compactions.pop()(name)
        return arrow(session, query)

    monkeypatch.setattr(TableSession, "arrow", interrupted)
    table.update_ledger()
    assert not compactions
    assert set(entries.additions(pa.array(["=1", "=2"]))) == {"=1", "=2"}


def test_expired_entries_do_not_apply_after_the_next_read(lake: Lake, unique: Callable[[str], str]) -> None:
    """After another worker has removed old entries, a read omits them. An update of the ledger does not."""
    name = unique("ledger")
    table, other = opened(lake, name), opened(lake, name)
    other.record_tombstones({"=old": VERSION}, NOW - 8 * DAY)
    entries, keys = table.ledger(), pa.array(["=old", "=new"])
    other.ledger()
    other.maintain(NOW, 7 * DAY)
    other.record_tombstones({"=new": VERSION}, NOW)
    table.update_ledger()
    assert (set(entries.of(keys)), set(entries.additions(keys))) == ({"=old"}, {"=new"})
    assert set(table.ledger().of(keys)) == {"=new"}


def test_the_ledger_of_another_table_is_read_completely(lake: Lake, unique: Callable[[str], str]) -> None:
    """A handle whose table and ledger were replaced by others with as many commits does not keep its entries."""
    name = unique("ledger")
    table = opened(lake, name)
    table.record_tombstones({"=1": VERSION}, NOW)
    assert set(table.ledger()) == {"=1"}
    lake.harness.drop(name)
    lake.harness.drop_ledger(name)
    opened(lake, name).record_tombstones({"=2": VERSION}, NOW)
    assert set(table.ledger()) == {"=2"}


def test_a_large_ledger_is_read_in_parts(
    lake: Lake, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that is too large for one result has the same entries."""
    name = unique("ledger")
    opened(lake, name).record_tombstones({f"={key}": VERSION for key in range(100)}, NOW)
    monkeypatch.setattr(ledger_module, "_SIZE_AT_ONCE", 10)
    monkeypatch.setattr(stored_rows, "ROWS_AT_ONCE", 7)
    table = opened(lake, name)
    assert table.ledger() == {f"={key}": VERSION for key in range(100)}
    table.maintain(NOW + 8 * DAY, 7 * DAY)
    assert table.ledger() == {}


def test_entries_that_only_spark_reads(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads all entries, also those that were read before the first one that needs it."""
    lake, name = IcebergHarness(warehouse), unique("ledger")
    table = lake.open(name)
    table.evolve(ITEM, ["id"])
    for key in range(3):
        table.record_tombstones({f"={key}": VERSION}, NOW)
    scan = IcebergFormat.scan

    def declined(*arguments: Any) -> Iterator[pa.Table]:
        yield next(scan(*arguments))
        raise Declined("a file has another type")

    monkeypatch.setattr(IcebergFormat, "scan", declined)
    assert lake.open(name).ledger() == {f"={key}": VERSION for key in range(3)}
