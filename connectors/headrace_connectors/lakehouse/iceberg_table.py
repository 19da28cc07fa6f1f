"""An Iceberg table's snapshots, and appends of rows: the operations of every batch beside its MERGE.

They use Iceberg's Java API. A query over a table's metadata or an INSERT of a few rows costs Spark as much planning as
any other job: with a warm JVM a tenth and a quarter of a second of CPU. What every batch needs is one call of
``IcebergTable.java``.

Tests: ``tests/contracts/test_iceberg_tables.py``, ``tests/contracts/test_format_version.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.model.table_files import TableFiles
from headrace.ports import MergeCounts
from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.failures import NO_TABLE, NotThere
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.table_format import CommitResult, Head, MetadataFile
from headrace_connectors.lakehouse.table_session import TableSession, java_member

_JAVA_CLASS = "headrace.IcebergTable"
_MAGIC = {"parquet": b"PAR1", "puffin": b"PFA1"}
"""The last bytes of a file."""
_SEARCH_SECONDS = 20.0
_MERGED = "spark.merge-into.num-target-rows-"

UPSERTED, DELETED_ROWS = "headrace.upserted", "headrace.deleted"
"""The counts of a commit without a MERGE, in its summary: the answer to it may be lost."""


class Snapshot(NamedTuple):
    """A snapshot's id, its parent's id (None for the first one, and where the catalog hides it), and its summary.

    ``sequence`` is 1 for the first snapshot of a table, and 0 for all snapshots of a table of version 1.
    """

    id: int
    parent: int | None
    sequence: int
    summary: Mapping[str, str]

    @property
    def is_first(self) -> bool:
        return self.parent is None and self.sequence <= 1


class LaterSnapshot(NamedTuple):
    """What a snapshot has done: its operation, and whether it added rows."""

    id: int
    operation: str | None
    adds: bool


def files_of(summary: Mapping[str, str]) -> TableFiles | None:
    """Return the files of a snapshot, from the totals in its summary; None if it has none.

    Equality deletes, which only other writers make, hide an unknown number of rows.
    """
    if "total-data-files" not in summary:
        return None
    totals = ("data-files", "delete-files", "files-size", "records", "position-deletes")
    return TableFiles(*(int(summary.get(f"total-{name}", 0)) for name in totals))


def commit_result(snapshot: Snapshot) -> CommitResult:
    """Return what a snapshot of this worker has changed, from its summary."""
    summary = snapshot.summary

    def number(name: str) -> int:
        return int(summary.get(name, 0))

    if UPSERTED in summary:
        counts = MergeCounts(number(UPSERTED), number(DELETED_ROWS))
    elif any(name.startswith(_MERGED) for name in summary):
        counts = MergeCounts(number(_MERGED + "updated") + number(_MERGED + "inserted"), number(_MERGED + "deleted"))
    else:
        counts = MergeCounts(number("added-records"), 0)  # of an append
    return CommitResult(
        counts,
        first=snapshot.is_first,
        files=files_of(summary),
        written=number("added-files-size"),
        head=str(snapshot.id),
    )


class IcebergName(NamedTuple):
    """The name of a table in a catalog of the session; as text, quoted for statements."""

    catalog: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return ".".join(map(quoted, self))


class IcebergTable:
    """A table as its catalog has it when this is made. All calls raise the errors of ``failures``, as does this."""

    def __init__(self, session: TableSession, name: IcebergName) -> None:
        self._calling = session.calling
        self._jvm, spark = session.java
        with self._calling():
            self.java = _require_table(java_member(self._jvm, f"{_JAVA_CLASS}.find")(spark, *name), name)
            """The object of the class in Java."""

    def __del__(self) -> None:
        # The objects of py4j refer to themselves by each method that was called, and the cyclic collector runs rarely.
        # So the JVM would keep the metadata of a hundred loads, megabytes each for a table with many commits.
        for name in ("java", "loaded"):
            if (held := self.__dict__.get(name)) is not None:
                held._methods.clear()

    @staticmethod
    def load_head(session: TableSession, name: IcebergName) -> Head:
        """Return ``head`` of a table by one call."""
        jvm, spark = session.java
        with session.calling():
            return _head(json.loads(_require_table(java_member(jvm, f"{_JAVA_CLASS}.load")(spark, *name), name)))

    @cached_property
    def loaded(self) -> Any:
        """Iceberg's ``Table``."""
        with self._calling():
            return self.java.table()

    @cached_property
    def _state(self) -> Mapping[str, Any]:
        with self._calling():
            state: Mapping[str, Any] = json.loads(self.java.state())
            return state

    def snapshots(self) -> Iterator[Snapshot]:
        """Yield the ancestors of the current snapshot, newest first, without snapshots that a rollback has undone.

        They are loaded one by one: usually only the newest is used.
        """
        with self._calling():
            snapshot = self.loaded.currentSnapshot()
            while snapshot is not None:
                # As JSON in one call: py4j needs two calls for each entry of a map.
                found = _snapshot(java_member(self._jvm, "org.apache.iceberg.SnapshotParser.toJson")(snapshot))
                yield found
                snapshot = None if found.parent is None else self.loaded.snapshot(found.parent)

    def snapshot_with(self, name: str, value: str) -> Snapshot | None:
        """Return the newest of ``snapshots`` whose summary has this entry. Without a call for each of them."""
        with self._calling():
            stored: str | None = self.java.snapshotWith(name, value)
        return None if stored is None else _snapshot(stored)

    def format_version(self) -> int:
        version: int = self._state["format"]
        return version

    def metadata_file(self) -> MetadataFile:
        """Return the file of the metadata as it was loaded, with the credentials that the catalog issued for it."""
        with self._calling():
            properties: Mapping[str, str] = dict(self.loaded.io().properties())
            return MetadataFile(str(self.loaded.operations().current().metadataFileLocation()), properties)

    def hides_snapshots(self) -> bool:
        """Return whether the catalog shows only the newest of several snapshots, or all others have expired."""
        with self._calling():
            snapshot = self.loaded.currentSnapshot()
            metadata = self.loaded.operations().current()
            return snapshot is not None and snapshot.sequenceNumber() > 1 and metadata.snapshots().size() == 1

    def may_delete_files(self) -> bool:
        """Return whether the table's property ``gc.enabled`` allows to delete files of old snapshots."""
        return self.properties().get("gc.enabled") != "false"

    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self._state["properties"]
        return properties

    def set_properties(self, properties: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """Add properties, and remove those called ``removed``, if the table has them."""
        with self._calling():
            update = self.loaded.updateProperties()
            for name, value in properties.items():
                update.set(name, value)
            for name in removed:
                update.remove(name)
            update.commit()

    def schema(self) -> pa.Schema:
        """Return all columns, with the types in which Spark returns them."""
        from pyspark.sql.pandas.types import to_arrow_schema  # imported late, see spark_jvm.py
        from pyspark.sql.types import StructType

        with self._calling():
            convert = java_member(self._jvm, "org.apache.iceberg.spark.SparkSchemaUtil.convert")
            return to_arrow_schema(StructType.fromJson(json.loads(convert(self.loaded.schema()).json())))

    def expire(self, recent_ms: int, most: int) -> str:
        """Expire snapshots by the properties, and of those older than ``recent_ms`` all but the ``most`` newest.

        Return the files, one a line, that no snapshot refers to any more. Queries may still read them. No job is
        started: files are compared by the manifests alone.
        """
        with self._calling():
            unread: str = self.java.expire(recent_ms, most)
        return unread

    def delete(self, files: str) -> None:
        """Delete files, one a line. What cannot be deleted stays."""
        with self._calling():
            self.java.delete(files)

    def append_nothing(self, properties: Mapping[str, str]) -> None:
        """Create a snapshot with ``properties`` and without changes, by an append without a file."""
        with self._calling():
            append = self.loaded.newFastAppend()
            for name, value in properties.items():
                append.set(name, value)
            append.commit()

    def head(self) -> Head:
        """Return the sequence number of the newest snapshot, and its id, which no other table has."""
        return _head(self._state)

    def read_bytes(self, location: str, offset: int, size: int) -> bytes:
        """Return a part of a file, with the catalog's credentials."""
        with self._calling():
            return bytes(self.java.read(location, offset, size))

    def snapshots_since(self, id: int, most: int) -> list[LaterSnapshot] | None:
        """Return the snapshots after one with this id, newest first, at most ``most`` of them.

        None if it is not one of ``snapshots``, or if there are more. One call for all.
        """
        with self._calling():
            later: str | None = self.java.snapshotsSince(id, most)
        return None if later is None else [LaterSnapshot(**snapshot) for snapshot in json.loads(later)]

    def added_files(self, snapshot: int) -> list[str]:
        """Return the locations of the data files that a snapshot has added."""
        with self._calling():
            files = self.loaded.snapshot(snapshot).addedDataFiles(self.loaded.io()).iterator()
            locations = []
            while files.hasNext():
                locations.append(str(files.next().location()))
            return locations

    def append(self, rows: pa.Table, partition: str) -> Head:
        """Add rows of one ``partition`` (as in a path, ``day=2026-11-21``) in a durable commit, without a Spark job.

        Returns the table's new head.
        """
        with self._calling():
            schema = json.loads(self.java.schema())
        ids = {column["name"]: str(column["id"]) for column in schema["fields"]}
        # Iceberg identifies a file's columns by these ids, not by their names.
        fields = [field.with_metadata({"PARQUET:field_id": ids[field.name]}) for field in rows.schema]
        content = pa.BufferOutputStream()
        pq.write_table(rows.cast(pa.schema(fields)), content, compression="zstd")
        with self._calling():
            return _head(json.loads(self.java.append(content.getvalue().to_pybytes(), rows.num_rows, partition)))

    def damaged_file(self) -> str | None:
        """Return the first file of the newest snapshot that is not as its manifest describes it, None if all are.

        Looks at existence, size, the last bytes, and at the checksums of deletion vectors. Stops after some time with
        None. Raises DamagedFile with the file if reading fails.
        """
        deadline = time.monotonic() + _SEARCH_SECONDS
        with self._calling(), closing(self.loaded.newScan().planFiles()) as tasks:
            as_json = java_member(self._jvm, "org.apache.iceberg.ContentFileParser.toJson")
            files, seen = tasks.iterator(), set[str]()
            while files.hasNext() and time.monotonic() < deadline:
                task = files.next()
                for content_file in (task.file(), *task.deletes()):
                    file = json.loads(as_json(content_file, task.spec()))
                    if file["file-path"] in seen and file["file-format"] == "parquet":
                        continue
                    seen.add(file["file-path"])
                    if self._is_damaged(file):
                        return str(file["file-path"])
        return None

    def _is_damaged(self, file: Mapping[str, Any]) -> bool:
        """``file`` is an entry of a manifest as JSON."""
        stored = self.loaded.io().newInputFile(file["file-path"])
        if not stored.exists() or stored.getLength() != file["file-size-in-bytes"]:
            return True
        magic = _MAGIC.get(file["file-format"].lower(), b"")
        stream = stored.newStream()
        try:
            stream.seek(file["file-size-in-bytes"] - len(magic))
            if bytes(stream.readNBytes(len(magic))) != magic:
                return True
            if (offset := file.get("content-offset")) is not None:
                stream.seek(offset)
                deletion_vectors.decode(bytes(stream.readNBytes(file["content-size-in-bytes"])))
        except ValueError:
            return True
        finally:
            stream.close()
        return False


def _require_table(answer: Any, name: IcebergName) -> Any:
    if answer is None:
        raise NotThere(f"{name}: {NO_TABLE}")
    return answer


def _snapshot(stored: str) -> Snapshot:
    """Return a snapshot from Iceberg's JSON."""
    members = json.loads(stored)
    return Snapshot(
        members["snapshot-id"], members.get("parent-snapshot-id"), members.get("sequence-number", 0), members["summary"]
    )


def _head(state: Mapping[str, Any]) -> Head:
    return Head(state["sequence"], str(state["snapshot"] or ""))
