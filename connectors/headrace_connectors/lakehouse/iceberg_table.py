"""An Iceberg table through Iceberg's own Java API: for what needs no query.

A query over a table's metadata and an INSERT of a few rows cost Spark as much as planning any other job: with a warm
JVM a tenth and a third of a second of CPU, against a fiftieth here. Both happen with every batch.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace_connectors.lakehouse.failures import translated
from headrace_connectors.lakehouse.table_session import TableSession


class IcebergTable:
    """The table called ``name`` (quoted, with its catalog) as it stands now. All calls raise what ``failures`` says."""

    def __init__(self, session: TableSession, name: str) -> None:
        self._name = name
        self._jvm, spark = session.java
        with translated(name):
            self._table = self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark, name)

    def snapshots(self) -> Iterator[tuple[Mapping[str, str], int | None]]:
        """Summary and parent of each snapshot that stands behind the table's rows, newest first."""
        with translated(self._name):
            snapshot = self._table.currentSnapshot()
            while snapshot is not None:
                parent = snapshot.parentId()
                yield dict(snapshot.summary()), parent
                snapshot = None if parent is None else self._table.snapshot(parent)

    def append(self, rows: pa.Table, partition: str) -> None:
        """Add rows, all of one ``partition`` (as in a path, ``day=2026-11-21``), as a file of their own."""
        with tempfile.TemporaryDirectory(prefix="headrace-") as folder, translated(self._name):
            path = Path(folder, "rows.parquet")
            pq.write_table(self._with_field_ids(rows), path, compression="zstd")
            location = self._table.locationProvider().newDataLocation(f"{partition}/{uuid.uuid4().hex}.parquet")
            self._copy(path, location)
            file = (
                self._jvm.org.apache.iceberg.DataFiles.builder(self._table.spec())
                .withPath(location)
                .withFormat("parquet")
                .withFileSizeInBytes(path.stat().st_size)
                .withRecordCount(rows.num_rows)
                .withPartitionPath(partition)
                .build()
            )
            self._table.newAppend().appendFile(file).commit()

    def _with_field_ids(self, rows: pa.Table) -> pa.Table:
        """Iceberg finds a file's columns by these, not by their names."""
        schema = self._table.schema()
        ids = [str(schema.findField(name).fieldId()).encode() for name in rows.column_names]
        fields = [
            field.with_metadata({b"PARQUET:field_id": number}) for field, number in zip(rows.schema, ids, strict=True)
        ]
        return rows.cast(pa.schema(fields))

    def _copy(self, path: Path, location: str) -> None:
        """To wherever the table's files stand, which may be another machine."""
        stream = self._table.io().newOutputFile(location).create()
        try:
            self._jvm.java.nio.file.Files.copy(self._jvm.java.io.File(str(path)).toPath(), stream)
        finally:
            stream.close()
