"""Tables that an earlier release wrote: the current code reads and writes them.

``fixtures/lake/stored-format-1.tar.xz`` was written once and must not be regenerated (its script describes how).
"""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import TOPIC, Row, actions, commit, text

from headrace.core.model.actions import Actions
from headrace.core.model.events import RowVersion
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse.compaction_plan import HourlyBytes, WriteBudget
from headrace_connectors.lakehouse.delta import DeltaFormat
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.iceberg import IcebergFormat
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark

ARCHIVE = Path(__file__).parent.parent / "fixtures" / "lake" / "stored-format-1.tar.xz"
WRITTEN_AT = Path("/tmp/headrace-stored-format-1")  # noqa: S108 - Iceberg's metadata names its files by absolute path
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(12, 2))])


UNLIMITED = WriteBudget(HourlyBytes(0), HourlyBytes(0))


@pytest.fixture
def folder() -> Iterator[Path]:
    """The tables at the path where they were written; a lock admits one test run at a time."""
    with Path(f"{WRITTEN_AT}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(WRITTEN_AT, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(WRITTEN_AT, filter="data")
        yield WRITTEN_AT
        shutil.rmtree(WRITTEN_AT)


@pytest.fixture(params=["iceberg", "delta"])
def table(request: pytest.FixtureRequest, warehouse: Warehouse, folder: Path) -> SparkTable:
    """A table of version 1 of the stored format."""
    warehouse.lakehouse.table("shop", "starts_spark", TableOptions())
    spark = warehouse.session()
    catalog = "spark.sql.catalog.stored"
    spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"{catalog}.type", "hadoop")
    spark.conf.set(f"{catalog}.warehouse", str(folder))
    spark.conf.set(f"{catalog}.cache-enabled", "false")
    formats: dict[str, TableFormat] = {
        "iceberg": IcebergFormat(TableOptions(catalog="stored"), IndexMemory(0)),
        "delta": DeltaFormat(str(folder), TableOptions("delta")),
    }
    session = TableSession(spark, "stored", None, 1, warehouse.lakehouse._engine)
    return SparkTable(session, formats[request.param], TablePath(request.param, "item"), TableOptions(), UNLIMITED)


def batch(*rows: Row) -> Actions:
    return actions(SCHEMA, rows)


def test_version_1_is_read(table: SparkTable) -> None:
    """Columns, versions of rows, tombstones and the floor are read as they were written."""
    assert table.schema() == SCHEMA
    assert table.ledger() == {"": RowVersion(text(5), TOPIC, 0, 5, 50), "=3": RowVersion(text(30), TOPIC, 0, 13, 13)}
    asked = batch(*(Row({"id": key}) for key in (1, 2, 3)))
    assert table.stored(asked) == {"1": RowVersion(text(10), TOPIC, 0, 10, 10), "2": RowVersion(b"", TOPIC, 0, 11, 11)}


def test_version_1_is_written_on(table: SparkTable) -> None:
    """Changes below the stored rows do not apply, changes above do, and the table keeps version 1."""
    stale = [Row({"id": 1, "name": "old"}, position=10, at=20), Row({"id": 2, "name": "old"}, at=11)]
    assert table.merge(batch(*stale), commit(3)) == MergeCounts(0, 0)
    newer = [Row({"id": 1, "name": "new"}, position=11, at=21), Row({"id": 2, "name": "new"}, at=22)]
    assert table.merge(batch(*newer, Row({"id": 4}, position=12, at=23)), commit(4)) == MergeCounts(3, 0)
    assert set(table.stored(batch(*(Row({"id": key}) for key in (1, 2, 3, 4))))) == {"1", "2", "4"}
