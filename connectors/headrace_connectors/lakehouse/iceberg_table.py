"""An Iceberg table's snapshots, and appends of rows: the operations of every batch beside its MERGE.

They use Iceberg's Java API if Spark's JVM is available. A query over a table's metadata or an INSERT of a few rows
costs Spark as much planning as any other job: with a warm JVM a tenth and a quarter of a second of CPU. Reading the
snapshot by the API takes a fiftieth of a second. Spark Connect has no JVM for this process, and uses statements.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_connectors.lakehouse.failures import translated
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.table_session import TableSession, java_member


class Snapshot(NamedTuple):
    """A snapshot's id, its parent's id (None for the first one), and its summary."""

    id: int
    parent: int | None
    summary: Mapping[str, str]


class IcebergTable(Protocol):
    """The current state of a table. All calls raise the errors of ``failures``."""

    def snapshots(self) -> Iterator[Snapshot]:
        """Return the ancestors of the current snapshot, newest first, without snapshots that a rollback has undone."""

    def version(self) -> str:
        """Return the id of the newest snapshot, which no other table has; "" without one."""

    def append_nothing(self, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """Create a snapshot with ``properties`` and without changes; a statement for it runs under ``settings``."""

    def sequence(self) -> int:
        """Return the sequence number of the newest snapshot; each has the next one."""

    def append(self, rows: pa.Table, partition: str) -> None:
        """Add rows of one ``partition`` (as in a path, ``day=2026-11-21``) in a durable commit."""


def iceberg_table(session: TableSession, name: str) -> IcebergTable:
    """Return the table called ``name`` (quoted, with its catalog)."""
    java = session.java
    return ByStatements(session, name) if java is None else ByApi(java, name)


class ByStatements:
    """An ``IcebergTable`` for any Spark session."""

    def __init__(self, session: TableSession, name: str) -> None:
        self._session = session
        self._name = name

    def snapshots(self) -> Iterator[Snapshot]:
        """Read them from the metadata table."""
        standing = f"SELECT snapshot_id FROM {self._name}.history WHERE is_current_ancestor"
        query = (
            f"SELECT snapshot_id, parent_id, summary FROM {self._name}.snapshots WHERE snapshot_id IN ({standing}) "
            "ORDER BY committed_at DESC"
        )
        yield from (Snapshot(row.snapshot_id, row.parent_id, row.summary) for row in self._session.rows(query))

    def version(self) -> str:
        """Read it from the metadata table of branches."""
        rows = self._session.rows(f"SELECT snapshot_id FROM {self._name}.refs WHERE name = 'main'")
        return str(rows[0].snapshot_id) if rows else ""

    def append_nothing(self, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """Make it by an INSERT without rows."""
        with self._session.configured(settings):
            self._session.run(f"INSERT INTO {self._name} SELECT * FROM {self._name} WHERE false")

    def sequence(self) -> int:
        """Read it from the metadata table."""
        query = f"SELECT max(latest_sequence_number) AS newest FROM {self._name}.metadata_log_entries"
        return self._session.rows(query)[0].newest or 0

    def append(self, rows: pa.Table, partition: str) -> None:
        """Add them by an INSERT, which determines the partition."""
        names = ", ".join(map(quoted, rows.column_names))
        with self._session.staged(rows) as view:
            self._session.run(f"INSERT INTO {self._name} ({names}) SELECT {names} FROM {view}")


class ByApi:
    """An ``IcebergTable`` through ``java``, Spark's JVM and the session in it."""

    def __init__(self, java: tuple[Any, Any], name: str) -> None:
        self._name = name
        self._jvm, spark = java
        with translated(name):
            load = java_member(self._jvm, "org.apache.iceberg.spark.Spark3Util.loadIcebergTable")
            self._table = load(spark, name)

    def snapshots(self) -> Iterator[Snapshot]:
        """The ancestors of the current snapshot, loaded one by one: usually only the newest is used."""
        with translated(self._name):
            snapshot = self._table.currentSnapshot()
            while snapshot is not None:
                # As JSON in one call: py4j needs two calls for each entry of a map.
                found = json.loads(java_member(self._jvm, "org.apache.iceberg.SnapshotParser.toJson")(snapshot))
                parent = found.get("parent-snapshot-id")
                yield Snapshot(found["snapshot-id"], parent, found["summary"])
                snapshot = None if parent is None else self._table.snapshot(parent)

    def version(self) -> str:
        """Return the id of the newest snapshot."""
        with translated(self._name):
            snapshot = self._table.currentSnapshot()
            return "" if snapshot is None else str(snapshot.snapshotId())

    def append_nothing(self, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
        """Make it by an append without a file."""
        with translated(self._name):
            append = self._table.newFastAppend()
            for name, value in properties.items():
                append.set(name, value)
            append.commit()

    def sequence(self) -> int:
        """Return the sequence number of the newest snapshot."""
        with translated(self._name):
            snapshot = self._table.currentSnapshot()
            return 0 if snapshot is None else int(snapshot.sequenceNumber())

    def append(self, rows: pa.Table, partition: str) -> None:
        """Append the rows as a separate file, without a Spark job."""
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder, translated(self._name):
            path = Path(folder, "rows.parquet")
            pq.write_table(self._with_field_ids(rows), path, compression="zstd")
            location = self._table.locationProvider().newDataLocation(f"{partition}/{uuid.uuid4().hex}.parquet")
            self._copy(path, location)
            file = (
                java_member(self._jvm, "org.apache.iceberg.DataFiles.builder")(self._table.spec())
                .withPath(location)
                .withFormat("parquet")
                .withFileSizeInBytes(path.stat().st_size)
                .withRecordCount(rows.num_rows)
                .withPartitionPath(partition)
                .build()
            )
            self._table.newAppend().appendFile(file).commit()

    def _with_field_ids(self, rows: pa.Table) -> pa.Table:
        """Iceberg identifies a file's columns by these ids, not by their names."""
        schema = self._table.schema()
        ids = [str(schema.findField(name).fieldId()).encode() for name in rows.column_names]
        fields = [
            field.with_metadata({b"PARQUET:field_id": number}) for field, number in zip(rows.schema, ids, strict=True)
        ]
        return rows.cast(pa.schema(fields))

    def _copy(self, path: Path, location: str) -> None:
        """Write to the location of the table's files, which may be on another machine."""
        stream = self._table.io().newOutputFile(location).create()
        try:
            source = java_member(self._jvm, "java.io.File")(str(path)).toPath()
            java_member(self._jvm, "java.nio.file.Files.copy")(source, stream)
        finally:
            stream.close()
