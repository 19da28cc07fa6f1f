"""Rewrites files of an Iceberg table beside its writer, without a conflict with the writer's commits.

A rewrite takes seconds, in which most merges delete rows of most files. Iceberg's own procedure would fail each time
(https://iceberg.apache.org/spec/#deletion-vectors: a data file has one vector at most). Here the rewrite keeps the
order of the rows, so that the position of each row in the new file is known. The rows that were deleted since the
rewrite began get a deletion vector for the new file, in the same commit that replaces the old files. Only that commit,
a fraction of a second, excludes the writer.

It requires deletion vectors (format version 3) and files in no particular order; other tables use the procedure.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.compaction_plan import DataFile
from headrace_connectors.lakehouse.deletion_vectors import Positions
from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable
from headrace_connectors.lakehouse.table_session import TableSession, java_member

log = logging.getLogger(__name__)

_VECTORS_SINCE = 3
"""The format version that has deletion vectors."""

_ONE_TASK = str(2**40)
"""A size in bytes that no rewrite has: one task of Spark reads all files in their order, and writes one file."""

_ROW_POSITION_FIELD = 2147483645  # of the deletion-vector-v1 blob, by the specification


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """A new file with the rows of ``files`` that were live at the snapshot; None if there were none.

    ``deleted`` are the positions of the rows that were deleted then, by file.
    """

    files: Sequence[DataFile]
    deleted: Sequence[Positions]
    new: Any | None


class IcebergCompaction:
    """The data files of a table as they are when this is made."""

    def __init__(self, session: TableSession, name: IcebergName) -> None:
        self._session = session
        self._name = name
        self._jvm, _ = session.java
        self._tasks: dict[str, Any] = {}
        self._loaded = IcebergTable(session, name)
        with session.calling():
            self._table = self._loaded.loaded
            self._snapshot = self._table.currentSnapshot()

    @property
    def is_possible(self) -> bool:
        with self._session.calling():
            return self._loaded.format_version() >= _VECTORS_SINCE and bool(self._table.sortOrder().isUnsorted())

    def files(self) -> list[DataFile]:
        """Return the files. Those with deletes outside of vectors (of another writer) only if not ``is_possible``."""
        if self._snapshot is None:
            return []
        files, is_possible = [], self.is_possible
        with self._session.calling():
            as_json = java_member(self._jvm, "org.apache.iceberg.ContentFileParser.toJson")
            scan = self._table.newScan().useSnapshot(self._snapshot.snapshotId())
            with closing(scan.planFiles()) as planned:
                tasks = planned.iterator()
                while tasks.hasNext():
                    task = tasks.next()
                    # As JSON in one call: py4j needs a call for each property.
                    file = json.loads(as_json(task.file(), task.spec()))
                    deletes = [json.loads(as_json(delete, task.spec())) for delete in task.deletes()]
                    if is_possible and any(delete["file-format"] != "puffin" for delete in deletes):
                        continue
                    path, size, rows = file["file-path"], file["file-size-in-bytes"], file["record-count"]
                    self._tasks[path] = task
                    partition = json.dumps([file["spec-id"], file.get("partition")])
                    deleted = sum(delete["record-count"] for delete in deletes)
                    files.append(DataFile(path, partition, size, rows, deleted))
        return files

    def rewrite(self, files: Sequence[DataFile]) -> RewriteResult:
        """Write the live rows of ``files`` into a new file, which no snapshot contains yet."""
        with self._session.calling():
            vectors = [self._vector_of(file.path) for file in files]
            deleted = [self._read(vector) for vector in vectors]
            live = sum(file.rows for file in files) - sum(map(len, deleted))
            if not live:
                return RewriteResult(files, deleted, None)
            with self._staged_tasks(files) as group:
                self._session.copy(
                    group,
                    {"split-size": _ONE_TASK, "file-open-cost": "0"},
                    # Sorted or distributed rows would not be in their order.
                    {
                        "target-file-size-bytes": _ONE_TASK,
                        "use-table-distribution-and-ordering": "false",
                        "distribution-mode": "none",
                        "fanout-enabled": "true",
                    },
                )
                coordinator = java_member(self._jvm, "org.apache.iceberg.spark.FileRewriteCoordinator.get")()
                new_files = list(coordinator.fetchNewFiles(self._table, group))
                coordinator.clearRewrite(self._table, group)
            if len(new_files) != 1 or new_files[0].recordCount() != live:
                for file in new_files:
                    self._table.io().deleteFile(file.location())
                raise Conflict(f"{self._name}: a compaction did not write the expected rows, and was discarded")
            return RewriteResult(files, deleted, new_files[0])

    @contextmanager
    def _staged_tasks(self, files: Sequence[DataFile]) -> Iterator[str]:
        """Provide the name under which Spark reads these files, and writes files without a commit."""
        group = str(uuid.uuid4())
        tasks = self._jvm.java.util.ArrayList()
        for file in files:
            tasks.add(self._tasks[file.path])
        tables = java_member(self._jvm, "org.apache.iceberg.spark.SparkTableCache.get")()
        sets = java_member(self._jvm, "org.apache.iceberg.spark.ScanTaskSetManager.get")()
        try:
            tables.add(group, self._table)
            sets.stageTasks(self._table, group, tasks)
            yield group
        finally:
            tables.remove(group)
            sets.removeTasks(self._table, group)

    def replace(self, result: RewriteResult, properties: Mapping[str, str]) -> None:
        """Replace the files by the new one in a commit with ``properties``. No other thread may commit during the call.

        Raises Conflict if another process did commit, has removed a file, or if the result is unknown. The new file
        stays then, since the commit may have succeeded; without a commit it is an orphan.
        """
        with self._session.calling():
            self._table.refresh()
            newest = self._table.currentSnapshot()
            vectors = self._newest_vectors(newest, [file.path for file in result.files])
            now, change = [], self._table.newRewrite().validateFromSnapshot(newest.snapshotId())
            for file, before in zip(result.files, result.deleted, strict=True):
                vector = vectors[file.path]
                now.append(self._read(vector))
                if not np.isin(before, now[-1]).all():
                    raise Conflict(f"{self._name}: the table was rolled back during a compaction")
                change.deleteFile(self._tasks[file.path].file())
                if vector is not None:
                    change.deleteFile(vector)
            if result.new is not None:
                change.addFile(result.new)
                moved = deletion_vectors.moved_positions([file.rows for file in result.files], result.deleted, now)
                if len(moved):
                    change.addFile(self._write_vector(result.new, moved))
            for name, value in properties.items():
                change.set(name, value)
            change.commit()

    # -- deletion vectors ----------------------------------------------------------------------------------------------

    def _vector_of(self, path: str) -> Any | None:
        """The vector of a file at the first snapshot."""
        deletes = self._tasks[path].deletes()
        return deletes.get(0) if deletes.size() else None

    def _newest_vectors(self, newest: Any, paths: Sequence[str]) -> Mapping[str, Any | None]:
        """The vectors of data files at the newest snapshot; None for a file without one.

        The snapshots since the first one name the vectors that they added. A file's last vector contains the others.
        Some catalogs (Nessie) show the newest snapshot alone: then all files of the table are listed.
        """
        vectors: dict[str, Any] = {}
        snapshot = newest
        while snapshot is not None and snapshot.snapshotId() != self._snapshot.snapshotId():
            for vector in snapshot.addedDeleteFiles(self._table.io()):
                vectors.setdefault(vector.referencedDataFile(), vector)
            parent = snapshot.parentId()
            snapshot = None if parent is None else self._table.snapshot(parent)
        if snapshot is None:
            current = IcebergCompaction(self._session, self._name)
            if not {file.path for file in current.files()}.issuperset(paths):
                raise Conflict(f"{self._name}: files of a compaction were removed meanwhile")
            return {path: current._vector_of(path) for path in paths}
        return {path: vectors.get(path) or self._vector_of(path) for path in paths}

    def _read(self, vector: Any | None) -> Positions:
        if vector is None:
            return deletion_vectors.NO_POSITIONS
        content = self._loaded.read_bytes(vector.location(), vector.contentOffset(), vector.contentSizeInBytes())
        return deletion_vectors.decode(content)

    def _write_vector(self, file: Any, positions: Positions) -> Any:
        """Write a vector for a new data file into a Puffin file of its own."""
        location = file.location().removesuffix(".parquet") + "-deletes.puffin"
        fields = self._jvm.java.util.ArrayList()
        fields.add(_ROW_POSITION_FIELD)
        properties = self._jvm.java.util.HashMap()
        properties.put("referenced-data-file", file.location())
        properties.put("cardinality", str(len(positions)))
        data = self._jvm.java.nio.ByteBuffer.wrap(deletion_vectors.encode(positions))
        blob = self._jvm.org.apache.iceberg.puffin.Blob(
            deletion_vectors.BLOB_TYPE, fields, -1, -1, data, None, properties
        )
        output = self._table.io().newOutputFile(location)
        writer = java_member(self._jvm, "org.apache.iceberg.puffin.Puffin.write")(output).createdBy("Headrace").build()
        stored = writer.write(blob)
        writer.close()
        builder = java_member(self._jvm, "org.apache.iceberg.FileMetadata.deleteFileBuilder")
        return (
            builder(self._table.specs().get(file.specId()))
            .ofPositionDeletes()
            .withFormat("puffin")
            .withPath(location)
            .withPartition(file.partition())
            .withFileSizeInBytes(writer.fileSize())
            .withReferencedDataFile(file.location())
            .withContentOffset(stored.offset())
            .withContentSizeInBytes(stored.length())
            .withRecordCount(len(positions))
            .build()
        )
