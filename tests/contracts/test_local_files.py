"""Spark's JVM creates local files without a process for each, and never over another writer's commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from support.fix_spark import Warehouse
from support.lake.delta_tables import delta_table
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item

from headrace.ports import TableOptions
from headrace_connectors.lakehouse import upkeep

pytestmark = pytest.mark.spark

WRITERS = 4
VERSIONS = 8


def faults_of_ended_processes(java: Any) -> int:
    """The page faults of all child processes of the JVM that have ended; each process has some."""
    stat = Path(f"/proc/{java.java.lang.ProcessHandle.current().pid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[8])


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_commit_starts_no_process(warehouse: Warehouse, unique: Callable[[str], str], table_format: str) -> None:
    """A commit starts no process, whereas Hadoop's class runs chmod, and for Delta readlink, some twenty times.

    Other threads of the JVM start one now and then, and Spark some in its first commits.
    """
    table = warehouse.lakehouse.table(f"{table_format}_files", unique("files"), TableOptions(table_format))
    table.evolve(ITEM, ["id"])
    java = warehouse.session()._jvm
    faults = []
    for position in range(1, 8):
        before = faults_of_ended_processes(java)
        apply(table, item(1, position=position))
        faults.append(faults_of_ended_processes(java) - before)
    assert 0 in faults[3:]


def test_files_of_an_ended_worker_are_removed_once_a_week(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """A file that no snapshot refers to is removed when it is older than three days; the others stay."""
    name = unique("orphans")
    warehouse.lakehouse.table("shop", name, TableOptions()).evolve(ITEM, ["id"])
    table = warehouse.lakehouse.table("shop", name, TableOptions())
    apply(table, item(1, position=1), item(2, position=1))
    referred = sorted((warehouse.path / "shop" / name / "data").iterdir())
    old, young = (warehouse.path / "shop" / name / "data" / each for each in ("old.parquet", "young.parquet"))
    for orphan, age in ((old, 4 * DAY), (young, 2 * DAY)):
        orphan.write_bytes(b"rows of a merge that was killed")
        os.utime(orphan, ((NOW - age) / 1e6,) * 2)
    for file in referred:
        os.utime(file, ((NOW - 30 * DAY) / 1e6,) * 2)
    table.maintain(NOW - 7 * DAY, 7 * DAY)
    assert old.exists()
    for now in (NOW - DAY, NOW):
        assert old.exists()
        table = warehouse.lakehouse.table("shop", name, TableOptions())  # a worker that has just started
        table.schema()
        table.maintain(now, 7 * DAY)
    assert not old.exists()
    assert young.exists()
    assert all(file.exists() for file in referred)
    assert warehouse.read("shop", name).num_rows == 2


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_table_whose_folder_is_a_link_is_maintained(
    warehouse: Warehouse,
    unique: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: str,
) -> None:
    """A class for local files that lists such a link as itself would let Delta's VACUUM descend without end."""
    monkeypatch.setattr(upkeep, "COMMITS_UNTIL_COMPACTION", 1)
    name, namespace, options = unique("linked"), f"{table_format}_links", TableOptions(table_format)
    warehouse.lakehouse.table(namespace, name, options).evolve(ITEM, ["id"])
    link, folder = warehouse.path / namespace / name, tmp_path / name
    link.rename(folder)
    link.symlink_to(folder)
    table = warehouse.lakehouse.table(namespace, name, options)
    apply(table, item(1, position=1))
    table.maintain(NOW, 7 * DAY)
    assert [row["id"] for tables in table.scan(["id"]) for row in tables.to_pylist()] == [1]
    if table_format == "delta":
        assert "VACUUM END" in {entry["operation"] for entry in delta_table(folder).history()}


def test_a_rename_replaces_no_file(warehouse: Warehouse, tmp_path: Path) -> None:
    """Iceberg and Delta commit by one. Hadoop's class replaces the commit of a process that has been faster."""
    warehouse.lakehouse.start()
    java = warehouse.session()._jvm
    faster, late, folder = tmp_path / "1.json", tmp_path / "draft", tmp_path / "folder"
    faster.write_text("the first commit")
    folder.mkdir()
    files = java.org.apache.hadoop.fs.Path(str(faster)).getFileSystem(_configuration(warehouse))
    context = java.org.apache.hadoop.fs.AbstractFileSystem.get(java.java.net.URI("file:///"), _configuration(warehouse))
    source, target = (java.org.apache.hadoop.fs.Path(f"file:{path}") for path in (late, faster))
    late.write_text("the second commit")
    assert files.rename(source, target) is False
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        context.renameInternal(source, target)
    assert (faster.read_text(), late.read_text()) == ("the first commit", "the second commit")
    assert files.rename(target, java.org.apache.hadoop.fs.Path(f"file:{folder}"))
    assert files.rename(source, target)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["1.json", "1.json", "folder"]
    assert (faster.read_text(), (folder / "1.json").read_text()) == ("the second commit", "the first commit")
    late.hardlink_to(faster)  # as if NFS had repeated a request whose answer was lost
    assert files.rename(source, target)
    assert (late.exists(), faster.read_text()) == (False, "the second commit")


def test_a_file_keeps_its_checksum(warehouse: Warehouse, tmp_path: Path) -> None:
    """A checksum that was left by a process that has ended does not stay beside a new file."""
    warehouse.lakehouse.start()
    files = warehouse.session()._jvm.org.apache.hadoop.fs.FileSystem.getLocal(_configuration(warehouse))
    path = warehouse.session()._jvm.org.apache.hadoop.fs.Path
    (tmp_path / ".b.crc").write_bytes(b"of another file")
    out = files.create(path(f"file:{tmp_path}/a"))
    out.writeBytes("rows")
    out.close()
    assert files.rename(path(f"file:{tmp_path}/a"), path(f"file:{tmp_path}/b"))
    assert files.open(path(f"file:{tmp_path}/b")).readLine() == "rows"
    assert sorted(each.name for each in tmp_path.iterdir()) == [".b.crc", "b"]
    (tmp_path / "b").write_text("ROWS")
    with pytest.raises(Py4JJavaError, match="ChecksumException"):
        files.open(path(f"file:{tmp_path}/b")).readLine()


def test_one_of_several_writers_gets_a_version_of_a_delta_table(
    warehouse: Warehouse, unique: Callable[[str], str]
) -> None:
    """Writers without a common lock never replace each other's entry of the log."""
    name = unique("versions")
    table = warehouse.lakehouse.table("delta_shop", name, TableOptions("delta"))
    table.evolve(ITEM, ["id"])
    logs = [_DeltaLog(warehouse, warehouse.path / "delta_shop" / name) for _ in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as threads:
        for version in range(100, 100 + VERSIONS):
            start = Barrier(WRITERS)
            written = [threads.submit(log.write, version, str(writer), start) for writer, log in enumerate(logs)]
            winners = [str(writer) for writer, each in enumerate(written) if each.result()]
            assert len(winners) == 1
            assert logs[0].entry(version).read_text().split() == winners


class _DeltaLog:
    """A Delta log store in a new instance that shares no state with others."""

    def __init__(self, warehouse: Warehouse, table: Path) -> None:
        self._java = warehouse.session()._jvm
        self._folder = table / "_delta_log"
        self._configuration = _configuration(warehouse)
        self._store = self._java.org.apache.spark.sql.delta.storage.DelegatingLogStore(self._configuration)

    def entry(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"

    def write(self, version: int, text: str, start: Barrier) -> bool:
        """True if this writer got the version, False if another did."""
        entry = self._java.org.apache.hadoop.fs.Path(str(self.entry(version)))
        lines = self._java.scala.Option.apply(text).iterator()
        start.wait(timeout=60)
        try:
            self._store.write(entry, lines, False, self._configuration)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
                raise
            return False
        return True


def _configuration(warehouse: Warehouse) -> Any:
    return warehouse.session()._jsparkSession.sessionState().newHadoopConf()
