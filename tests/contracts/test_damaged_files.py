"""Each file of a table, damaged in each way: the error names the file, and passes when the file is restored.

A module has one table of each format. A test damages one of its files, opens the table as a process that starts does,
and restores the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.fix_spark import Warehouse
from support.lake.lake_actions import commit, delete
from support.lake.lake_harness import ITEM, NOW, item, items
from support.lake.spark_harness import DeltaHarness, IcebergHarness

from headrace.core.model.errors import DamagedFile
from headrace.core.model.events import RowVersion
from headrace.ports import TopicPartition
from headrace_connectors.lakehouse.direct import row_index
from headrace_connectors.lakehouse.failures import WAYS_OUT
from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark

SECRET = "secret-42"
"""A value of cells. It has to be in no message."""


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 16])


def empty(file: Path) -> None:
    file.write_bytes(b"")


def overwrite(file: Path) -> None:
    """Replace everything but the first bytes, and keep the size."""
    content = file.read_bytes()
    file.write_bytes(content[:8].ljust(len(content), b"Z"))


def remove(file: Path) -> None:
    file.unlink()


WAYS = (cut, *(pytest.param(way, marks=pytest.mark.long) for way in (empty, overwrite, remove)))
DAMAGES = (
    (cut, False),
    (remove, False),
    *(
        pytest.param(way, checksum, marks=pytest.mark.long)
        for way, checksum in ((empty, False), (overwrite, False), (cut, True), (overwrite, True))
    ),
)
"""Ways, and whether the file has a checksum beside it, as in a file system; a checksum of nothing is not compared."""

ICEBERG = {
    "metadata": "metadata/v*.metadata.json",
    "manifest list": "metadata/snap-*.avro",
    "manifest": "metadata/*-m*.avro",
    "data": "data/**/*.parquet",
    "deletion vector": "data/*.puffin",
}
DELTA = {
    "log": "_delta_log/*.json",
    "checkpoint": "_delta_log/*.checkpoint.parquet",
    "data": "**/part-*.parquet",
    "deletion vector": "**/deletion_vector_*.bin",
}
NOT_NEEDED = {("checkpoint", "remove"), ("checkpoint", "empty"), ("log", "remove")}
"""Delta begins at the earlier entries of the log. Without its newest entry a table is an older copy of itself."""


@dataclass(frozen=True)
class Lake:
    """A table with its ledger, and how to open it."""

    warehouse: Warehouse
    harness: IcebergHarness | DeltaHarness
    folder: Path

    def open(self) -> SparkTable:
        """Open the table as another process does, which has cached nothing."""
        self.warehouse.session()._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        return self.harness.open(self.folder.name)

    def newest(self, pattern: str, *, ledger: bool = False) -> Path:
        """The newest of the files that a name describes."""
        folder = self.folder.with_name(self.folder.name + SUFFIX) if ledger else self.folder
        found = [file for file in folder.glob(pattern) if not file.name.startswith(".")]
        assert found, [str(file) for file in folder.rglob("*")]
        return max(found, key=lambda file: (file.stat().st_mtime_ns, file.name))

    def write(self) -> None:
        """Change rows of every file, which fails in the tests of this module."""
        table = self.open()
        table.reached("connect-sink")
        table.merge(items(*(item(number, SECRET, position=50, at=50) for number in range(1, 8))), commit(9, first=99))

    def read_ledger(self) -> int:
        return len(self.open().ledger())


@pytest.fixture(scope="module", autouse=True)
def _vectors() -> Iterator[None]:
    """However small an Iceberg table is, changed rows are deleted by vectors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_index, "SMALL_BYTES", 0)
        yield


def lake_of(warehouse: Warehouse, harness: IcebergHarness | DeltaHarness, folder: Path, interval: int = 0) -> Lake:
    """Create a table with several commits, deletion vectors, and a ledger."""
    options = {"properties": {"delta.checkpointInterval": str(interval)}} if interval else {}
    table = harness.open(folder.name, **options)
    table.evolve(ITEM, ["id"])
    changes = [
        [item(number, SECRET, position=10, at=10) for number in range(1, 6)],
        [item(1, SECRET, position=11, at=11), item(7, SECRET, position=11, at=11)],
        [delete({"id": 2}, position=12, at=12), item(3, SECRET, position=12, at=12)],
        [item(4, SECRET, position=13, at=13)],
        [item(7, SECRET, position=14, at=14)],
    ]
    for number, rows in enumerate(changes, 1):
        table.merge(items(*rows), commit(number, first=number))
    tombstone = RowVersion(b"00000.%020d" % 12, "shop.public.item", 0, 12, 12)
    table.record_tombstones({SECRET: tombstone}, NOW)
    return Lake(warehouse, harness, folder)


@pytest.fixture(scope="module")
def iceberg(warehouse: Warehouse) -> Lake:
    """An Iceberg table."""
    return lake_of(warehouse, IcebergHarness(warehouse), warehouse.path / "shop" / "damaged")


@pytest.fixture(scope="module")
def delta(warehouse: Warehouse) -> Lake:
    """A Delta table with a checkpoint after its third commit."""
    return lake_of(warehouse, DeltaHarness(warehouse), warehouse.path / "delta_shop" / "damaged", interval=3)


@contextmanager
def damaged(file: Path, way: Callable[[Path], None], *, checksum: bool) -> Iterator[None]:
    """Damage a file within the block. Without ``checksum`` the file has none, as on an object store."""
    beside = file.with_name(f".{file.name}.crc")
    content, written = file.read_bytes(), file.stat().st_mtime_ns
    checked = beside.read_bytes() if beside.exists() else None
    way(file)
    if not checksum:
        beside.unlink(missing_ok=True)
    try:
        yield
    finally:
        file.write_bytes(content)
        os.utime(file, ns=(written, written))  # as the newest file is found by its time
        if checked is not None:
            beside.write_bytes(checked)


def refused(action: Callable[[], object], file: Path, part: str) -> None:
    """Assert that ``action`` fails, and that the message names the file and the ways out, and no value."""
    with pytest.raises(DamagedFile) as caught:
        action()
    error = caught.value
    assert error.file is not None
    assert error.file.endswith(str(file)), str(error)
    assert f"{file} of {part} " in str(error)
    assert WAYS_OUT in str(error)
    assert SECRET not in str(error)


@pytest.mark.parametrize(("way", "checksum"), DAMAGES)
@pytest.mark.parametrize("part", ICEBERG)
def test_a_file_of_an_iceberg_table(iceberg: Lake, part: str, way: Callable[[Path], None], checksum: bool) -> None:
    """Whatever is damaged, the error names it."""
    file = iceberg.newest(ICEBERG[part])
    with damaged(file, way, checksum=checksum):
        refused(iceberg.write, file, "the table")
    assert iceberg.open().reached("connect-sink") == {TopicPartition("first", 0): 5}


@pytest.mark.parametrize(("way", "checksum"), DAMAGES)
@pytest.mark.parametrize("part", DELTA)
def test_a_file_of_a_delta_table(delta: Lake, part: str, way: Callable[[Path], None], checksum: bool) -> None:
    """Whatever is damaged, the error names it, unless the rest of the log replaces it."""
    file = delta.newest(DELTA[part])
    with damaged(file, way, checksum=checksum):
        if (part, way.__name__) not in NOT_NEEDED:
            refused(delta.write, file, "the table")
        else:
            reached = delta.open().reached("connect-sink")
            assert reached == {TopicPartition("first", 0): 4 if part == "log" else 5}
    assert delta.open().reached("connect-sink") == {TopicPartition("first", 0): 5}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("part", ["metadata", "manifest list", "manifest", "data"])
def test_a_file_of_an_iceberg_ledger(iceberg: Lake, part: str, way: Callable[[Path], None]) -> None:
    """The error names the file, and that it is one of the ledger."""
    file = iceberg.newest(ICEBERG[part], ledger=True)
    with damaged(file, way, checksum=False):
        refused(iceberg.read_ledger, file, "the table's ledger of deletes")
    assert iceberg.read_ledger() == 1


@pytest.mark.parametrize(
    ("part", "way"),
    [
        ("data", cut),
        ("log", cut),
        *(pytest.param("data", way, marks=pytest.mark.long) for way in (empty, overwrite, remove)),
        *(pytest.param("log", way, marks=pytest.mark.long) for way in (empty, overwrite)),
    ],
)
def test_a_file_of_a_delta_ledger(delta: Lake, part: str, way: Callable[[Path], None]) -> None:
    """The error names the file, and that it is one of the ledger."""
    file = delta.newest(DELTA[part], ledger=True)
    with damaged(file, way, checksum=False):
        refused(delta.read_ledger, file, "the table's ledger of deletes")
    assert delta.read_ledger() == 1


def test_a_gap_in_the_log_of_a_delta_table(delta: Lake) -> None:
    """An entry between the checkpoint and the newest entry is missing."""
    newest = delta.newest(DELTA["log"])
    file = newest.with_name(f"{int(newest.stem) - 1:020}.json")
    with damaged(file, remove, checksum=False), pytest.raises(DamagedFile) as caught:
        delta.write()
    assert str(file.parent) in str(caught.value)


@pytest.mark.parametrize("table_format", ["iceberg", pytest.param("delta", marks=pytest.mark.long)])
def test_the_newest_readable_commit_becomes_the_table(
    warehouse: Warehouse, unique: Callable[[str], str], table_format: str
) -> None:
    """The statements of the runbook find it and roll back. The table then has its offsets, and is written again."""
    if table_format == "iceberg":
        lake = lake_of(warehouse, IcebergHarness(warehouse), warehouse.path / "shop" / unique("rolled"))
        name = f"shop.{lake.folder.name}"
        listed = f"SELECT snapshot_id AS id FROM lake.{name}.snapshots ORDER BY committed_at DESC"
        select, roll_back = "lake." + name, f"CALL lake.system.rollback_to_snapshot('{name}', {{id}})"
    else:
        lake = lake_of(warehouse, DeltaHarness(warehouse), warehouse.path / "delta_shop" / unique("rolled"))
        select = f"delta.`{lake.folder}`"
        listed, roll_back = f"DESCRIBE HISTORY {select}", f"RESTORE TABLE {select} TO VERSION AS OF {{id}}"
    file = lake.newest((ICEBERG if table_format == "iceberg" else DELTA)["data"])
    overwrite(file)
    refused(lake.write, file, "the table")

    found = warehouse.sql(listed)
    for commit_id in found["id" if table_format == "iceberg" else "version"].to_pylist():
        try:
            rows = warehouse.sql(f"SELECT * FROM {select} VERSION AS OF {commit_id}")
        except Exception as error:
            if "ChecksumException" not in str(error):
                raise
            continue
        warehouse.sql(roll_back.format(id=commit_id))
        break
    assert len(lake.harness.read(lake.folder.name)) == len(rows)
    assert lake.open().reached("connect-sink") == {TopicPartition("first", 0): 4}
    lake.write()
    assert lake.open().reached("connect-sink") == {TopicPartition("first", 0): 99}
